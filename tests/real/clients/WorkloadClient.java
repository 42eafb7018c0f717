import java.io.BufferedWriter;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.MessageDigest;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.Future;
import java.util.zip.CRC32;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.RetriableException;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

import static java.nio.charset.StandardCharsets.UTF_8;

/** The client program on Kafka's own Java clients; README.md beside this file has its arguments. */
public class WorkloadClient {
    private static final int CHECKSUM_BYTES = 8;
    private static final long PATIENCE_MS = 120_000;
    private static final String LOGIN = "org.apache.kafka.common.security.";

    private final Map<String, String> settings = new HashMap<>();
    private final long started = System.nanoTime();
    private final BufferedWriter output;
    private final Map<Integer, Long> last = new HashMap<>();
    private final Map<String, Integer> errors = new HashMap<>();
    private long lines;
    private long different;
    private long bytes;
    private long ended = started;

    public static void main(String[] arguments) throws Exception {
        WorkloadClient client = new WorkloadClient(arguments);
        switch (client.settings.get("mode")) {
            case "produce" -> client.produce();
            case "transact" -> client.transact();
            case "consume" -> client.consume();
            default -> throw new IllegalArgumentException("unknown mode");
        }
        System.exit(client.finish());
    }

    WorkloadClient(String[] arguments) throws IOException {
        for (String one : arguments) {
            String[] pair = one.split("=", 2);
            settings.put(pair[0], pair[1]);
        }
        output = Files.newBufferedWriter(Path.of(settings.get("output")), UTF_8);
    }

    private String setting(String name, String otherwise) {
        return settings.getOrDefault(name, otherwise);
    }

    private long number(String name, long otherwise) {
        return settings.containsKey(name) ? Long.parseLong(settings.get(name)) : otherwise;
    }

    private Properties common() {
        Properties properties = new Properties();
        String protocol = setting("security.protocol", "PLAINTEXT");
        properties.put("bootstrap.servers", settings.get("bootstrap.servers"));
        properties.put("client.id", setting("client.id", "client"));
        properties.put("security.protocol", protocol);
        if (protocol.startsWith("SASL_")) {
            String mechanism = settings.get("sasl.mechanism");
            String user = settings.get("sasl.username");
            String login = " required username=\"" + user + "\" password=\"" + settings.get("sasl.password") + "\";";
            properties.put("sasl.mechanism", mechanism);
            properties.put("sasl.jaas.config", switch (mechanism) {
                case "PLAIN" -> LOGIN + "plain.PlainLoginModule" + login;
                case "OAUTHBEARER" -> LOGIN + "oauthbearer.OAuthBearerLoginModule required"
                    + " unsecuredLoginStringClaim_sub=\"" + user + "\";";
                default -> LOGIN + "scram.ScramLoginModule" + login;
            });
        }
        if (protocol.endsWith("SSL")) {
            properties.put("ssl.truststore.type", "PEM");
            properties.put("ssl.truststore.location", settings.get("ssl.ca.location"));
        }
        return properties;
    }

    private KafkaProducer<byte[], byte[]> producer() {
        Properties properties = common();
        properties.put("acks", "all");
        properties.put("enable.idempotence", setting("enable.idempotence", "true"));
        properties.put("compression.type", setting("compression.type", "none"));
        properties.put("linger.ms", setting("linger.ms", "5"));
        properties.put("delivery.timeout.ms", setting("delivery.timeout.ms", "120000"));
        properties.put("max.block.ms", setting("delivery.timeout.ms", "120000"));
        if (settings.containsKey("transactional.id")) {
            properties.put("transactional.id", settings.get("transactional.id"));
        }
        return new KafkaProducer<>(properties, new ByteArraySerializer(), new ByteArraySerializer());
    }

    private ProducerRecord<byte[], byte[]> record(long sequence) throws Exception {
        byte[] key = (setting("client.id", "client") + ":" + sequence).getBytes(UTF_8);
        byte[] digest = MessageDigest.getInstance("SHA-256").digest(key);
        byte[] payload = new byte[(int) Math.max(0, number("size", 200) - CHECKSUM_BYTES)];
        for (int i = 0; i < payload.length; i++) {
            payload[i] = digest[i % digest.length];
        }
        byte[] value = new byte[CHECKSUM_BYTES + payload.length];
        System.arraycopy(crc(payload).getBytes(UTF_8), 0, value, 0, CHECKSUM_BYTES);
        System.arraycopy(payload, 0, value, CHECKSUM_BYTES, payload.length);
        return new ProducerRecord<>(settings.get("topic"), (int) (sequence % number("partitions", 1)), key, value);
    }

    private static String crc(byte[] payload) {
        CRC32 crc = new CRC32();
        crc.update(payload);
        return String.format("%08x", crc.getValue());
    }

    /** CRC-32 of the payload as found; with "wrong-" before it where the value carries another one. */
    private static String checksum(byte[] value) {
        int length = Math.min(CHECKSUM_BYTES, value.length);
        String found = crc(Arrays.copyOfRange(value, length, value.length));
        return found.equals(new String(value, 0, length, UTF_8)) ? found : "wrong-" + found;
    }

    private boolean isOver() {
        double seconds = Double.parseDouble(setting("seconds", "0"));
        return seconds > 0 && (System.nanoTime() - started) / 1e9 > seconds;
    }

    /** Waits until the record with this sequence is due. */
    private void await(long sequence) throws InterruptedException {
        double rate = Double.parseDouble(setting("rate", "0"));
        if (rate > 0) {
            long due = started + (long) (sequence / rate * 1e9);
            long wait = due - System.nanoTime();
            if (wait > 0) {
                Thread.sleep(wait / 1_000_000, (int) (wait % 1_000_000));
            }
        }
    }

    private synchronized void write(int partition, long offset, byte[] key, byte[] value, String transaction) {
        try {
            output.write(partition + " " + offset + " " + new String(key, UTF_8) + " " + checksum(value)
                + transaction + "\n");
            output.flush();
        } catch (IOException e) {
            throw new UncheckedIOException(e);
        }
        lines++;
        bytes += value.length;
        ended = System.nanoTime();
        if (offset > last.getOrDefault(partition, -1L)) {
            last.put(partition, offset);
            different++;
        }
    }

    private synchronized void failed(Exception error) {
        errors.merge(error.toString(), 1, Integer::sum);
    }

    private void produce() throws Exception {
        long records = number("records", Long.MAX_VALUE);
        try (KafkaProducer<byte[], byte[]> producer = producer()) {
            for (long sequence = 0; sequence < records && !isOver(); sequence++) {
                await(sequence);
                ProducerRecord<byte[], byte[]> sent = record(sequence);
                producer.send(sent, (metadata, error) -> {
                    if (error == null) {
                        write(metadata.partition(), metadata.offset(), sent.key(), sent.value(), "");
                    } else {
                        failed(error);
                    }
                });
            }
            producer.flush();
        }
    }

    private KafkaProducer<byte[], byte[]> transactional() {
        KafkaProducer<byte[], byte[]> producer = producer();
        retried(producer::initTransactions);
        return producer;
    }

    private void transact() throws Exception {
        long records = number("records", Long.MAX_VALUE);
        long size = number("per.transaction", 10);
        long abortEvery = number("abort.every", 0);
        KafkaProducer<byte[], byte[]> producer = transactional();
        for (long first = 0; first < records && !isOver(); first += size) {
            long transaction = first / size;
            List<ProducerRecord<byte[], byte[]>> batch = new ArrayList<>();
            for (long sequence = first; sequence < Math.min(records, first + size); sequence++) {
                batch.add(record(sequence));
            }
            await(first + batch.size() - 1);
            List<Future<RecordMetadata>> futures = new ArrayList<>();
            String state = "unknown";
            try {
                producer.beginTransaction();
                for (ProducerRecord<byte[], byte[]> one : batch) {
                    futures.add(producer.send(one));
                }
                producer.flush();
                if (abortEvery > 0 && (transaction + 1) % abortEvery == 0) {
                    retried(producer::abortTransaction);
                    state = "aborted";
                } else {
                    retried(producer::commitTransaction);
                    state = "committed";
                }
            } catch (KafkaException | IllegalStateException failure) {
                System.err.println("transaction " + transaction + ": " + failure);
                try {
                    retried(producer::abortTransaction);
                    state = "aborted";
                } catch (KafkaException | IllegalStateException fatal) {
                    System.err.println("transaction " + transaction + ": " + fatal);
                    producer.close(Duration.ZERO);
                    producer = transactional();
                }
            }
            for (int i = 0; i < batch.size(); i++) {
                long offset = -1;
                if (i < futures.size() && futures.get(i).isDone()) {
                    try {
                        offset = futures.get(i).get().offset();
                    } catch (Exception notSent) {
                        // it stays unknown
                    }
                }
                ProducerRecord<byte[], byte[]> one = batch.get(i);
                write(one.partition(), offset, one.key(), one.value(), " " + state + " " + transaction);
            }
        }
        producer.close();
    }

    /** What may be tried again is, with the same outcome as the first time. */
    private static void retried(Runnable call) {
        long deadline = System.nanoTime() + PATIENCE_MS * 1_000_000;
        while (true) {
            try {
                call.run();
                return;
            } catch (RetriableException e) {
                if (System.nanoTime() > deadline) {
                    throw e;
                }
            }
        }
    }

    private void consume() throws Exception {
        long records = number("records", Long.MAX_VALUE);
        Properties properties = common();
        properties.put("auto.offset.reset", "earliest");
        properties.put("isolation.level", setting("isolation.level", "read_uncommitted"));
        boolean isGroup = settings.containsKey("group.id");
        if (isGroup) {
            properties.put("group.id", settings.get("group.id"));
        } else {
            properties.put("enable.auto.commit", "false");
        }
        try (KafkaConsumer<byte[], byte[]> consumer =
                new KafkaConsumer<>(properties, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            if (isGroup) {
                consumer.subscribe(List.of(settings.get("topic")));
            } else {
                List<TopicPartition> partitions = new ArrayList<>();
                for (int i = 0; i < number("partitions", 1); i++) {
                    partitions.add(new TopicPartition(settings.get("topic"), i));
                }
                consumer.assign(partitions);
                consumer.seekToBeginning(partitions);
            }
            while (different < records && !isOver()) {
                for (ConsumerRecord<byte[], byte[]> one : consumer.poll(Duration.ofMillis(100))) {
                    byte[] key = one.key() == null ? new byte[] {'-'} : one.key();
                    write(one.partition(), one.offset(), key, one.value() == null ? new byte[0] : one.value(), "");
                }
            }
        }
    }

    private synchronized int finish() throws IOException {
        output.close();
        int failed = errors.values().stream().mapToInt(Integer::intValue).sum();
        List<String> texts = new ArrayList<>();
        errors.forEach((text, count) ->
            texts.add("\"" + text.replace("\\", "\\\\").replace("\"", "\\\"").replace("\n", " ") + "\": " + count));
        System.out.println("{\"records\": " + lines + ", \"bytes\": " + bytes + ", \"seconds\": "
            + String.format("%.3f", (ended - started) / 1e9) + ", \"failed\": " + failed
            + ", \"errors\": {" + String.join(", ", texts) + "}}");
        return errors.isEmpty() ? 0 : 1;
    }
}
