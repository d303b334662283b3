import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HashMap;
import java.util.Iterator;
import java.util.Map;
import org.apache.kafka.connect.data.SchemaAndValue;
import org.apache.kafka.connect.data.Values;
import org.apache.kafka.connect.header.Header;
import org.apache.kafka.connect.json.JsonConverter;
import org.apache.kafka.connect.mirror.ReplicationPolicy;
import org.apache.kafka.connect.source.SourceRecord;
import org.apache.kafka.connect.transforms.Transformation;
import org.apache.kafka.connect.transforms.predicates.Predicate;

/**
 * What Connect's own single message transforms make of records: FILE has one question in each line, as JSON.
 *
 * Keys and values go through a JsonConverter without schemas. Each line of the answer is a record, null where it was
 * dropped, or {"error": …}; with "predicate" in the question, the transform is for those records that it holds for.
 * The "policy" of the question names the records' topic from "source" and "topic".
 */
public class Steps {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final String PACKAGE = "org.apache.kafka.connect.transforms.";

    public static void main(String[] arguments) throws Exception {
        for (String line : Files.readAllLines(Path.of(arguments[0]))) {
            System.out.println(JSON.writeValueAsString(answer(JSON.readTree(line))));
        }
    }

    private static JsonNode answer(JsonNode question) throws Exception {
        try (JsonConverter keys = converter(true); JsonConverter values = converter(false)) {
            SchemaAndValue key = keys.toConnectData("t", bytes(question.get("key")));
            SchemaAndValue value = values.toConnectData("t", bytes(question.get("value")));
            SourceRecord record = new SourceRecord(
                null, null, named(question), question.get("partition").asInt(), key.schema(), key.value(),
                value.schema(), value.value(), question.get("timestamp").asLong());
            for (JsonNode header : question.get("headers")) {
                record.headers().addString(header.get(0).asText(), header.get(1).asText());
            }
            try {
                if (!holds(question, record)) {
                    return shown(record, keys, values);
                }
                SourceRecord made = transformed(question, record);
                return made == null ? JSON.nullNode() : shown(made, keys, values);
            } catch (RuntimeException error) {
                return JSON.createObjectNode().put("error", error.getMessage());
            }
        }
    }

    /** As MirrorSourceTask names the topic of a record. */
    private static String named(JsonNode question) throws Exception {
        String policy = "org.apache.kafka.connect.mirror." + question.get("policy").asText();
        ReplicationPolicy made = (ReplicationPolicy) Class.forName(policy).getDeclaredConstructor().newInstance();
        return made.formatRemoteTopic(question.get("source").asText(), question.get("topic").asText());
    }

    private static boolean holds(JsonNode question, SourceRecord record) throws Exception {
        if (!question.has("predicate")) {
            return true;
        }
        try (Predicate<SourceRecord> predicate = make("predicates." + question.get("predicate").asText())) {
            predicate.configure(settings(question.get("predicateSettings")));
            return predicate.test(record) != question.get("negate").asBoolean();
        }
    }

    private static SourceRecord transformed(JsonNode question, SourceRecord record) throws Exception {
        try (Transformation<SourceRecord> transformation = make(question.get("kind").asText())) {
            transformation.configure(settings(question.get("settings")));
            return transformation.apply(record);
        }
    }

    @SuppressWarnings("unchecked")
    private static <T> T make(String name) throws Exception {
        return (T) Class.forName(PACKAGE + name).getDeclaredConstructor().newInstance();
    }

    private static Map<String, String> settings(JsonNode given) {
        Map<String, String> settings = new HashMap<>();
        for (Iterator<String> names = given.fieldNames(); names.hasNext();) {
            String name = names.next();
            settings.put(name, given.get(name).asText());
        }
        return settings;
    }

    private static JsonConverter converter(boolean isKey) {
        JsonConverter converter = new JsonConverter();
        converter.configure(Map.of("schemas.enable", "false"), isKey);
        return converter;
    }

    private static byte[] bytes(JsonNode text) {
        return text.isNull() ? null : text.asText().getBytes(StandardCharsets.UTF_8);
    }

    private static JsonNode shown(SourceRecord record, JsonConverter keys, JsonConverter values) {
        ObjectNode shown = JSON.createObjectNode();
        shown.put("topic", record.topic());
        shown.put("key", text(keys.fromConnectData("t", record.keySchema(), record.key())));
        shown.put("value", text(values.fromConnectData("t", record.valueSchema(), record.value())));
        ArrayNode headers = shown.putArray("headers");
        for (Header header : record.headers()) {
            headers.addArray().add(header.key()).add(Values.convertToString(header.schema(), header.value()));
        }
        return shown;
    }

    private static String text(byte[] bytes) {
        return bytes == null ? null : new String(bytes, StandardCharsets.UTF_8);
    }
}
