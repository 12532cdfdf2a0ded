package oracle;

import com.fasterxml.jackson.databind.JsonNode;
import java.lang.reflect.Field;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import org.apache.pulsar.broker.ServiceConfiguration;

/** Builds a ServiceConfiguration from field names; what is not given keeps the default of the code. */
final class Settings {
    private Settings() {
    }

    static ServiceConfiguration of(JsonNode conf) throws ReflectiveOperationException {
        ServiceConfiguration settings = new ServiceConfiguration();
        for (Map.Entry<String, JsonNode> e : Json.fields(conf).entrySet()) {
            Field field = Reflect.field(ServiceConfiguration.class, e.getKey());
            field.set(settings, value(field.getType(), e.getValue()));
        }
        return settings;
    }

    private static Object value(Class<?> type, JsonNode v) {
        if (type == int.class) {
            return v.asInt();
        } else if (type == long.class || type == Long.class) {
            return v.asLong();
        } else if (type == double.class) {
            return Json.num(v, 0);
        } else if (type == boolean.class) {
            return v.asBoolean();
        } else if (type == String.class) {
            return v.asText();
        } else if (Set.class.isAssignableFrom(type)) {
            return new TreeSet<>(Json.strings(v));
        }
        throw new IllegalArgumentException("a setting of " + type + " cannot be given");
    }
}
