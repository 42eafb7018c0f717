import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.Field;
import java.lang.reflect.Method;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.PriorityQueue;
import java.util.Set;
import java.util.function.Supplier;
import kafka.server.ClientRequestQuotaManager;
import org.apache.kafka.common.MetricName;
import org.apache.kafka.common.errors.ThrottlingQuotaExceededException;
import org.apache.kafka.common.metrics.JmxReporter;
import org.apache.kafka.common.metrics.KafkaMetric;
import org.apache.kafka.common.metrics.MetricConfig;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.metrics.Quota;
import org.apache.kafka.common.metrics.QuotaViolationException;
import org.apache.kafka.common.metrics.Sensor;
import org.apache.kafka.common.security.auth.KafkaPrincipal;
import org.apache.kafka.common.utils.Sanitizer;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.network.Session;
import org.apache.kafka.server.config.ClientQuotaManagerConfig;
import org.apache.kafka.server.quota.ClientQuotaEntity.ConfigEntity;
import org.apache.kafka.server.quota.ClientQuotaManager;
import org.apache.kafka.server.quota.ClientSensors;
import org.apache.kafka.server.quota.ControllerMutationQuota;
import org.apache.kafka.server.quota.ControllerMutationQuotaManager;
import org.apache.kafka.server.quota.QuotaType;
import org.apache.kafka.server.quota.QuotaUtils;
import org.apache.kafka.server.quota.ThrottleCallback;

import static java.nio.charset.StandardCharsets.UTF_8;

/**
 * Kafka's own quota managers, on a clock that is told the time. Each line of standard input is a trace, a JSON array of
 * the broker's settings and then operations; its answer is a JSON array with an object for each "record" and "metrics".
 *
 * A broker drops idle sensors every 30 s. Here that happens at start + 30 s * k, where start is the first time in the
 * trace, and before what is to happen in the same millisecond. Channels whose wait is over are released then, too.
 */
public class MeteringTraces {
    private static final long SWEEP_MS = 30_000;
    private static final Map<String, String> METRICS = Map.of(
        "producer_byte_rate", "byte-rate",
        "consumer_byte_rate", "byte-rate",
        "request_percentage", "request-time",
        "controller_mutation_rate", "tokens");
    private static final Map<String, QuotaType> TYPES = Map.of(
        "producer_byte_rate", QuotaType.PRODUCE,
        "consumer_byte_rate", QuotaType.FETCH,
        "request_percentage", QuotaType.REQUEST,
        "controller_mutation_rate", QuotaType.CONTROLLER_MUTATION);

    public static void main(String[] arguments) throws Exception {
        ObjectMapper json = new ObjectMapper();
        PrintStream answers = new PrintStream(System.out, true, UTF_8);
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            MeteringTraces broker = null;
            List<Object> found = new ArrayList<>();
            for (JsonNode operation : json.readTree(line)) {
                if (broker == null)
                    broker = new MeteringTraces(operation);
                else
                    broker.answer(operation).ifPresent(found::add);
            }
            broker.close();
            answers.println(json.writeValueAsString(found));
        }
    }

    private final Clock clock = new Clock();
    private final Metrics metrics = new Metrics(new MetricConfig(), new ArrayList<>(), clock);
    private final Map<String, ClientQuotaManager> managers = new HashMap<>();
    private final Set<String> sensors = new LinkedHashSet<>();
    private final Map<ClientQuotaManager, PriorityQueue<Long>> muted = new HashMap<>();
    private final long requestCapMs;
    private final ClientQuotaManagerConfig client;
    private final ClientQuotaManagerConfig controller;
    private long start = -1;
    private long swept;

    private MeteringTraces(JsonNode settings) {
        client = new ClientQuotaManagerConfig(
            settings.get("quota.window.num").asInt(), settings.get("quota.window.size.seconds").asInt());
        controller = new ClientQuotaManagerConfig(
            settings.get("controller.quota.window.num").asInt(),
            settings.get("controller.quota.window.size.seconds").asInt());
        requestCapMs = client.quotaWindowSizeSeconds() * 1000L;
    }

    private void close() {
        clock.isOver = true;
        managers.values().forEach(ClientQuotaManager::shutdown);
        metrics.close();
    }

    private ClientQuotaManager manager(String key) {
        return managers.computeIfAbsent(key, missing -> switch (missing) {
            case "request_percentage" -> new ClientRequestQuotaManager(client, metrics, clock, "", Optional.empty());
            case "controller_mutation_rate" ->
                new ControllerMutationQuotaManager(controller, metrics, clock, "", Optional.empty());
            default -> new ClientQuotaManager(client, metrics, TYPES.get(missing), clock, "");
        });
    }

    private Optional<Object> answer(JsonNode operation) throws ReflectiveOperationException {
        if (operation.has("t_ms"))
            advance(operation.get("t_ms").asLong());
        switch (operation.get("op").asText()) {
            case "quota" -> alter(operation);
            case "unrecord" -> unrecord(operation);
            case "record" -> {
                return Optional.of(record(operation));
            }
            case "record_no_throttle" -> recordNoThrottle(operation);
            case "exempt" -> exempt(operation);
            case "metrics" -> {
                return Optional.of(Map.of("t_ms", clock.now, "metrics", metrics()));
            }
            case "time" -> { }
            default -> throw new IllegalArgumentException(operation.toString());
        }
        return Optional.empty();
    }

    /** Only the last of the sweeps that are due can find more than those before it. */
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
        muted.forEach((manager, ends) -> {
            for (; !ends.isEmpty() && ends.peek() <= now; ends.remove())
                manager.processThrottledChannelReaperDoWork();
        });
    }

    /** As ClientQuotaMetadataManager hands it on. */
    private void alter(JsonNode operation) {
        JsonNode entity = operation.get("entity");
        Optional<ConfigEntity> user = part(entity, "user", ClientQuotaManager.DEFAULT_USER_ENTITY);
        Optional<ConfigEntity> clientId = part(entity, "client-id", ClientQuotaManager.DEFAULT_USER_CLIENT_ID);
        JsonNode value = operation.get("value");
        Optional<Quota> quota = value.isNull() ? Optional.empty() : Optional.of(new Quota(value.asDouble(), true));
        manager(operation.get("key").asText()).updateQuota(user, clientId, quota);
    }

    private static Optional<ConfigEntity> part(JsonNode entity, String type, ConfigEntity byDefault) {
        if (!entity.has(type))
            return Optional.empty();
        if (entity.get(type).isNull())
            return Optional.of(byDefault);
        String name = entity.get(type).asText();
        return Optional.of(type.equals("user")
            ? new ClientQuotaManager.UserEntity(Sanitizer.sanitize(name))
            : new ClientQuotaManager.ClientIdEntity(name));
    }

    private static Session session(JsonNode operation) {
        return new Session(new KafkaPrincipal(KafkaPrincipal.USER_TYPE, operation.get("user").asText()), null);
    }

    /** Whether any quotas are set or not: a broker does not ask either. */
    private void unrecord(JsonNode operation) {
        ClientQuotaManager manager = manager(operation.get("key").asText());
        String clientId = operation.get("client-id").asText();
        sensorsFor(manager, session(operation), clientId);
        manager.unrecordQuotaSensor(session(operation), clientId, operation.get("value").asDouble(), clock.now);
    }

    private ClientSensors sensorsFor(ClientQuotaManager manager, Session session, String clientId) {
        ClientSensors found = manager.getOrCreateQuotaSensors(session, clientId);
        sensors.add(found.quotaSensor().name());
        sensors.add(found.throttleTimeSensor().name());
        return found;
    }

    private Map<String, Object> record(JsonNode operation) {
        String key = operation.get("key").asText();
        ClientQuotaManager manager = manager(key);
        Session session = session(operation);
        String clientId = operation.get("client-id").asText();
        double amount = operation.get("value").asDouble();
        boolean strict = operation.path("strict").asBoolean();

        Map<String, String> tags = manager.quotasEnabled()
            ? sensorsFor(manager, session, clientId).metricTags()
            : Map.of();
        Map<String, Object> answer = new LinkedHashMap<>();
        answer.put("t_ms", clock.now);
        answer.put("meter", meter(tags));
        boolean rejected = false;
        int throttleMs;
        if (manager instanceof ControllerMutationQuotaManager mutations) {
            ControllerMutationQuota quota = strict
                ? mutations.newStrictQuotaFor(session, clientId)
                : mutations.newPermissiveQuotaFor(session, clientId);
            try {
                quota.record(amount);
            } catch (ThrottlingQuotaExceededException e) {
                rejected = true;
            }
            throttleMs = quota.throttleTime();
        } else {
            throttleMs = manager.maybeRecordAndGetThrottleTimeMs(session, clientId, amount, clock.now);
        }
        Double limit = null;
        Double value = null;
        long unboundedMs = 0;
        if (manager.quotasEnabled()) {
            KafkaMetric metric = metrics.metric(
                metrics.metricName(METRICS.get(key), TYPES.get(key).toString(), "", tags));
            // Measuring twice in one millisecond changes nothing: the second finds all purged, and refilled.
            value = metric.measurable().measure(metric.config(), clock.now);
            double bound = metric.config().quota().bound();
            if (bound != Long.MAX_VALUE)
                limit = bound;
            unboundedMs = unboundedMs(metric, value, strict && !rejected);
            check(key, throttleMs, unboundedMs);
            // Where it would be cut to 32 bits, the longest that they can say is told instead.
            throttle(manager, session, clientId,
                key.equals("request_percentage") ? throttleMs : (int) Math.min(unboundedMs, Integer.MAX_VALUE));
        }
        answer.put("limit", limit);
        answer.put("value", value);
        answer.put("throttle_ms", throttleMs);
        answer.put("unbounded_throttle_ms", unboundedMs);
        if (strict)
            answer.put("rejected", rejected);
        return answer;
    }

    private void recordNoThrottle(JsonNode operation) {
        ClientQuotaManager manager = manager(operation.get("key").asText());
        if (manager.quotasEnabled()) {
            Session session = session(operation);
            String clientId = operation.get("client-id").asText();
            sensorsFor(manager, session, clientId);
            manager.recordNoThrottle(session, clientId, operation.get("value").asDouble());
        }
    }

    /** As ClientRequestQuotaManager.maybeRecordExempt, which wants a whole request. */
    private void exempt(JsonNode operation) {
        ClientRequestQuotaManager manager = (ClientRequestQuotaManager) manager("request_percentage");
        if (manager.quotasEnabled())
            manager.exemptSensor().record(operation.get("value").asDouble());
    }

    /** As RequestHandlerHelper. */
    private void throttle(ClientQuotaManager manager, Session session, String clientId, int throttleMs) {
        manager.throttle(clientId, session, new ThrottleCallback() {
            @Override
            public void startThrottling() {
                muted.computeIfAbsent(manager, first -> new PriorityQueue<>()).add(clock.now + throttleMs);
            }

            @Override
            public void endThrottling() { }
        }, throttleMs);
    }

    /** All that there are of the client quotas' groups, with their sensors and MBeans. */
    private List<Object> metrics() throws ReflectiveOperationException {
        TYPES.keySet().forEach(this::manager);
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
                if (TYPES.values().stream().noneMatch(type -> type.toString().equals(name.group())))
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

    private static Map<String, String> meter(Map<String, String> tags) {
        Map<String, String> meter = new LinkedHashMap<>();
        tags.forEach((tag, value) -> {
            if (!value.isEmpty())
                meter.put(tag, tag.equals("user") ? Sanitizer.desanitize(value) : value);
        });
        return meter;
    }

    /** By Kafka's formulas, before they are capped and cut to 32 bits. */
    private long unboundedMs(KafkaMetric metric, double value, boolean accepted) {
        Quota quota = metric.config().quota();
        QuotaViolationException violation = new QuotaViolationException(metric, value, quota.bound());
        if (metric.metricName().name().equals("tokens"))
            return value < 0 && !accepted ? ControllerMutationQuotaManager.throttleTimeMs(violation) : 0;
        return quota.acceptable(value) ? 0 : QuotaUtils.throttleTime(violation, clock.now);
    }

    /** What was worked out here agrees with what the manager said. */
    private void check(String key, int throttleMs, long unboundedMs) {
        int expected = switch (key) {
            case "request_percentage" -> (int) Math.min(unboundedMs, requestCapMs);
            case "controller_mutation_rate" -> Math.max(0, (int) unboundedMs);
            default -> (int) unboundedMs;
        };
        if (throttleMs != expected)
            throw new IllegalStateException(key + ": " + throttleMs + ", but " + unboundedMs + " without its bounds");
    }

    private static final class Clock implements Time {
        private volatile long now;
        private volatile boolean isOver;

        @Override
        public long milliseconds() {
            return now;
        }

        /** It stands still for the threads that would release channels whenever they get to it. */
        @Override
        public long nanoseconds() {
            boolean isReaper = Thread.currentThread().getName().contains("ThrottledChannelReaper");
            return isReaper && !isOver ? 0 : now * 1_000_000;
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
