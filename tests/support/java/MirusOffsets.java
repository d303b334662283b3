import com.fasterxml.jackson.annotation.JsonProperty;
import com.fasterxml.jackson.annotation.JsonPropertyOrder;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.ObjectReader;
import com.fasterxml.jackson.dataformat.csv.CsvGenerator;
import com.fasterxml.jackson.dataformat.csv.CsvMapper;
import com.fasterxml.jackson.dataformat.csv.CsvSchema;
import java.io.PrintStream;
import java.net.URLDecoder;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.Map;
import org.apache.kafka.connect.json.JsonConverter;

/**
 * An offset as Mirus's tool prints it and as Connect stores it for Mirus, with the libraries and settings of both.
 *
 * <p>Arguments: connector (as in a URL), topic, partition and offset (empty: none) of each. Prints the line of CSV and
 * of JSON, what is read from the first one, and key and value of the record.
 */
public class MirusOffsets {
    @JsonPropertyOrder({"connectorId", "topic", "partition", "offset"})
    static class Info {
        @JsonProperty String connectorId;
        @JsonProperty String topic;
        @JsonProperty Long partition;
        @JsonProperty Long offset;
    }

    public static void main(String[] args) throws Exception {
        PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        CsvMapper csv = new CsvMapper().configure(CsvGenerator.Feature.STRICT_CHECK_FOR_QUOTING, true);
        CsvSchema schema = csv.schemaFor(Info.class).withLineSeparator("");
        ObjectReader reader = csv.reader(schema).forType(Info.class);
        ObjectMapper json = new ObjectMapper();
        JsonConverter converter = new JsonConverter();
        converter.configure(Collections.singletonMap("schemas.enable", "false"), true);
        for (int at = 0; at < args.length; at += 4) {
            Info info = new Info();
            info.connectorId = URLDecoder.decode(args[at], StandardCharsets.UTF_8);
            info.topic = args[at + 1];
            info.partition = Long.valueOf(args[at + 2]);
            info.offset = args[at + 3].isEmpty() ? null : Long.valueOf(args[at + 3]);
            String line = csv.writer(schema).writeValueAsString(info);
            out.println(line);
            out.println(json.writeValueAsString(info));
            out.println(json.writeValueAsString(reader.readValue(line)));
            Map<String, Object> partition = new LinkedHashMap<>();
            partition.put("topic", info.topic);
            partition.put("partition", info.partition.intValue());
            Object key = Arrays.asList(info.connectorId, partition);
            Object value = Collections.singletonMap("offset", info.offset);
            out.println(new String(converter.fromConnectData(info.connectorId, null, key), StandardCharsets.UTF_8));
            out.println(new String(converter.fromConnectData(info.connectorId, null, value), StandardCharsets.UTF_8));
        }
    }
}
