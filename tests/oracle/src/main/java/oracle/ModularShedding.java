package oracle;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.commons.lang3.mutable.MutableInt;
import org.apache.pulsar.broker.ServiceConfiguration;
import org.apache.pulsar.broker.loadbalance.LoadData;
import org.apache.pulsar.broker.loadbalance.LoadSheddingStrategy;
import org.apache.pulsar.broker.loadbalance.impl.AvgShedder;
import org.apache.pulsar.broker.loadbalance.impl.OverloadShedder;
import org.apache.pulsar.broker.loadbalance.impl.ThresholdShedder;
import org.apache.pulsar.broker.loadbalance.impl.UniformLoadShedder;
import org.apache.pulsar.policies.data.loadbalancer.BundleData;

/** Runs the shedders of the modular manager round after round on one object. */
final class ModularShedding {
    private ModularShedding() {
    }

    static LoadSheddingStrategy shedder(String algorithm) {
        return switch (algorithm) {
            case "modular.ThresholdShedder" -> new ThresholdShedder();
            case "modular.OverloadShedder" -> new OverloadShedder();
            case "modular.UniformLoadShedder" -> new UniformLoadShedder();
            case "modular.AvgShedder" -> new AvgShedder();
            default -> throw new IllegalArgumentException(algorithm);
        };
    }

    static Map<String, Object> shed(JsonNode in) throws Exception {
        ServiceConfiguration conf = Settings.of(in.get("conf"));
        LoadSheddingStrategy shedder = shedder(in.get("algorithm").asText());
        LoadData load = ModularWorld.load(in);
        List<Object> rounds = new ArrayList<>();
        for (JsonNode r : in.get("rounds")) {
            ModularWorld.change(load, r);
            if (r.path("notify_active").asBoolean(false)) {
                shedder.onActiveBrokersChange(ModularWorld.brokers(load));
            }
            rounds.add(round(shedder, load, conf));
        }
        return Map.of("rounds", rounds);
    }

    private static Map<String, Object> round(LoadSheddingStrategy shedder, LoadData load, ServiceConfiguration conf) {
        Map<String, Object> o = new LinkedHashMap<>();
        try {
            Map<String, List<String>> unloads = new TreeMap<>();
            shedder.findBundlesForUnloading(load, conf).asMap()
                    .forEach((broker, bundles) -> unloads.put(broker, new ArrayList<>(bundles)));
            o.put("unloads", unloads);
        } catch (Exception e) {
            o.put("exception", e.getClass().getSimpleName());
        }
        if (shedder instanceof ThresholdShedder) {
            o.put("state", Map.of("ema", Json.doubles(Reflect.get(shedder, "brokerAvgResourceUsage"))));
        } else if (shedder instanceof AvgShedder) {
            o.put("state", state((AvgShedder) shedder, load));
        }
        return o;
    }

    private static Map<String, Object> state(AvgShedder shedder, LoadData load) {
        Map<String, Object> state = new LinkedHashMap<>();
        state.put("scores", Json.doubles(Reflect.get(shedder, "brokerScoreMap")));
        state.put("hit_high", counts(Reflect.get(shedder, "brokerHitCountForHigh")));
        state.put("hit_low", counts(Reflect.get(shedder, "brokerHitCountForLow")));
        state.put("plan", plan(Reflect.get(shedder, "bundleBrokerMap"), load));
        return state;
    }

    /** The planned destinations as a lookup with the current statistics sees them: those are the keys of the plan. */
    private static Map<String, String> plan(Map<BundleData, String> planned, LoadData load) {
        Map<String, String> out = new TreeMap<>();
        load.getBundleData().forEach((bundle, data) -> {
            if (planned.containsKey(data)) {
                out.put(bundle, planned.get(data));
            }
        });
        return out;
    }

    private static Map<String, Integer> counts(Map<String, MutableInt> counters) {
        Map<String, Integer> out = new TreeMap<>();
        counters.forEach((broker, count) -> out.put(broker, count.intValue()));
        return out;
    }
}
