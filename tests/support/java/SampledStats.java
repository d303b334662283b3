import java.util.concurrent.TimeUnit;
import org.apache.kafka.common.metrics.MeasurableStat;
import org.apache.kafka.common.metrics.MetricConfig;
import org.apache.kafka.common.metrics.stats.Avg;
import org.apache.kafka.common.metrics.stats.Max;
import org.apache.kafka.common.metrics.stats.Min;
import org.apache.kafka.common.metrics.stats.Rate;
import org.apache.kafka.common.metrics.stats.Value;

/**
 * What Kafka's metrics with two samples of 30 seconds, MirrorMaker's, make of values noted at certain times.
 *
 * Each argument is MILLISECONDS=VALUE, to be noted, or MILLISECONDS, to be read; for each reading a line with the rate of
 * the values, then the last, least, greatest and mean one.
 */
public class SampledStats {
    public static void main(String[] arguments) {
        MetricConfig config = new MetricConfig().samples(2).timeWindow(30, TimeUnit.SECONDS);
        MeasurableStat[] stats = {new Rate(), new Value(), new Min(), new Max(), new Avg()};
        for (String argument : arguments) {
            String[] words = argument.split("=");
            long now = Long.parseLong(words[0]);
            if (words.length > 1) {
                for (MeasurableStat stat : stats) {
                    stat.record(config, Double.parseDouble(words[1]), now);
                }
                continue;
            }
            StringBuilder line = new StringBuilder();
            for (MeasurableStat stat : stats) {
                line.append(stat.measure(config, now)).append(' ');
            }
            System.out.println(line.toString().trim());
        }
    }
}
