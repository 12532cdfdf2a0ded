package oracle;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.atomic.AtomicLong;

/** Reads what the managers count by label and reason, as texts such as Skip/HitCount. */
final class Counters {
    private Counters() {
    }

    static <L, R> Map<String, Long> counts(Map<L, Map<R, AtomicLong>> counters) {
        Map<String, Long> out = new TreeMap<>();
        counters.forEach((label, reasons) -> reasons.forEach((reason, n) -> out.put(label + "/" + reason, n.get())));
        return out;
    }

    static List<String> added(Map<String, Long> before, Map<String, Long> after) {
        List<String> out = new ArrayList<>();
        after.forEach((key, count) -> {
            for (long i = before.getOrDefault(key, 0L); i < count; i++) {
                out.add(key);
            }
        });
        return out;
    }
}
