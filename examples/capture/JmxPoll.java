import java.io.IOException;
import java.util.Locale;
import java.util.TreeMap;
import javax.management.Attribute;
import javax.management.MBeanAttributeInfo;
import javax.management.MBeanServerConnection;
import javax.management.ObjectName;
import javax.management.remote.JMXConnectorFactory;
import javax.management.remote.JMXServiceURL;

/**
 * Prints the client-quota metrics of a broker each second, as CSV: epoch milliseconds, MBean, attribute, value. Ends
 * when its standard input does. Run by capture.py: {@code java JmxPoll.java PORT}.
 */
public final class JmxPoll {
    private static final String[] TYPES = {"Produce", "Fetch", "Request", "ControllerMutation"};

    public static void main(String[] arguments) throws Exception {
        var url = new JMXServiceURL("service:jmx:rmi:///jndi/rmi://127.0.0.1:" + arguments[0] + "/jmxrmi");
        Thread ending = new Thread(JmxPoll::endWithInput);
        ending.setDaemon(true);
        ending.start();
        System.out.println("epoch_ms,mbean,attribute,value");
        try (var connector = JMXConnectorFactory.connect(url)) {
            MBeanServerConnection broker = connector.getMBeanServerConnection();
            for (long due = System.currentTimeMillis(); ; due += 1000) {
                Thread.sleep(Math.max(due - System.currentTimeMillis(), 0));
                System.out.print(poll(broker));
                System.out.flush();
            }
        }
    }

    private static void endWithInput() {
        try {
            System.in.readAllBytes();
        } catch (IOException closed) {
            // as good as its end
        }
        Runtime.getRuntime().halt(0);
    }

    private static String poll(MBeanServerConnection broker) throws Exception {
        StringBuilder rows = new StringBuilder();
        long now = System.currentTimeMillis();
        for (String type : TYPES) {
            var beans = new TreeMap<String, ObjectName>();
            broker.queryNames(new ObjectName("kafka.server:type=" + type + ",*"), null)
                .forEach(bean -> beans.put(bean.toString(), bean));
            for (var bean : beans.entrySet()) {
                var names = new TreeMap<String, Object>();
                for (MBeanAttributeInfo info : broker.getMBeanInfo(bean.getValue()).getAttributes()) {
                    names.put(info.getName(), null);
                }
                for (Object one : broker.getAttributes(bean.getValue(), names.keySet().toArray(new String[0]))) {
                    Attribute attribute = (Attribute) one;
                    rows.append(now).append(',').append(quoted(bean.getKey())).append(',');
                    rows.append(attribute.getName()).append(',').append(number(attribute.getValue())).append('\n');
                }
            }
        }
        return rows.toString();
    }

    private static String quoted(String text) {
        return '"' + text.replace("\"", "\"\"") + '"';
    }

    private static String number(Object value) {
        return value instanceof Double real && Double.isFinite(real) ? String.format(Locale.ROOT, "%.3f", real) : "" + value;
    }
}
