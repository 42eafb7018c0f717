import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.CreatePartitionsOptions;
import org.apache.kafka.clients.admin.CreateTopicsOptions;
import org.apache.kafka.clients.admin.DeleteTopicsOptions;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.common.KafkaFuture;
import org.apache.kafka.common.TopicCollection;
import org.apache.kafka.common.errors.ThrottlingQuotaExceededException;

import static java.nio.charset.StandardCharsets.UTF_8;

/**
 * Kafka's own Admin: each line of standard input changes topics, and is answered by a line with each topic's error.
 *
 * Arguments: the bootstrap servers and the client id.
 */
public class TopicLines {
    public static void main(String[] arguments) throws Exception {
        ObjectMapper json = new ObjectMapper();
        PrintStream answers = new PrintStream(System.out, true, UTF_8);
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, UTF_8));
        Map<String, Object> settings = Map.of("bootstrap.servers", arguments[0], "client.id", arguments[1]);
        try (Admin admin = Admin.create(settings)) {
            for (String line = lines.readLine(); line != null; line = lines.readLine())
                answers.println(json.writeValueAsString(errors(changed(admin, json.readTree(line)))));
        }
    }

    private static Map<String, KafkaFuture<Void>> changed(Admin admin, JsonNode question) {
        boolean retries = question.get("retries").asBoolean();
        Map<String, Integer> topics = new LinkedHashMap<>();
        question.get("topics").fields().forEachRemaining(one -> topics.put(one.getKey(), one.getValue().asInt()));
        switch (question.get("change").asText()) {
            case "create" -> {
                List<NewTopic> created = new ArrayList<>();
                topics.forEach((name, partitions) -> created.add(new NewTopic(name, partitions, (short) 1)));
                return admin.createTopics(created, new CreateTopicsOptions().retryOnQuotaViolation(retries)).values();
            }
            case "grow" -> {
                Map<String, NewPartitions> grown = new LinkedHashMap<>();
                topics.forEach((name, partitions) -> grown.put(name, NewPartitions.increaseTo(partitions)));
                CreatePartitionsOptions options = new CreatePartitionsOptions().retryOnQuotaViolation(retries);
                return admin.createPartitions(grown, options).values();
            }
            default -> {
                DeleteTopicsOptions options = new DeleteTopicsOptions().retryOnQuotaViolation(retries);
                return admin.deleteTopics(TopicCollection.ofTopicNames(topics.keySet()), options).topicNameValues();
            }
        }
    }

    private static Map<String, Object> errors(Map<String, KafkaFuture<Void>> values) throws InterruptedException {
        Map<String, Object> found = new LinkedHashMap<>();
        for (Map.Entry<String, KafkaFuture<Void>> one : values.entrySet()) {
            try {
                one.getValue().get();
                found.put(one.getKey(), null);
            } catch (ExecutionException e) {
                int throttleMs = e.getCause() instanceof ThrottlingQuotaExceededException throttled
                    ? throttled.throttleTimeMs() : 0;
                found.put(one.getKey(), List.of(e.getCause().getClass().getSimpleName(), throttleMs));
            }
        }
        return found;
    }
}
