import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.time.Duration;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Random;
import java.util.TreeMap;
import java.util.concurrent.Callable;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.CreatePartitionsOptions;
import org.apache.kafka.clients.admin.CreateTopicsOptions;
import org.apache.kafka.clients.admin.DeleteTopicsOptions;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaFuture;
import org.apache.kafka.common.Metric;
import org.apache.kafka.common.MetricName;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.ThrottlingQuotaExceededException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Real Kafka clients, each on a thread of its own, as a JSON object on standard input says; prints a JSON array with
 * what each of them counted. Run by capture.py: {@code java -cp 'JARS/*' Workload.java < plan.json}.
 *
 * <p>The plan: {@code bootstrap}, {@code sasl} (addresses), {@code seconds}, {@code seed}, {@code topics} (name to
 * partitions, created first), {@code prefill} (topic to bytes, written first), {@code clients}: see workload.yaml.
 */
public final class Workload {
    private static final ObjectMapper JSON = new ObjectMapper();

    /** One client of the plan, and what all kinds of clients need. */
    private record Client(JsonNode spec, JsonNode plan, Start start, Random random) {
        String text(String field) {
            return spec.get(field).asText();
        }

        int number(String field, int otherwise) {
            return spec.path(field).asInt(otherwise);
        }

        boolean running() {
            return System.nanoTime() < deadlineNanos();
        }

        long deadlineNanos() {
            return start.nanos + (long) (plan.get("seconds").asDouble() * 1e9);
        }

        /** Whether a client with bursts is in one: {@code burst: [on, off]} in seconds, from the start. */
        boolean active(long startNanos) {
            return untilActive(startNanos, System.nanoTime()) == 0;
        }

        /** From a time to the burst that comes next; 0 in one. */
        long untilActive(long startNanos, long nanos) {
            if (!spec.has("burst")) {
                return 0;
            }
            long on = (long) (spec.get("burst").get(0).asDouble() * 1e9);
            long cycle = on + (long) (spec.get("burst").get(1).asDouble() * 1e9);
            long since = (nanos - startNanos) % cycle;
            return since < on ? 0 : cycle - since;
        }

        /** With {@code work: [amount, pause]}: rests for the pause once so much was done; true if it was. */
        boolean rested(long done) throws InterruptedException {
            if (!spec.has("work") || done < spec.get("work").get(0).asLong()) {
                return false;
            }
            long until = System.nanoTime() + (long) (spec.get("work").get(1).asDouble() * 1e9);
            sleepUntil(Math.min(until, deadlineNanos()));
            return true;
        }

        Properties properties() {
            Properties properties = new Properties();
            properties.put("bootstrap.servers", plan.get("sasl").asText());
            properties.put("security.protocol", "SASL_PLAINTEXT");
            properties.put("client.id", text("client_id"));
            if (spec.has("password")) {
                properties.put("sasl.mechanism", "SCRAM-SHA-256");
                properties.put("sasl.jaas.config", String.format(
                    "org.apache.kafka.common.security.scram.ScramLoginModule required username=\"%s\" password=\"%s\";",
                    text("user"), text("password")));
            } else {
                properties.put("sasl.mechanism", "OAUTHBEARER");
                properties.put("sasl.jaas.config", String.format(
                    "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"
                        + " unsecuredLoginStringClaim_sub=\"%s\";", text("user")));
            }
            spec.path("config").properties().forEach(e -> properties.put(e.getKey(), e.getValue().asText()));
            return properties;
        }
    }

    /** All clients connect, however long that takes, and then begin at the same time. */
    private static final class Start {
        private final CountDownLatch connecting;
        private volatile long nanos;

        Start(int clients) {
            connecting = new CountDownLatch(clients);
        }

        /** The time at which all begin; waits until all are connected. */
        long await() throws InterruptedException {
            synchronized (this) {
                nanos = System.nanoTime(); // the last to come decides
                connecting.countDown();
            }
            connecting.await();
            return nanos;
        }
    }

    public static void main(String[] arguments) throws Exception {
        JsonNode plan = JSON.readTree(System.in);
        prepare(plan);
        Start start = new Start(plan.get("clients").size());
        List<Callable<Map<String, Object>>> tasks = new ArrayList<>();
        for (JsonNode spec : plan.get("clients")) {
            String name = spec.get("user").asText() + "/" + spec.get("client_id").asText();
            Random random = new Random(plan.get("seed").asLong() ^ name.hashCode());
            Client client = new Client(spec, plan, start, random);
            tasks.add(() -> run(client));
        }
        var threads = Executors.newFixedThreadPool(Math.max(tasks.size(), 1));
        List<Map<String, Object>> counted = new ArrayList<>();
        for (Future<Map<String, Object>> done : threads.invokeAll(tasks)) {
            counted.add(done.get());
        }
        threads.shutdown();
        System.out.println(JSON.writerWithDefaultPrettyPrinter().writeValueAsString(counted));
    }

    /** Topics and their first contents, over the listener without users, before anything is measured. */
    private static void prepare(JsonNode plan) throws Exception {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", plan.get("bootstrap").asText());
        properties.put("client.id", "prepare");
        try (Admin admin = Admin.create(properties)) {
            List<NewTopic> topics = new ArrayList<>();
            plan.path("topics").properties().forEach(
                e -> topics.add(new NewTopic(e.getKey(), e.getValue().asInt(), (short) 1)));
            if (!topics.isEmpty()) {
                admin.createTopics(topics).all().get();
            }
        }
        properties.put("batch.size", "65536");
        properties.put("linger.ms", "20");
        if (plan.path("prefill").isEmpty()) {
            return;
        }
        try (var producer = new KafkaProducer<>(properties, new ByteArraySerializer(), new ByteArraySerializer())) {
            Random random = new Random(plan.get("seed").asLong());
            for (Map.Entry<String, JsonNode> topic : plan.get("prefill").properties()) {
                for (long left = topic.getValue().asLong(); left > 0; left -= 1000) {
                    producer.send(new ProducerRecord<>(topic.getKey(), bytes(random, 1000)));
                }
            }
            producer.flush();
        }
    }

    private static Map<String, Object> run(Client client) throws Exception {
        Map<String, Object> counted = new LinkedHashMap<>();
        counted.put("user", client.text("user"));
        counted.put("client_id", client.text("client_id"));
        counted.put("kind", client.text("kind"));
        switch (client.text("kind")) {
            case "produce" -> produce(client, counted);
            case "fetch" -> fetch(client, counted);
            case "create-topics" -> createTopics(client, counted);
            case "ask" -> ask(client, counted);
            default -> throw new IllegalArgumentException("no such kind of client: " + client.text("kind"));
        }
        return counted;
    }

    /**
     * Sends records of about {@code record_bytes}: {@code records_per_s} of them, or as many as it may. The former
     * keeps to its schedule: what was held up is sent later. With {@code work} it waits for so many records to be
     * acknowledged, and then pauses.
     */
    private static void produce(Client client, Map<String, Object> counted) throws Exception {
        Properties properties = client.properties();
        properties.putIfAbsent("max.block.ms", "600000");
        properties.putIfAbsent("delivery.timeout.ms", "600000");
        properties.putIfAbsent("buffer.memory", "262144"); // so that little is left to send when time is up
        AtomicLong acknowledged = new AtomicLong();
        AtomicLong failed = new AtomicLong();
        long records = 0;
        long recordBytes = 0;
        int size = client.number("record_bytes", 1000);
        double perSecond = client.spec().path("records_per_s").asDouble(0);
        boolean waits = client.spec().path("waits_for_each").asBoolean(false);
        try (var producer = new KafkaProducer<>(properties, new ByteArraySerializer(), new ByteArraySerializer())) {
            producer.partitionsFor(client.text("topic")); // connects
            long start = client.start().await();
            long due = start;
            long rested = 0;
            while (client.running()) {
                if (perSecond > 0) {
                    due += (long) (1e9 / perSecond * (0.5 + client.random().nextDouble()));
                    due += client.untilActive(start, due);
                    sleepUntil(Math.min(due, client.deadlineNanos()));
                } else if (!client.active(start)) {
                    Thread.sleep(20);
                    continue;
                }
                byte[] value = bytes(client.random(), size / 2 + client.random().nextInt(size));
                var sent = producer.send(new ProducerRecord<>(client.text("topic"), value), (metadata, error) ->
                    (error == null ? acknowledged : failed).incrementAndGet());
                records++;
                recordBytes += value.length;
                if (waits) {
                    sent.get();
                }
                if (client.spec().has("work") && records - rested >= client.spec().get("work").get(0).asLong()) {
                    producer.flush();
                    client.rested(records - rested);
                    rested = records;
                }
            }
            producer.flush();
            count(counted, producer.metrics());
        }
        counted.put("records", records);
        counted.put("record_bytes", recordBytes);
        counted.put("acknowledged", acknowledged.get());
        counted.put("failed", failed.get());
    }

    /**
     * Reads a topic from its beginning: over and over with {@code rereads}, otherwise on to what comes in. With
     * {@code work} it reads so many bytes, and then pauses.
     */
    private static void fetch(Client client, Map<String, Object> counted) throws Exception {
        Properties properties = client.properties();
        properties.putIfAbsent("auto.offset.reset", "earliest");
        properties.putIfAbsent("enable.auto.commit", client.spec().path("config").has("group.id") ? "true" : "false");
        long records = 0;
        long recordBytes = 0;
        try (var consumer = new KafkaConsumer<>(properties, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            if (properties.containsKey("group.id")) {
                consumer.subscribe(List.of(client.text("topic")));
                while (consumer.assignment().isEmpty()) {
                    for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(50))) {
                        records++;
                        recordBytes += record.serializedValueSize();
                    }
                }
            } else {
                List<TopicPartition> partitions = new ArrayList<>();
                consumer.partitionsFor(client.text("topic"), Duration.ofMinutes(1))
                    .forEach(info -> partitions.add(new TopicPartition(info.topic(), info.partition())));
                consumer.assign(partitions);
                consumer.seekToBeginning(partitions);
            }
            long read = 0;
            long rested = 0;
            long start = client.start().await();
            while (client.running()) {
                if (!client.active(start)) {
                    Thread.sleep(20);
                    continue;
                }
                if (client.rested(recordBytes - rested)) {
                    rested = recordBytes;
                }
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(100))) {
                    records++;
                    recordBytes += record.serializedValueSize();
                    read += record.serializedValueSize();
                }
                if (read > client.number("rereads", Integer.MAX_VALUE)) {
                    read = 0;
                    consumer.seekToBeginning(consumer.assignment());
                }
            }
            count(counted, consumer.metrics());
        }
        counted.put("records", records);
        counted.put("record_bytes", recordBytes);
    }

    /**
     * Creates topics, grows and deletes some. What the quota refused the client repeats only with {@code repeats}. With
     * {@code work} it makes so many topics, and then pauses.
     */
    private static void createTopics(Client client, Map<String, Object> counted) throws Exception {
        Map<String, Long> outcomes = new TreeMap<>();
        List<String> made = new ArrayList<>();
        boolean repeats = client.spec().path("repeats").asBoolean(false);
        Properties properties = client.properties();
        properties.putIfAbsent("default.api.timeout.ms", repeats ? "600000" : "60000");
        long rested = 0;
        try (Admin admin = Admin.create(properties)) {
            admin.describeCluster().nodes().get(); // connects
            client.start().await();
            for (int round = 0; client.running(); round++) {
                String name = client.text("topic") + "-" + round;
                int partitions = 1 + client.random().nextInt(client.number("partitions", 4));
                var creating = admin.createTopics(List.of(new NewTopic(name, partitions, (short) 1)),
                    new CreateTopicsOptions().retryOnQuotaViolation(repeats).validateOnly(round % 10 == 9));
                if (tally(outcomes, "create", creating.all()) && round % 10 != 9) {
                    made.add(name);
                }
                if (round % 7 == 3 && !made.isEmpty()) {
                    var more = Map.of(made.get(made.size() - 1), NewPartitions.increaseTo(10));
                    var options = new CreatePartitionsOptions().retryOnQuotaViolation(repeats);
                    tally(outcomes, "grow", admin.createPartitions(more, options).all());
                }
                if (round % 7 == 5 && !made.isEmpty()) {
                    var options = new DeleteTopicsOptions().retryOnQuotaViolation(repeats);
                    tally(outcomes, "delete", admin.deleteTopics(List.of(made.remove(0)), options).all());
                }
                Thread.sleep(client.number("pause_ms", 50));
                if (client.rested(round + 1 - rested)) {
                    rested = round + 1;
                }
            }
            count(counted, admin.metrics());
        }
        counted.put("outcomes", outcomes);
    }

    private static boolean tally(Map<String, Long> outcomes, String what, KafkaFuture<Void> done) throws Exception {
        String outcome = "done";
        try {
            done.get();
        } catch (ExecutionException error) {
            if (!(error.getCause() instanceof ThrottlingQuotaExceededException)) {
                throw error;
            }
            outcome = "throttled";
        }
        outcomes.merge(what + "-" + outcome, 1L, Long::sum);
        return outcome.equals("done");
    }

    /** Small questions to the broker, one after the other. */
    private static void ask(Client client, Map<String, Object> counted) throws Exception {
        long asked = 0;
        try (Admin admin = Admin.create(client.properties())) {
            admin.describeCluster().nodes().get(); // connects
            client.start().await();
            for (; client.running(); asked++) {
                if (asked % 2 == 0) {
                    admin.describeTopics(List.of(client.text("topic"))).allTopicNames().get();
                } else {
                    admin.describeCluster().nodes().get();
                }
                Thread.sleep(client.number("pause_ms", 0));
            }
            count(counted, admin.metrics());
        }
        counted.put("asked", asked);
    }

    /** The client's own totals, and its averages and maxima of the throttle times that it was told. */
    private static void count(Map<String, Object> counted, Map<MetricName, ? extends Metric> metrics) {
        Map<String, Double> chosen = new TreeMap<>();
        metrics.forEach((name, metric) -> {
            boolean whole = !name.tags().containsKey("node-id") && !name.tags().containsKey("topic");
            boolean wanted = name.name().matches(
                "(outgoing-byte|incoming-byte|request|response|record-send|bytes-consumed|records-consumed|fetch)-total"
                    + "|(produce|fetch)-throttle-time-(avg|max)");
            if (whole && wanted && metric.metricValue() instanceof Double value) {
                chosen.put(name.name(), value);
            }
            if (name.name().equals("byte-total") && metric.metricValue() instanceof Double value) {
                chosen.merge("byte-total", value, Double::sum); // of all topics
            }
        });
        chosen.values().removeIf(value -> value.isNaN());
        counted.put("metrics", chosen);
    }

    /** Bytes that do not compress away. */
    private static byte[] bytes(Random random, int size) {
        byte[] value = new byte[size];
        random.nextBytes(value);
        return value;
    }

    private static void sleepUntil(long nanos) throws InterruptedException {
        long left = nanos - System.nanoTime();
        if (left > 0) {
            Thread.sleep(left / 1_000_000, (int) (left % 1_000_000));
        }
    }
}
