import java.lang.management.ManagementFactory;
import javax.management.Attribute;
import javax.management.AttributeList;
import javax.management.DynamicMBean;
import javax.management.MBeanAttributeInfo;
import javax.management.MBeanInfo;
import javax.management.MBeanServer;
import javax.management.ObjectName;

/** Two MBeans as a broker has them for quotas, one with an awkward client id, for JmxTool to print. */
public final class Beans {
    private static final String[] ATTRIBUTES = {"byte-rate", "throttle-time"};

    public static void main(String[] arguments) throws Exception {
        MBeanServer server = ManagementFactory.getPlatformMBeanServer();
        String quoted = ObjectName.quote("a*b, \"c\" \\ d");
        server.registerMBean(new Rates(), new ObjectName("kafka.server:type=Produce,user=CN%3Da,client-id=" + quoted));
        server.registerMBean(new Rates(), new ObjectName("kafka.server:type=Fetch,client-id=etl"));
        System.in.read();
    }

    private static final class Rates implements DynamicMBean {
        @Override
        public Object getAttribute(String name) {
            return name.equals("byte-rate") ? 12345678.5 : Double.NaN;
        }

        @Override
        public AttributeList getAttributes(String[] names) {
            AttributeList values = new AttributeList();
            for (String name : names) {
                values.add(new Attribute(name, getAttribute(name)));
            }
            return values;
        }

        @Override
        public void setAttribute(Attribute attribute) {}

        @Override
        public AttributeList setAttributes(AttributeList attributes) {
            return attributes;
        }

        @Override
        public Object invoke(String name, Object[] parameters, String[] signature) {
            return null;
        }

        @Override
        public MBeanInfo getMBeanInfo() {
            MBeanAttributeInfo[] attributes = new MBeanAttributeInfo[ATTRIBUTES.length];
            for (int at = 0; at < attributes.length; at++) {
                attributes[at] = new MBeanAttributeInfo(ATTRIBUTES[at], "double", "", true, false, false);
            }
            return new MBeanInfo("Rates", "", attributes, null, null, null);
        }
    }
}
