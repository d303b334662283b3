import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Locale;
import java.util.Map;
import org.apache.kafka.connect.source.SourceRecord;
import org.apache.kafka.connect.transforms.TimestampRouter;

/**
 * How Connect's TimestampRouter names topics, in Locale.US: FILE has [topic format, pattern, topic, timestamp …] in
 * each line, as JSON. Each line of the answer is a list of names, or {"error": …} where the pattern is none.
 */
public class DateNames {
    private static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] arguments) throws Exception {
        Locale.setDefault(Locale.US);
        for (String line : Files.readAllLines(Path.of(arguments[0]))) {
            System.out.println(answer(JSON.readTree(line)));
        }
    }

    private static String answer(JsonNode question) throws Exception {
        try (TimestampRouter<SourceRecord> router = new TimestampRouter<>()) {
            router.configure(
                Map.of("topic.format", question.get(0).asText(), "timestamp.format", question.get(1).asText()));
            var names = JSON.createArrayNode();
            for (int at = 3; at < question.size(); at++) {
                SourceRecord record = new SourceRecord(
                    null, null, question.get(2).asText(), 0, null, null, null, null, question.get(at).asLong());
                names.add(router.apply(record).topic());
            }
            return JSON.writeValueAsString(names);
        } catch (IllegalArgumentException error) {
            return JSON.writeValueAsString(JSON.createObjectNode().put("error", error.getMessage()));
        }
    }
}
