import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.util.LinkedHashMap;
import java.util.Map;
import kafka.admin.ConfigCommand;
import org.apache.kafka.common.utils.Exit;

import static java.nio.charset.StandardCharsets.UTF_8;

/**
 * Kafka's own kafka-configs, run once for each line of standard input, which is a JSON array of its arguments. The
 * answer holds the exit status and what it wrote: one JVM then does for many runs.
 */
public class ConfigCommandLines {
    private static final ByteArrayOutputStream OUT = new ByteArrayOutputStream();
    private static final ByteArrayOutputStream ERR = new ByteArrayOutputStream();
    private static Map<String, Object> ended;

    public static void main(String[] arguments) throws Exception {
        ObjectMapper json = new ObjectMapper();
        PrintStream answers = new PrintStream(System.out, true, UTF_8);
        // Scala keeps the stream that it finds first, so it has to find these, and they have to stay.
        System.setOut(new PrintStream(OUT, true, UTF_8));
        System.setErr(new PrintStream(ERR, true, UTF_8));
        Exit.setExitProcedure((status, message) -> {
            end(status);
            throw new IllegalStateException("the process would have ended here");
        });
        BufferedReader lines = new BufferedReader(new InputStreamReader(System.in, UTF_8));
        for (String line = lines.readLine(); line != null; line = lines.readLine()) {
            ended = null;
            OUT.reset();
            ERR.reset();
            try {
                ConfigCommand.main(json.readValue(line, String[].class));
            } catch (IllegalStateException e) {
                if (ended == null)
                    throw e;
            }
            end(0);
            answers.println(json.writeValueAsString(ended));
        }
    }

    /** The first end counts: the command catches what stands in for it, and goes on. */
    private static void end(int status) {
        if (ended == null) {
            ended = new LinkedHashMap<>();
            ended.put("status", status);
            ended.put("out", OUT.toString(UTF_8));
            ended.put("err", ERR.toString(UTF_8));
        }
    }
}
