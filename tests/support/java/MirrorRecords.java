import java.io.ByteArrayOutputStream;
import java.io.PrintStream;
import java.time.Duration;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.MessageFormatter;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/**
 * What Kafka's own formatters (KIP-597) print for the records of MirrorMaker 2's topics:
 * BOOTSTRAP KIND:TOPIC ... with KIND one of Heartbeat, Checkpoint, OffsetSync.
 *
 * Each line holds the topic, the record's offset and the formatter's text, with tabulators between them.
 */
public class MirrorRecords {
    public static void main(String[] arguments) throws Exception {
        Map<String, Object> settings = new HashMap<>();
        settings.put("bootstrap.servers", arguments[0]);
        settings.put("auto.offset.reset", "earliest");
        settings.put("isolation.level", "read_committed");
        try (KafkaConsumer<byte[], byte[]> consumer =
                 new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            for (int at = 1; at < arguments.length; at++) {
                String[] words = arguments[at].split(":", 2);
                print(consumer, words[1], formatter(words[0]));
            }
        }
    }

    private static MessageFormatter formatter(String kind) throws Exception {
        String name = "org.apache.kafka.connect.mirror.formatters." + kind + "Formatter";
        return (MessageFormatter) Class.forName(name).getDeclaredConstructor().newInstance();
    }

    private static void print(KafkaConsumer<byte[], byte[]> consumer, String topic, MessageFormatter formatter)
            throws Exception {
        TopicPartition partition = new TopicPartition(topic, 0);
        consumer.assign(List.of(partition));
        consumer.seekToBeginning(List.of(partition));
        long end = consumer.endOffsets(List.of(partition)).get(partition);
        while (consumer.position(partition) < end) {
            for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofSeconds(1))) {
                ByteArrayOutputStream text = new ByteArrayOutputStream();
                formatter.writeTo(record, new PrintStream(text, true, "UTF-8"));
                System.out.print(topic + "\t" + record.offset() + "\t" + text.toString("UTF-8"));
            }
        }
    }
}
