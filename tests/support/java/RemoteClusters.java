import java.time.Duration;
import java.util.HashMap;
import java.util.Map;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.regex.Pattern;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.connect.mirror.MirrorClient;
import org.apache.kafka.connect.mirror.RemoteClusterUtils;

/**
 * Java's own client library for mirrored clusters, one question for each argument:
 * BOOTSTRAP [KEY=VALUE ...] -- QUESTION ...
 *
 * A question is heartbeat-topics, checkpoint-topics, upstream-clusters, remote-topics, hops:ALIAS, remote-topics:ALIAS,
 * offsets:ALIAS:GROUP or matching:ALIAS:REGEX. Each line of the answer begins with the question and a tabulator.
 */
public class RemoteClusters {
    public static void main(String[] arguments) throws Exception {
        Map<String, Object> settings = new HashMap<>();
        settings.put("bootstrap.servers", arguments[0]);
        int at = 1;
        for (; !arguments[at].equals("--"); at++) {
            String[] pair = arguments[at].split("=", 2);
            settings.put(pair[0], pair[1]);
        }
        for (at++; at < arguments.length; at++) {
            answer(settings, arguments[at]);
        }
    }

    private static void answer(Map<String, Object> settings, String question) throws Exception {
        String[] words = question.split(":", 3);
        Duration limit = Duration.ofSeconds(30);
        switch (words[0]) {
            case "heartbeat-topics" -> print(question, new TreeSet<>(RemoteClusterUtils.heartbeatTopics(settings)));
            case "checkpoint-topics" -> print(question, new TreeSet<>(RemoteClusterUtils.checkpointTopics(settings)));
            case "upstream-clusters" -> print(question, new TreeSet<>(RemoteClusterUtils.upstreamClusters(settings)));
            case "hops" -> System.out.println(question + "\t" + RemoteClusterUtils.replicationHops(settings, words[1]));
            case "remote-topics" -> {
                try (MirrorClient client = new MirrorClient(settings)) {
                    print(question,
                        new TreeSet<>(words.length == 1 ? client.remoteTopics() : client.remoteTopics(words[1])));
                }
            }
            case "offsets" -> print(question, words[2],
                RemoteClusterUtils.translateOffsets(settings, words[1], words[2], limit));
            case "matching" -> new TreeMap<>(
                RemoteClusterUtils.translateOffsets(settings, words[1], Pattern.compile(words[2]), limit))
                .forEach((group, offsets) -> print(question, group, offsets));
            default -> throw new IllegalArgumentException(question);
        }
    }

    private static void print(String question, Iterable<String> names) {
        for (String name : names) {
            System.out.println(question + "\t" + name);
        }
    }

    private static void print(String question, String group, Map<TopicPartition, OffsetAndMetadata> offsets) {
        Map<String, OffsetAndMetadata> sorted = new TreeMap<>();
        offsets.forEach((partition, offset) -> sorted.put(partition.toString(), offset));
        sorted.forEach((partition, offset) -> System.out.println(
            String.join("\t", question, group, partition, Long.toString(offset.offset()), offset.metadata())));
    }
}
