import java.io.BufferedOutputStream;
import java.io.PrintStream;
import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.stream.Collectors;
import java.util.stream.Stream;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.common.utils.Utils;
import org.apache.kafka.connect.connector.policy.AllConnectorClientConfigOverridePolicy;
import org.apache.kafka.connect.connector.policy.ConnectorClientConfigOverridePolicy;
import org.apache.kafka.connect.mirror.MirrorCheckpointConfig;
import org.apache.kafka.connect.mirror.MirrorCheckpointConnector;
import org.apache.kafka.connect.mirror.MirrorClientConfig;
import org.apache.kafka.connect.mirror.MirrorConnectorConfig;
import org.apache.kafka.connect.mirror.MirrorHeartbeatConfig;
import org.apache.kafka.connect.mirror.MirrorHeartbeatConnector;
import org.apache.kafka.connect.mirror.MirrorMakerConfig;
import org.apache.kafka.connect.mirror.MirrorSourceConfig;
import org.apache.kafka.connect.mirror.MirrorSourceConnector;
import org.apache.kafka.connect.mirror.SourceAndTarget;
import org.apache.kafka.connect.runtime.ConnectorConfig;
import org.apache.kafka.connect.runtime.Worker;
import org.apache.kafka.connect.runtime.WorkerConfig;
import org.apache.kafka.connect.runtime.distributed.DistributedConfig;

/**
 * What MirrorMaker 2 makes of each properties file of a folder: FOLDER. Without one: which keys are inherited by clients
 * and by connectors, each line "client" or "connector" and a key.
 *
 * Each line of the answer is the file's name, a flow, what the setting is for, its key and its value. A file that
 * MirrorMaker refuses gives one line with "refused" in place of the flow.
 */
public class MirrorSettings {
    private static final PrintStream ANSWER = new PrintStream(new BufferedOutputStream(System.out, 1 << 16), false);

    public static void main(String[] arguments) throws Exception {
        if (arguments.length == 0) {
            describeKeys();
            return;
        }
        List<Path> files;
        try (Stream<Path> found = Files.list(Path.of(arguments[0]))) {
            files = found.sorted().collect(Collectors.toList());
        }
        for (Path file : files) {
            String name = file.getFileName().toString();
            try {
                Map<String, String> settings = Utils.propsToStringMap(Utils.loadProps(file.toString()));
                // The other way scans every jar, for every file.
                settings.put("plugin.discovery", "service_load");
                MirrorMakerConfig config = new MirrorMakerConfig(settings);
                for (SourceAndTarget flow : config.clusterPairs()) {
                    describe(name, config, flow);
                }
            } catch (RuntimeException refused) {
                ANSWER.append(name + "\trefused\t" + refused.getMessage().replaceAll("\\s", " ") + "\n");
            }
        }
        ANSWER.flush();
    }

    private static void describeKeys() throws Exception {
        MirrorMakerConfig config = new MirrorMakerConfig(Map.of("clusters", "A", "plugin.discovery", "service_load"));
        Method connectors = MirrorMakerConfig.class.getDeclaredMethod("allConfigNames");
        connectors.setAccessible(true);
        Field clients = MirrorClientConfig.class.getDeclaredField("CLIENT_CONFIG_DEF");
        clients.setAccessible(true);
        ((ConfigDef) clients.get(null)).names().forEach(key -> ANSWER.append("client\t" + key + "\n"));
        ((Set<?>) connectors.invoke(config)).forEach(key -> ANSWER.append("connector\t" + key + "\n"));
        ANSWER.flush();
    }

    private static void describe(String file, MirrorMakerConfig config, SourceAndTarget flow) throws Exception {
        Map<String, String> connector = config.connectorBaseConfig(flow, MirrorSourceConnector.class);
        Map<String, String> checkpoint = config.connectorBaseConfig(flow, MirrorCheckpointConnector.class);
        Map<String, String> heartbeat = config.connectorBaseConfig(flow, MirrorHeartbeatConnector.class);
        Map<String, String> worker = config.workerConfig(flow);
        print(file, flow, "worker", worker);
        print(file, flow, "source", connector);
        print(file, flow, "checkpoint", checkpoint);
        print(file, flow, "heartbeat", heartbeat);
        MirrorSourceConfig source = new MirrorSourceConfig(connector);
        if (!file.startsWith("clash")) {
            print(file, flow, "values", source.values());
            print(file, flow, "values", new MirrorCheckpointConfig(checkpoint).values());
            print(file, flow, "values", new MirrorHeartbeatConfig(heartbeat).values());
        }
        for (String client : List.of("sourceConsumer", "sourceAdmin", "targetAdmin")) {
            Method method = MirrorConnectorConfig.class.getDeclaredMethod(client + "Config", String.class);
            method.setAccessible(true);
            print(file, flow, client, (Map<?, ?>) method.invoke(source, "role"));
        }
        print(file, flow, "dataProducer", dataProducer(connector, worker));
    }

    private static Map<?, ?> dataProducer(Map<String, String> connector, Map<String, String> worker) throws Exception {
        Method method = Worker.class.getDeclaredMethod("baseProducerConfigs", String.class, String.class,
            WorkerConfig.class, ConnectorConfig.class, Class.class, ConnectorClientConfigOverridePolicy.class,
            String.class);
        method.setAccessible(true);
        // Plugins are asked for transforms alone; there are none.
        ConnectorConfig bare = new ConnectorConfig(null, ConnectorConfig.configDef(), connector);
        return (Map<?, ?>) method.invoke(null, "MirrorSourceConnector", "clientId", new DistributedConfig(worker), bare,
            MirrorSourceConnector.class, new AllConnectorClientConfigOverridePolicy(), "clusterId");
    }

    private static void print(String file, SourceAndTarget flow, String what, Map<?, ?> settings) {
        TreeMap<String, Object> sorted = new TreeMap<>();
        settings.forEach((key, value) -> sorted.put(key.toString(), value));
        for (String key : new TreeSet<>(sorted.keySet())) {
            Object value = sorted.get(key);
            String text = value instanceof Class ? ((Class<?>) value).getName()
                : value instanceof List ? ((List<?>) value).stream().map(Object::toString).collect(Collectors.joining(","))
                : String.valueOf(value);
            if (!what.equals("values") || !key.startsWith("ssl.") && !key.startsWith("sasl.")) {
                ANSWER.append(String.join("\t", file, flow.toString(), what, key, text)).append('\n');
            }
        }
    }
}
