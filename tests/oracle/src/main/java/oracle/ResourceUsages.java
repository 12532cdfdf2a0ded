package oracle;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.LinkedHashMap;
import java.util.Map;
import org.apache.pulsar.policies.data.loadbalancer.LocalBrokerData;
import org.apache.pulsar.policies.data.loadbalancer.ResourceUsage;

/** Runs the arithmetic of resource usage: percent, weighted and unweighted maximum. */
final class ResourceUsages {
    private ResourceUsages() {
    }

    static Map<String, Object> usage(JsonNode in) throws Exception {
        var conf = Settings.of(in.get("conf"));
        LocalBrokerData l = new LocalBrokerData();
        Map<String, Object> pct = new LinkedHashMap<>();
        for (Map.Entry<String, JsonNode> e : Json.fields(in.get("usage")).entrySet()) {
            ResourceUsage u = Json.usage(e.getValue());
            pct.put(e.getKey(), Json.dbl(u.percentUsage()));
            switch (e.getKey()) {
                case "cpu" -> l.setCpu(u);
                case "memory" -> l.setMemory(u);
                case "direct_memory" -> l.setDirectMemory(u);
                case "bandwidth_in" -> l.setBandwidthIn(u);
                case "bandwidth_out" -> l.setBandwidthOut(u);
                default -> throw new IllegalArgumentException(e.getKey());
            }
        }
        Map<String, Object> out = new LinkedHashMap<>();
        out.put("percent", pct);
        out.put("weighted_ratio", Json.dbl(l.getMaxResourceUsageWithWeight(conf.getLoadBalancerCPUResourceWeight(),
                conf.getLoadBalancerDirectMemoryResourceWeight(), conf.getLoadBalancerBandwidthInResourceWeight(),
                conf.getLoadBalancerBandwidthOutResourceWeight())));
        out.put("unweighted_ratio", Json.dbl(l.getMaxResourceUsage()));
        return out;
    }
}
