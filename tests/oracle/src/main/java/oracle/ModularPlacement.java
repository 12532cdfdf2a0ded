package oracle;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.TreeSet;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.pulsar.broker.ServiceConfiguration;
import org.apache.pulsar.broker.loadbalance.LoadData;
import org.apache.pulsar.broker.loadbalance.ModularLoadManagerStrategy;
import org.apache.pulsar.broker.loadbalance.impl.LeastLongTermMessageRate;
import org.apache.pulsar.broker.loadbalance.impl.LeastResourceUsageWithWeight;
import org.apache.pulsar.broker.loadbalance.impl.RoundRobinBrokerSelector;
import org.apache.pulsar.policies.data.loadbalancer.BundleData;

/**
 * Runs the placements of the modular manager step after step on one object.
 *
 * <p>Those that end with a random pick leave the brokers it is made from in a field, which is read after the call.
 */
final class ModularPlacement {
    private ModularPlacement() {
    }

    static Map<String, Object> place(JsonNode in) throws Exception {
        ServiceConfiguration conf = Settings.of(in.get("conf"));
        ModularLoadManagerStrategy placement = placement(in);
        LoadData load = ModularWorld.load(in);
        List<Object> steps = new ArrayList<>();
        for (JsonNode r : in.get("steps")) {
            ModularWorld.change(load, r);
            if (r.path("notify_active").asBoolean(false)) {
                placement.onActiveBrokersChange(ModularWorld.brokers(load));
            }
            steps.add(step(placement, Json.strings(r.get("candidates")), load, conf));
        }
        return Map.of("steps", steps);
    }

    private static ModularLoadManagerStrategy placement(JsonNode in) {
        String algorithm = in.get("algorithm").asText();
        switch (algorithm) {
            case "modular.LeastLongTermMessageRate" -> {
                return new LeastLongTermMessageRate();
            }
            case "modular.LeastResourceUsageWithWeight" -> {
                return new LeastResourceUsageWithWeight();
            }
            case "modular.RoundRobinBrokerSelector" -> {
                RoundRobinBrokerSelector selector = new RoundRobinBrokerSelector();
                Reflect.<AtomicInteger>get(selector, "count").set(in.path("start_count").asInt(0));
                return selector;
            }
            default -> throw new IllegalArgumentException(algorithm);
        }
    }

    private static Map<String, Object> step(ModularLoadManagerStrategy placement, List<String> candidates, LoadData load,
                                            ServiceConfiguration conf) {
        Map<String, Object> o = new LinkedHashMap<>();
        BundleData bundle = new BundleData(10, 1000);
        try {
            if (placement instanceof RoundRobinBrokerSelector) {
                o.put("broker", placement.selectBroker(new LinkedHashSet<>(candidates), bundle, load, conf).orElse(null));
            } else {
                Optional<String> picked = placement.selectBroker(new HashSet<>(candidates), bundle, load, conf);
                o.put("one_of", tied(picked, Reflect.get(placement, "bestBrokers")));
            }
        } catch (Exception e) {
            o.put("exception", e.getClass().getSimpleName());
        }
        if (placement instanceof LeastResourceUsageWithWeight) {
            o.put("ema", Json.doubles(Reflect.get(placement, "brokerAvgResourceUsageWithWeight")));
        }
        return o;
    }

    /** The brokers that the pick was made from; nothing picked: none. */
    static TreeSet<String> tied(Optional<String> picked, List<String> best) {
        if (picked.isPresent() && !best.contains(picked.get())) {
            throw new AssertionError(picked.get() + " was picked, which is none of " + best);
        }
        return picked.isPresent() ? new TreeSet<>(best) : new TreeSet<>();
    }
}
