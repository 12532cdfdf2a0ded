package oracle;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import org.apache.pulsar.broker.ServiceConfiguration;
import org.apache.pulsar.broker.loadbalance.extensions.LoadManagerContext;
import org.apache.pulsar.broker.loadbalance.extensions.data.BrokerLoadData;
import org.apache.pulsar.broker.loadbalance.extensions.strategy.LeastResourceUsageWithWeight;

/** Runs the placement of the extensible manager, each step on a new object, as it remembers nothing. */
final class ExtensiblePlacement {
    private ExtensiblePlacement() {
    }

    static Map<String, Object> place(JsonNode in) throws Exception {
        ServiceConfiguration conf = Settings.of(in.get("conf"));
        List<Object> steps = new ArrayList<>();
        in.get("steps").forEach(r -> steps.add(step(r, conf)));
        return Map.of("steps", steps);
    }

    private static Map<String, Object> step(JsonNode r, ServiceConfiguration conf) {
        Map<String, BrokerLoadData> brokers = new HashMap<>();
        Json.fields(r.get("weighted_max_ema")).forEach((broker, value) -> {
            BrokerLoadData data = new BrokerLoadData();
            Reflect.set(data, "weightedMaxEMA", Json.num(value, 0));
            brokers.put(broker, data);
        });
        LoadManagerContext context = Fakes.context(conf, Fakes.store(brokers), Fakes.store(new HashMap<>()), null);
        LeastResourceUsageWithWeight placement = new LeastResourceUsageWithWeight();
        try {
            Optional<String> picked = placement.select(new HashSet<>(Json.strings(r.get("candidates"))), null, context);
            ThreadLocal<ArrayList<String>> best = Reflect.get(placement, "bestBrokers");
            return Map.of("one_of", ModularPlacement.tied(picked, best.get()));
        } catch (RuntimeException e) {
            return Map.of("exception", e.getClass().getSimpleName());
        }
    }
}
