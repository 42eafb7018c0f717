import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.Map;
import java.util.Optional;
import java.util.function.Supplier;
import org.apache.kafka.common.Cluster;
import org.apache.kafka.common.internals.Plugin;
import org.apache.kafka.common.metrics.MetricConfig;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.metrics.Quota;
import org.apache.kafka.common.security.auth.KafkaPrincipal;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.network.Session;
import org.apache.kafka.server.config.ClientQuotaManagerConfig;
import org.apache.kafka.server.quota.ClientQuotaCallback;
import org.apache.kafka.server.quota.ClientQuotaEntity;
import org.apache.kafka.server.quota.ClientQuotaManager;
import org.apache.kafka.server.quota.ClientQuotaType;
import org.apache.kafka.server.quota.QuotaType;

import static java.nio.charset.StandardCharsets.UTF_8;

/**
 * Nanoseconds that Kafka's own manager takes for a decision. Each line of standard input is one measurement: its kind, the
 * number of users whose meters are there, the limit of each, and the records to time, of which ten come in a millisecond.
 */
public class MeteringSpeed {
    private static final long START_MS = 1_700_000_000_000L;

    public static void main(String[] arguments) throws Exception {
        ObjectMapper json = new ObjectMapper();
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            JsonNode asked = json.readTree(line);
            double ns = nsPerRecord(
                asked.get("kind").asText(),
                asked.get("meters").asInt(),
                asked.get("limit").asDouble(),
                asked.get("records").asInt());
            System.out.println(json.writeValueAsString(Map.of("ns", ns)));
            System.out.flush();
        }
    }

    private static double nsPerRecord(String kind, int meters, double limit, int records) {
        Clock clock = new Clock();
        Metrics metrics = new Metrics(new MetricConfig(), new ArrayList<>(), clock);
        Optional<Plugin<ClientQuotaCallback>> callback = kind.equals("with a callback")
            ? Optional.of(Plugin.wrapInstance(new ByUser(limit), metrics, "client.quota.callback.class"))
            : Optional.empty();
        ClientQuotaManager manager =
            new ClientQuotaManager(new ClientQuotaManagerConfig(11, 1), metrics, QuotaType.PRODUCE, clock, "", callback);
        manager.updateQuota(
            Optional.of(ClientQuotaManager.DEFAULT_USER_ENTITY), Optional.empty(), Optional.of(new Quota(limit, true)));
        boolean areNew = kind.equals("a new meter");
        Session[] sessions = new Session[areNew ? records : meters];
        for (int i = 0; i < sessions.length; i++) {
            sessions[i] = new Session(new KafkaPrincipal(KafkaPrincipal.USER_TYPE, "user-" + i), null);
            if (!areNew)
                manager.maybeRecordAndGetThrottleTimeMs(sessions[i], "client", 1, START_MS);
        }
        long throttled = 0;
        long started = System.nanoTime();
        for (int i = 0; i < records; i++) {
            clock.now = areNew ? START_MS : START_MS + i / 10;
            throttled += manager.maybeRecordAndGetThrottleTimeMs(sessions[i % sessions.length], "client", 100.0, clock.now);
        }
        double ns = (System.nanoTime() - started) / (double) records;
        manager.shutdown();
        metrics.close();
        if (throttled < 0)
            throw new IllegalStateException("throttle times overflowed");
        return ns;
    }

    /** The simplest of one's own. */
    private record ByUser(double limit) implements ClientQuotaCallback {
        @Override
        public void configure(Map<String, ?> configs) {
        }

        @Override
        public Map<String, String> quotaMetricTags(ClientQuotaType type, KafkaPrincipal principal, String clientId) {
            return Map.of("user", principal.getName());
        }

        @Override
        public Double quotaLimit(ClientQuotaType type, Map<String, String> tags) {
            return limit;
        }

        @Override
        public void updateQuota(ClientQuotaType type, ClientQuotaEntity entity, double value) {
        }

        @Override
        public void removeQuota(ClientQuotaType type, ClientQuotaEntity entity) {
        }

        @Override
        public boolean quotaResetRequired(ClientQuotaType type) {
            return false;
        }

        @Override
        public boolean updateClusterMetadata(Cluster cluster) {
            return false;
        }

        @Override
        public void close() {
        }
    }

    private static final class Clock implements Time {
        private volatile long now = START_MS;

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
