import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.stream.Collectors;
import org.apache.kafka.clients.admin.AdminClientConfig;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.clients.producer.ProducerConfig;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.connect.mirror.DefaultConfigPropertyFilter;
import org.apache.kafka.connect.mirror.DefaultGroupFilter;
import org.apache.kafka.connect.mirror.DefaultTopicFilter;
import org.apache.kafka.connect.mirror.MirrorCheckpointConfig;
import org.apache.kafka.connect.mirror.MirrorClientConfig;
import org.apache.kafka.connect.mirror.MirrorHeartbeatConfig;
import org.apache.kafka.connect.mirror.MirrorMakerConfig;
import org.apache.kafka.connect.mirror.MirrorSourceConfig;
import org.apache.kafka.connect.runtime.SourceConnectorConfig;
import org.apache.kafka.connect.runtime.distributed.Crypto;
import org.apache.kafka.connect.runtime.distributed.DistributedConfig;

/** Every key that MirrorMaker 2 and the clients in it define: where it belongs, its name, type and default. */
public class KeyTable {
    public static void main(String[] arguments) throws Exception {
        Map<String, ConfigDef> tables = new LinkedHashMap<>();
        tables.put("process", made(MirrorMakerConfig.class, "config"));
        tables.put("every client", held(MirrorClientConfig.class, "CLIENT_CONFIG_DEF"));
        tables.put("connector", held(MirrorSourceConfig.class, "CONNECTOR_CONFIG_DEF"));
        tables.put("checkpoints", held(MirrorCheckpointConfig.class, "CONNECTOR_CONFIG_DEF"));
        tables.put("heartbeats", held(MirrorHeartbeatConfig.class, "CONNECTOR_CONFIG_DEF"));
        tables.put("source connector", SourceConnectorConfig.configDef());
        for (String filter : List.of("DefaultTopicFilter", "DefaultGroupFilter", "DefaultConfigPropertyFilter")) {
            Class<?> config = Class.forName("org.apache.kafka.connect.mirror." + filter + "$"
                + filter.substring("Default".length()) + "Config");
            tables.put("filter " + filter, held(config, "DEF"));
        }
        Method worker = DistributedConfig.class.getDeclaredMethod("config", Crypto.class);
        worker.setAccessible(true);
        tables.put("worker", (ConfigDef) worker.invoke(null, Crypto.SYSTEM));
        tables.put("consumer", ConsumerConfig.configDef());
        tables.put("producer", ProducerConfig.configDef());
        tables.put("admin", AdminClientConfig.configDef());
        tables.forEach((place, table) -> new TreeMap<>(table.configKeys()).forEach((name, key) ->
            System.out.println(String.join("\t", place, name, key.type.toString(), text(key)))));
    }

    private static String text(ConfigDef.ConfigKey key) {
        Object value = key.hasDefault() ? key.defaultValue : "required";
        if (value instanceof Class) {
            return ((Class<?>) value).getName();
        }
        if (value instanceof List) {
            return ((List<?>) value).stream()
                .map(member -> member instanceof Class ? ((Class<?>) member).getName() : member.toString())
                .collect(Collectors.joining(", "));
        }
        return String.valueOf(value);
    }

    private static ConfigDef made(Class<?> type, String method) throws Exception {
        Method found = type.getDeclaredMethod(method);
        found.setAccessible(true);
        return (ConfigDef) found.invoke(null);
    }

    private static ConfigDef held(Class<?> type, String name) throws Exception {
        Field field = type.getDeclaredField(name);
        field.setAccessible(true);
        return (ConfigDef) field.get(null);
    }
}
