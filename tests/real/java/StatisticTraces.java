import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.common.metrics.MeasurableStat;
import org.apache.kafka.common.metrics.MetricConfig;
import org.apache.kafka.common.metrics.Quota;
import org.apache.kafka.common.metrics.stats.Rate;
import org.apache.kafka.common.metrics.stats.TokenBucket;

import static java.nio.charset.StandardCharsets.UTF_8;

/**
 * Kafka's own statistics, one at a time and in any unit. Each line of standard input is a trace: the statistic, its unit
 * and windows, and steps. Its answer is what is measured after each step.
 */
public class StatisticTraces {
    public static void main(String[] arguments) throws Exception {
        ObjectMapper json = new ObjectMapper();
        PrintStream answers = new PrintStream(System.out, true, UTF_8);
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            JsonNode trace = json.readTree(line);
            TimeUnit unit = TimeUnit.valueOf(trace.get("unit").asText());
            MeasurableStat statistic = switch (trace.get("statistic").asText()) {
                case "rate" -> new Rate(unit);
                case "bucket" -> new TokenBucket(unit);
                default -> throw new IllegalArgumentException(line);
            };
            List<Double> measured = new ArrayList<>();
            for (JsonNode step : trace.get("steps")) {
                MetricConfig config = new MetricConfig()
                    .samples(trace.get("samples").asInt())
                    .timeWindow(trace.get("window_ms").asLong(), TimeUnit.MILLISECONDS);
                if (!step.get("limit").isNull())
                    config.quota(new Quota(step.get("limit").asDouble(), true));
                long now = step.get("t_ms").asLong();
                if (!step.get("value").isNull())
                    statistic.record(config, step.get("value").asDouble(), now);
                measured.add(statistic.measure(config, now));
            }
            answers.println(json.writeValueAsString(measured));
        }
    }
}
