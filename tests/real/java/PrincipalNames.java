import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.util.HexFormat;
import javax.security.auth.x500.X500Principal;
import org.apache.kafka.common.security.ssl.SslPrincipalMapper;

import static java.nio.charset.StandardCharsets.UTF_8;

/**
 * Java's distinguished names and Kafka's rules for them. Each line of standard input has a name, as the hexadecimal digits
 * of its DER or as text, and rules. Its answer is the name as text and the principal, or the class of what was thrown.
 */
public class PrincipalNames {
    public static void main(String[] arguments) throws Exception {
        ObjectMapper json = new ObjectMapper();
        PrintStream answers = new PrintStream(System.out, true, UTF_8);
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            JsonNode question = json.readTree(line);
            ObjectNode answer = json.createObjectNode();
            try {
                String name = question.has("der")
                    ? new X500Principal(HexFormat.of().parseHex(question.get("der").asText())).getName()
                    : question.get("name").asText();
                answer.put("name", name);
                answer.put("principal", SslPrincipalMapper.fromRules(question.get("rules").asText()).getName(name));
            } catch (Exception error) {
                answer.put("error", error.getClass().getSimpleName());
                answer.put("message", error.getMessage());
            }
            answers.println(json.writeValueAsString(answer));
        }
    }
}
