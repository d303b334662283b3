import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.LinkedHashMap;
import java.util.Map;
import org.apache.kafka.common.config.ConfigException;
import org.apache.kafka.common.config.ConfigTransformer;
import org.apache.kafka.common.config.provider.ConfigProvider;
import org.apache.kafka.common.config.provider.DirectoryConfigProvider;
import org.apache.kafka.common.config.provider.EnvVarConfigProvider;
import org.apache.kafka.common.config.provider.FileConfigProvider;

/**
 * What Kafka's own providers make of references: FILE ALLOWED, one value in each line of the file.
 *
 * Each line of the answer is the value with its references replaced, or "refused". The providers file and dir may read
 * below ALLOWED, env gives variables whose names begin with MM2PY.
 */
public class References {
    public static void main(String[] arguments) throws Exception {
        Map<String, ConfigProvider> providers = new LinkedHashMap<>();
        providers.put("file", new FileConfigProvider());
        providers.put("dir", new DirectoryConfigProvider());
        providers.put("env", new EnvVarConfigProvider());
        Map<String, String> parameters = Map.of("allowed.paths", arguments[1], "allowlist.pattern", "MM2PY.*");
        providers.values().forEach(provider -> provider.configure(parameters));
        ConfigTransformer transformer = new ConfigTransformer(providers);
        for (String value : Files.readAllLines(Path.of(arguments[0]), StandardCharsets.UTF_8)) {
            try {
                Map<String, String> replaced = transformer.transform(Map.of("key", value)).data();
                System.out.println(replaced.get("key").replace("\n", "\\n"));
            } catch (ConfigException refused) {
                System.out.println("refused");
            }
        }
    }
}
