import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.Callable;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLongArray;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

import static java.nio.charset.StandardCharsets.UTF_8;

/**
 * Kafka's own clients against a limit, each on a thread of its own: what limit_client.py is for those of Python. The
 * first line of standard input is a JSON array of clients; once all are connected it writes "ready". The second line is
 * the second since 1970 at which they start; at the end it writes a JSON array: the payload bytes that were acknowledged
 * or received in each span, and the errors.
 */
public final class LimitClients {
    private static final ObjectMapper JSON = new ObjectMapper();

    /** What came, by span; spans before the start and after the end do not count. */
    private static final class Client {
        final JsonNode spec;
        final AtomicLongArray spans;
        final AtomicInteger errors = new AtomicInteger();
        final CompletableFuture<Double> start;
        final CompletableFuture<Void> connected = new CompletableFuture<>();
        double allowance;
        double allowedAt;

        Client(JsonNode spec, CompletableFuture<Double> start) {
            this.spec = spec;
            this.start = start;
            this.spans = new AtomicLongArray((int) Math.round(spec.get("seconds").asDouble() / spec.get("span_s").asDouble()));
        }

        double passed() {
            return System.currentTimeMillis() / 1000.0 - start.join();
        }

        boolean isRunning() {
            return passed() < spec.get("seconds").asDouble();
        }

        /**
         * Whether it works now: it does not rest, and has not done more than its pace allows. What it could not do in
         * time is caught up with for a second's worth at most. Only its own thread asks.
         */
        boolean isOn() {
            double passed = passed();
            double on = spec.get("on_s").asDouble();
            double off = spec.get("off_s").asDouble();
            double pace = spec.get("pace").asDouble();
            if (passed < 0 || (off > 0 && passed % (on + off) >= on)) {
                allowedAt = passed;
                return false;
            }
            if (pace == 0) {
                return true;
            }
            allowance = Math.min(pace, allowance + pace * (passed - allowedAt));
            allowedAt = passed;
            return allowance > 0;
        }

        void take(long bytes) {
            allowance -= bytes;
        }

        void count(long bytes) {
            int span = (int) Math.floor(passed() / spec.get("span_s").asDouble());
            if (span >= 0 && span < spans.length()) {
                spans.addAndGet(span, bytes);
            }
        }

        Properties properties() {
            Properties properties = new Properties();
            properties.put("bootstrap.servers", spec.get("bootstrap").asText());
            properties.put("client.id", spec.get("client_id").asText());
            return properties;
        }
    }

    public static void main(String[] arguments) throws Exception {
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, UTF_8));
        CompletableFuture<Double> start = new CompletableFuture<>();
        List<Client> clients = new ArrayList<>();
        JSON.readTree(lines.readLine()).forEach(spec -> clients.add(new Client(spec, start)));
        ExecutorService threads = Executors.newCachedThreadPool();
        List<Future<Void>> running = new ArrayList<>();
        for (Client client : clients) {
            Callable<Void> work = () -> {
                try {
                    if (client.spec.get("kind").asText().equals("produce")) {
                        produce(client);
                    } else {
                        fetch(client);
                    }
                } catch (Exception error) {
                    client.connected.completeExceptionally(error);
                    throw error;
                }
                return null;
            };
            running.add(threads.submit(work));
        }
        for (Client client : clients) {
            client.connected.get();
        }
        System.out.println("ready");
        start.complete(Double.parseDouble(lines.readLine()));
        for (Future<Void> each : running) {
            each.get();
        }
        List<Map<String, Object>> found = new ArrayList<>();
        for (Client client : clients) {
            List<Long> spans = new ArrayList<>();
            for (int span = 0; span < client.spans.length(); span++) {
                spans.add(client.spans.get(span));
            }
            String id = client.spec.get("client_id").asText();
            found.add(Map.of("client_id", id, "spans", spans, "errors", client.errors.get()));
        }
        System.out.println(JSON.writeValueAsString(found));
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }

    private static void produce(Client client) throws Exception {
        JsonNode spec = client.spec;
        Properties properties = client.properties();
        properties.put("batch.size", spec.get("batch_bytes").asText());
        byte[] value = new byte[spec.get("record_bytes").asInt()];
        Semaphore room = new Semaphore(spec.get("unacknowledged").asInt());
        var producer = new KafkaProducer<>(properties, new ByteArraySerializer(), new ByteArraySerializer());
        producer.partitionsFor(spec.get("topic").asText());
        client.connected.complete(null);
        while (client.isRunning()) {
            if (!client.isOn()) {
                Thread.sleep(5);
            } else if (room.tryAcquire(50, TimeUnit.MILLISECONDS)) {
                client.take(value.length);
                producer.send(new ProducerRecord<>(spec.get("topic").asText(), value), (done, error) -> {
                    room.release();
                    if (error == null) {
                        client.count(value.length);
                    } else {
                        client.errors.incrementAndGet();
                    }
                });
            }
        }
    }

    private static void fetch(Client client) throws Exception {
        JsonNode spec = client.spec;
        Properties properties = client.properties();
        properties.put("max.partition.fetch.bytes", spec.get("fetch_bytes").asText());
        properties.put("max.poll.records", "1000000");
        TopicPartition partition = new TopicPartition(spec.get("topic").asText(), 0);
        var consumer = new KafkaConsumer<>(properties, new ByteArrayDeserializer(), new ByteArrayDeserializer());
        consumer.assign(List.of(partition));
        consumer.partitionsFor(partition.topic());
        client.connected.complete(null);
        consumer.seek(partition, 0);
        while (client.isRunning()) {
            if (!client.isOn()) {
                Thread.sleep(5);
                continue;
            }
            boolean isAtEnd = false;
            long bytes = 0;
            for (ConsumerRecord<byte[], byte[]> record : consumer.poll(Duration.ofMillis(50))) {
                bytes += record.serializedValueSize();
                isAtEnd |= record.offset() + 1 >= spec.get("rereads_after").asLong();
            }
            client.count(bytes);
            client.take(bytes);
            if (isAtEnd) {
                consumer.seek(partition, 0);
            }
        }
    }
}
