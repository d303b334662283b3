import java.lang.reflect.Constructor;
import java.lang.reflect.Method;
import java.util.HashMap;
import java.util.Map;
import java.util.OptionalLong;
import org.apache.kafka.common.TopicPartition;

/**
 * What MirrorMaker 2's own OffsetSyncStore makes of an offset syncs topic:
 * BOOTSTRAP LOCATION TOPIC PARTITION OFFSET ... in a flow A->B whose two clusters are at BOOTSTRAP.
 *
 * Each line holds the translation of an offset, or "none".
 */
public class SyncStore {
    private static final String PACKAGE = "org.apache.kafka.connect.mirror.";

    public static void main(String[] arguments) throws Exception {
        Map<String, String> settings = new HashMap<>();
        settings.put("name", "MirrorCheckpointConnector");
        settings.put("connector.class", PACKAGE + "MirrorCheckpointConnector");
        settings.put("source.cluster.alias", "A");
        settings.put("target.cluster.alias", "B");
        settings.put("source.cluster.bootstrap.servers", arguments[0]);
        settings.put("target.cluster.bootstrap.servers", arguments[0]);
        settings.put("offset-syncs.topic.location", arguments[1]);
        settings.put("task.assigned.groups", "any");
        settings.put("task.index", "0");
        Class<?> config = Class.forName(PACKAGE + "MirrorCheckpointTaskConfig");
        Class<?> store = Class.forName(PACKAGE + "OffsetSyncStore");
        Constructor<?> makeConfig = config.getDeclaredConstructor(Map.class);
        makeConfig.setAccessible(true);
        Constructor<?> make = store.getDeclaredConstructor(Class.forName(PACKAGE + "MirrorCheckpointConfig"));
        make.setAccessible(true);
        Method start = store.getDeclaredMethod("start", boolean.class);
        Method translate =
            store.getDeclaredMethod("translateDownstream", String.class, TopicPartition.class, long.class);
        Method close = store.getDeclaredMethod("close");
        for (Method method : new Method[] {start, translate, close}) {
            method.setAccessible(true);
        }
        Object syncs = make.newInstance(makeConfig.newInstance(settings));
        start.invoke(syncs, false);
        TopicPartition partition = new TopicPartition(arguments[2], Integer.parseInt(arguments[3]));
        for (int at = 4; at < arguments.length; at++) {
            OptionalLong answer = (OptionalLong) translate.invoke(syncs, "any", partition, Long.parseLong(arguments[at]));
            System.out.println(answer.isPresent() ? Long.toString(answer.getAsLong()) : "none");
        }
        close.invoke(syncs);
    }
}
