package oracle;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import org.apache.pulsar.broker.ServiceConfiguration;
import org.apache.pulsar.broker.loadbalance.LoadData;
import org.apache.pulsar.broker.loadbalance.impl.AvgShedder;
import org.apache.pulsar.policies.data.loadbalancer.BundleData;

/**
 * Runs the placement of AvgShedder after its shedding rounds.
 *
 * <p>It ends with a random pick, so everything is built again and asked again, and the set of answers is reported.
 */
final class AvgPlacement {
    /** Repetitions for each candidate: one that is never seen in 40 n draws of n has a chance below 1e-17. */
    private static final int REPETITIONS = 40;

    private AvgPlacement() {
    }

    static Map<String, Object> place(JsonNode in) throws Exception {
        ServiceConfiguration conf = Settings.of(in.get("conf"));
        List<Object> cases = new ArrayList<>();
        for (JsonNode c : in.get("cases")) {
            cases.add(answers(in, conf, c.get("bundle").asText(), new HashSet<>(Json.strings(c.get("candidates")))));
        }
        return Map.of("cases", cases);
    }

    private static Map<String, Object> answers(JsonNode in, ServiceConfiguration conf, String bundle,
                                               Set<String> candidates) throws Exception {
        Set<String> answers = new TreeSet<>();
        String planned = null;
        boolean sticky = true;
        for (int i = 0; i < Math.max(1, REPETITIONS * candidates.size()); i++) {
            AvgShedder shedder = new AvgShedder();
            LoadData load = ModularWorld.load(in);
            for (JsonNode r : in.get("rounds")) {
                ModularWorld.change(load, r);
                shedder.findBundlesForUnloading(load, conf);
            }
            BundleData data = load.getBundleData().get(bundle);
            planned = Reflect.<Map<BundleData, String>>get(shedder, "bundleBrokerMap").get(data);
            try {
                String first = shedder.selectBroker(candidates, data, load, conf).orElseThrow();
                answers.add(first);
                sticky &= first.equals(shedder.selectBroker(candidates, data, load, conf).orElseThrow());
            } catch (RuntimeException e) {
                return Map.of("exception", e.getClass().getSimpleName());
            }
        }
        Map<String, Object> o = new LinkedHashMap<>();
        o.put("one_of", answers);
        o.put("planned", planned);
        o.put("second_call_same", sticky);
        return o;
    }
}
