package oracle;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.pulsar.broker.PulsarService;
import org.apache.pulsar.broker.ServiceConfiguration;
import org.apache.pulsar.broker.loadbalance.extensions.data.BrokerLoadData;
import org.apache.pulsar.broker.loadbalance.extensions.models.TopKBundles;
import org.apache.pulsar.policies.data.loadbalancer.NamespaceBundleStats;
import org.apache.pulsar.policies.data.loadbalancer.SystemResourceUsage;
import org.mockito.Mockito;

/** Runs what a broker of the extensible manager publishes about itself: its load and its top bundles. */
final class BrokerReports {
    private BrokerReports() {
    }

    static Map<String, Object> load(JsonNode in) throws Exception {
        ServiceConfiguration conf = Settings.of(in.get("conf"));
        BrokerLoadData data = new BrokerLoadData();
        List<Object> rounds = new ArrayList<>();
        for (JsonNode r : in.get("rounds")) {
            data.update(resources(r), Json.num(r.get("msg_throughput_in"), 0), Json.num(r.get("msg_throughput_out"), 0),
                    0, 0, 1, 1, conf);
            Map<String, Object> o = new LinkedHashMap<>();
            o.put("weighted_max_ema", Json.dbl(data.getWeightedMaxEMA()));
            o.put("msg_throughput_ema", Json.dbl(data.getMsgThroughputEMA()));
            o.put("max_resource_usage", Json.dbl(data.getMaxResourceUsage()));
            rounds.add(o);
        }
        return Map.of("rounds", rounds);
    }

    private static SystemResourceUsage resources(JsonNode r) {
        SystemResourceUsage usage = new SystemResourceUsage();
        for (Map.Entry<String, JsonNode> e : Json.fields(r).entrySet()) {
            switch (e.getKey()) {
                case "cpu" -> usage.cpu = Json.usage(e.getValue());
                case "memory" -> usage.memory = Json.usage(e.getValue());
                case "direct_memory" -> usage.directMemory = Json.usage(e.getValue());
                case "bandwidth_in" -> usage.bandwidthIn = Json.usage(e.getValue());
                case "bandwidth_out" -> usage.bandwidthOut = Json.usage(e.getValue());
                case "msg_throughput_in", "msg_throughput_out" -> { }
                default -> throw new IllegalArgumentException("report field " + e.getKey());
            }
        }
        return usage;
    }

    /** The published list, with bundles under policies let through; and the bare partial sort of all of them. */
    @SuppressWarnings("rawtypes")
    static Map<String, Object> topBundles(JsonNode in) throws Exception {
        int k = in.get("k").asInt();
        Map<String, NamespaceBundleStats> stats = new LinkedHashMap<>();
        Json.fields(in.get("bundles")).forEach((bundle, values) -> stats.put(bundle, ModularWorld.stats(values)));
        List<Map.Entry<String, ? extends Comparable>> all = new ArrayList<>(stats.entrySet());
        int sorted = Math.min(k, all.size());
        List<String> reversed = new ArrayList<>();
        if (sorted > 0) {
            TopKBundles.partitionSort(all, sorted);
        }
        for (int i = sorted - 1; i >= 0; i--) {
            reversed.add(all.get(i).getKey());
        }
        Map<String, Object> out = new LinkedHashMap<>();
        out.put("partition_sort_reversed", reversed);
        out.put("published", published(stats, k, Settings.of(in.get("conf"))));
        return out;
    }

    private static List<String> published(Map<String, NamespaceBundleStats> stats, int k, ServiceConfiguration conf) {
        conf.setLoadBalancerSheddingBundlesWithPoliciesEnabled(true);
        PulsarService pulsar = Mockito.mock(PulsarService.class,
                Mockito.withSettings().stubOnly().defaultAnswer(Mockito.RETURNS_DEEP_STUBS));
        Mockito.doReturn(conf).when(pulsar).getConfiguration();
        TopKBundles top = new TopKBundles(pulsar);
        top.update(stats, k);
        List<String> names = new ArrayList<>();
        top.getLoadData().getTopBundlesLoadData().forEach(bundle -> names.add(bundle.bundleName()));
        return names;
    }
}
