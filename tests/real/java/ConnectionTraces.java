import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.net.InetAddress;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.Set;
import java.util.function.Supplier;
import kafka.network.ConnectionQuotas;
import kafka.server.KafkaConfig;
import org.apache.kafka.common.MetricName;
import org.apache.kafka.common.metrics.JmxReporter;
import org.apache.kafka.common.metrics.KafkaMetric;
import org.apache.kafka.common.metrics.MetricConfig;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.metrics.Sensor;
import org.apache.kafka.common.network.ListenerName;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.network.ConnectionThrottledException;
import scala.Option;

import static java.nio.charset.StandardCharsets.UTF_8;

/**
 * Kafka's own connection quotas, on a clock that is told the time. Each line of standard input is a trace, a JSON array
 * of the broker's settings and then operations; its answer is a JSON array with an object for each "record" and
 * "metrics". Idle sensors are dropped as MeteringTraces drops them.
 */
public class ConnectionTraces {
    private static final long SWEEP_MS = 30_000;
    private static final String GROUP = "socket-server-metrics";

    public static void main(String[] arguments) throws Exception {
        ObjectMapper json = new ObjectMapper();
        PrintStream answers = new PrintStream(System.out, true, UTF_8);
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            ConnectionTraces broker = null;
            List<Object> found = new ArrayList<>();
            for (JsonNode operation : json.readTree(line)) {
                if (broker == null)
                    broker = new ConnectionTraces(operation);
                else
                    broker.answer(operation).ifPresent(found::add);
            }
            broker.quotas.close();
            broker.metrics.close();
            answers.println(json.writeValueAsString(found));
        }
    }

    private final Clock clock = new Clock();
    private final Metrics metrics = new Metrics(new MetricConfig(), new ArrayList<>(), clock);
    private final KafkaConfig config;
    private final ConnectionQuotas quotas;
    private final Set<String> sensors = new LinkedHashSet<>();
    private long start = -1;
    private long swept;

    private ConnectionTraces(JsonNode settings) {
        Properties properties = new Properties();
        properties.put("process.roles", "broker");
        properties.put("node.id", "1");
        properties.put("controller.quorum.voters", "2@localhost:1");
        properties.put("controller.listener.names", "CONTROLLER");
        // Connections of the brokers' own listener do not count for the whole broker: no trace has any.
        properties.put("listeners", "PLAINTEXT://localhost:0,OTHER://localhost:2,BROKERS://localhost:3");
        properties.put("inter.broker.listener.name", "BROKERS");
        properties.put("listener.security.protocol.map",
            "PLAINTEXT:PLAINTEXT,OTHER:PLAINTEXT,BROKERS:PLAINTEXT,CONTROLLER:PLAINTEXT");
        properties.put("quota.window.num", settings.get("quota.window.num").asText());
        properties.put("quota.window.size.seconds", settings.get("quota.window.size.seconds").asText());
        config = KafkaConfig.fromProps(properties, false);
        quotas = new ConnectionQuotas(config, clock, metrics);
    }

    private Optional<Object> answer(JsonNode operation) throws Exception {
        if (operation.has("t_ms"))
            advance(operation.get("t_ms").asLong());
        switch (operation.get("op").asText()) {
            case "quota" -> alter(operation);
            case "record" -> {
                return Optional.of(accept(operation));
            }
            case "metrics" -> {
                return Optional.of(Map.of("t_ms", clock.now, "metrics", metrics()));
            }
            case "time" -> { }
            default -> throw new IllegalArgumentException(operation.toString());
        }
        return Optional.empty();
    }

    private void advance(long now) {
        if (start < 0)
            start = swept = now;
        long due = now - (now - start) % SWEEP_MS;
        if (due > swept) {
            clock.now = swept = due;
            for (String name : sensors) {
                Sensor sensor = metrics.getSensor(name);
                if (sensor != null && sensor.hasExpired())
                    metrics.removeSensor(name);
            }
        }
        clock.now = now;
    }

    /** As ClientQuotaMetadataManager hands it on. */
    private void alter(JsonNode operation) throws Exception {
        JsonNode ip = operation.get("entity").get("ip");
        JsonNode value = operation.get("value");
        Option<InetAddress> address = Option.apply(ip.isNull() ? null : InetAddress.getByName(ip.asText()));
        quotas.updateIpConnectionRateQuota(address, Option.apply(value.isNull() ? null : (Object) (int) value.asDouble()));
    }

    private Map<String, Object> accept(JsonNode operation) throws Exception {
        ListenerName listener = new ListenerName(operation.get("listener").asText());
        InetAddress address = InetAddress.getByName(operation.get("ip").asText());
        quotas.addListener(config, listener);
        String sensor = "Connection-Accept-Rate-" + address.getHostAddress();
        sensors.add(sensor);
        long throttleMs = 0;
        try {
            quotas.inc(listener, address, null);
            quotas.dec(listener, address);
        } catch (ConnectionThrottledException e) {
            throttleMs = e.throttleTimeMs;
        }
        Double limit = null;
        Double value = null;
        if (metrics.getSensor(sensor) != null) {
            KafkaMetric metric = metrics.metric(
                metrics.metricName("connection-accept-rate", GROUP, "", Map.of("ip", address.getHostAddress())));
            value = metric.measurable().measure(metric.config(), clock.now);
            double bound = metric.config().quota().bound();
            if (bound != Integer.MAX_VALUE)
                limit = bound;
        }
        Map<String, Object> answer = new LinkedHashMap<>();
        answer.put("t_ms", clock.now);
        answer.put("limit", limit);
        answer.put("value", value);
        answer.put("throttle_ms", throttleMs);
        answer.put("rejected", throttleMs > 0);
        return answer;
    }

    /** All that there are of the group, with their sensors and MBeans. */
    private List<Object> metrics() throws ReflectiveOperationException {
        Field ofRegistry = Metrics.class.getDeclaredField("sensors");
        Method ofSensor = Sensor.class.getDeclaredMethod("metrics");
        Method objectName = JmxReporter.class.getDeclaredMethod("getMBeanName", String.class, MetricName.class);
        ofRegistry.setAccessible(true);
        ofSensor.setAccessible(true);
        objectName.setAccessible(true);
        List<Object> found = new ArrayList<>();
        for (Object sensor : ((Map<?, ?>) ofRegistry.get(metrics)).values()) {
            for (Object one : (List<?>) ofSensor.invoke(sensor)) {
                KafkaMetric metric = (KafkaMetric) one;
                MetricName name = metric.metricName();
                if (!name.group().equals(GROUP))
                    continue;
                Map<String, Object> shown = new LinkedHashMap<>();
                shown.put("group", name.group());
                shown.put("name", name.name());
                shown.put("tags", name.tags());
                shown.put("description", name.description());
                shown.put("sensor", ((Sensor) sensor).name());
                shown.put("value", metric.metricValue());
                shown.put("object_name", objectName.invoke(null, "kafka.server", name));
                found.add(shown);
            }
        }
        return found;
    }

    private static final class Clock implements Time {
        private volatile long now;

        @Override
        public long milliseconds() {
            return now;
        }

        @Override
        public long nanoseconds() {
            return now * 1_000_000;
        }

        @Override
        public void sleep(long ms) {
            throw new UnsupportedOperationException();
        }

        @Override
        public void waitObject(Object object, Supplier<Boolean> condition, long deadlineMs) {
            throw new UnsupportedOperationException();
        }
    }
}
