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
import org.apache.kafka.clients.admin.AlterClientQuotasOptions;
import org.apache.kafka.common.KafkaFuture;
import org.apache.kafka.common.quota.ClientQuotaAlteration;
import org.apache.kafka.common.quota.ClientQuotaEntity;
import org.apache.kafka.common.quota.ClientQuotaFilter;
import org.apache.kafka.common.quota.ClientQuotaFilterComponent;

import static java.nio.charset.StandardCharsets.UTF_8;

/** Kafka's own Admin: each line of standard input is a description or an alteration, answered by a line. */
public class AdminLines {
    public static void main(String[] arguments) throws Exception {
        ObjectMapper json = new ObjectMapper();
        PrintStream answers = new PrintStream(System.out, true, UTF_8);
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, UTF_8));
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", arguments[0]))) {
            for (String line = lines.readLine(); line != null; line = lines.readLine()) {
                JsonNode question = json.readTree(line);
                Object answer = question.has("describe")
                    ? described(admin, question.get("describe"))
                    : altered(admin, question.get("alter"));
                answers.println(json.writeValueAsString(answer));
            }
        }
    }

    private static Map<String, Object> described(Admin admin, JsonNode question) throws InterruptedException {
        List<ClientQuotaFilterComponent> components = new ArrayList<>();
        for (JsonNode one : question.get("components")) {
            String type = one.get("type").asText();
            components.add(switch (one.get("match_type").asInt()) {
                case 0 -> ClientQuotaFilterComponent.ofEntity(type, one.get("match").asText());
                case 1 -> ClientQuotaFilterComponent.ofDefaultEntity(type);
                default -> ClientQuotaFilterComponent.ofEntityType(type);
            });
        }
        ClientQuotaFilter filter = question.get("strict").asBoolean()
            ? ClientQuotaFilter.containsOnly(components)
            : components.isEmpty() ? ClientQuotaFilter.all() : ClientQuotaFilter.contains(components);
        List<Object> entities = new ArrayList<>();
        Map<String, Object> answer = new LinkedHashMap<>();
        try {
            admin.describeClientQuotas(filter).entities().get().forEach((entity, values) -> {
                List<Object> pairs = new ArrayList<>();
                values.forEach((key, value) -> pairs.add(Map.of("key", key, "value", value.toString())));
                entities.add(Map.of("entity", parts(entity), "values", pairs));
            });
            answer.put("entities", entities);
        } catch (ExecutionException e) {
            answer.put("error", e.getCause().toString());
        }
        return answer;
    }

    private static Map<String, Object> altered(Admin admin, JsonNode question) throws InterruptedException {
        List<ClientQuotaAlteration> alterations = new ArrayList<>();
        for (JsonNode one : question.get("alterations")) {
            Map<String, String> entries = new LinkedHashMap<>();
            for (JsonNode part : one.get("entity"))
                entries.put(part.get("type").asText(), part.get("name").textValue());
            List<ClientQuotaAlteration.Op> ops = new ArrayList<>();
            for (JsonNode op : one.get("ops")) {
                String value = op.get("value").textValue();
                Double number = value == null ? null : Double.valueOf(value);
                ops.add(new ClientQuotaAlteration.Op(op.get("key").asText(), number));
            }
            alterations.add(new ClientQuotaAlteration(new ClientQuotaEntity(entries), ops));
        }
        AlterClientQuotasOptions options =
            new AlterClientQuotasOptions().validateOnly(question.get("validate_only").asBoolean());
        List<Object> results = new ArrayList<>();
        for (Map.Entry<ClientQuotaEntity, KafkaFuture<Void>> one
            : admin.alterClientQuotas(alterations, options).values().entrySet()) {
            Map<String, Object> result = new LinkedHashMap<>();
            result.put("entity", parts(one.getKey()));
            result.put("error", null);
            try {
                one.getValue().get();
            } catch (ExecutionException e) {
                result.put("error", e.getCause().toString());
            }
            results.add(result);
        }
        return Map.of("results", results);
    }

    private static List<Object> parts(ClientQuotaEntity entity) {
        List<Object> parts = new ArrayList<>();
        entity.entries().forEach((type, name) -> {
            Map<String, String> part = new LinkedHashMap<>();
            part.put("type", type);
            part.put("name", name);
            parts.add(part);
        });
        return parts;
    }
}
