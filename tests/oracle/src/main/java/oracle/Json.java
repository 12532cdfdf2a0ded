package oracle;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.pulsar.policies.data.loadbalancer.ResourceUsage;

/** Reads and writes the values of scenarios; a number JSON cannot carry is one of the texts NaN, Infinity, -Infinity. */
final class Json {
    static final ObjectMapper MAPPER = new ObjectMapper();

    private Json() {
    }

    static double num(JsonNode n, double otherwise) {
        if (n == null || n.isNull() || n.isMissingNode()) {
            return otherwise;
        }
        return n.isTextual() ? Double.parseDouble(n.asText()) : n.asDouble();
    }

    static Object dbl(double d) {
        return Double.isNaN(d) || Double.isInfinite(d) ? (Object) Double.toString(d) : (Object) d;
    }

    static Map<String, Object> doubles(Map<String, Double> values) {
        Map<String, Object> out = new TreeMap<>();
        values.forEach((key, value) -> out.put(key, dbl(value)));
        return out;
    }

    static List<String> strings(JsonNode n) {
        List<String> out = new ArrayList<>();
        if (n != null && n.isArray()) {
            n.forEach(x -> out.add(x.asText()));
        }
        return out;
    }

    static Map<String, JsonNode> fields(JsonNode n) {
        Map<String, JsonNode> out = new LinkedHashMap<>();
        if (n != null && n.isObject()) {
            n.fields().forEachRemaining(e -> out.put(e.getKey(), e.getValue()));
        }
        return out;
    }

    static ResourceUsage usage(JsonNode n) {
        return new ResourceUsage(num(n.get(0), 0), num(n.get(1), 0));
    }
}
