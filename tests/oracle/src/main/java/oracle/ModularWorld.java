package oracle;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.HashSet;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.pulsar.broker.loadbalance.LoadData;
import org.apache.pulsar.policies.data.loadbalancer.BrokerData;
import org.apache.pulsar.policies.data.loadbalancer.BundleData;
import org.apache.pulsar.policies.data.loadbalancer.LocalBrokerData;
import org.apache.pulsar.policies.data.loadbalancer.NamespaceBundleStats;
import org.apache.pulsar.policies.data.loadbalancer.TimeAverageBrokerData;
import org.apache.pulsar.policies.data.loadbalancer.TimeAverageMessageData;

/** The LoadData of the modular manager, filled from a scenario and changed from round to round. */
final class ModularWorld {
    private ModularWorld() {
    }

    static void mergeBroker(LoadData ld, String name, JsonNode n) {
        BrokerData bd = ld.getBrokerData().computeIfAbsent(name, k -> {
            BrokerData b = new BrokerData(new LocalBrokerData());
            b.setTimeAverageData(new TimeAverageBrokerData());
            return b;
        });
        LocalBrokerData l = bd.getLocalData();
        for (Map.Entry<String, JsonNode> e : Json.fields(n).entrySet()) {
            JsonNode v = e.getValue();
            switch (e.getKey()) {
                case "cpu" -> l.setCpu(Json.usage(v));
                case "memory" -> l.setMemory(Json.usage(v));
                case "direct_memory" -> l.setDirectMemory(Json.usage(v));
                case "bandwidth_in" -> l.setBandwidthIn(Json.usage(v));
                case "bandwidth_out" -> l.setBandwidthOut(Json.usage(v));
                case "msg_rate_in" -> l.setMsgRateIn(Json.num(v, 0));
                case "msg_rate_out" -> l.setMsgRateOut(Json.num(v, 0));
                case "msg_throughput_in" -> l.setMsgThroughputIn(Json.num(v, 0));
                case "msg_throughput_out" -> l.setMsgThroughputOut(Json.num(v, 0));
                case "bundles" -> l.setBundles(new HashSet<>(Json.strings(v)));
                case "long_term_msg_rate_in" -> bd.getTimeAverageData().setLongTermMsgRateIn(Json.num(v, 0));
                case "long_term_msg_rate_out" -> bd.getTimeAverageData().setLongTermMsgRateOut(Json.num(v, 0));
                case "preallocated" -> {
                    bd.getPreallocatedBundleData().clear();
                    int i = 0;
                    for (JsonNode p : v) {
                        BundleData x = new BundleData(10, 1000);
                        x.getLongTermData().setMsgRateIn(Json.num(p.get(0), 0));
                        x.getLongTermData().setMsgRateOut(Json.num(p.get(1), 0));
                        bd.getPreallocatedBundleData().put("p/p/" + i++, x);
                    }
                }
                case "stats" -> {
                    Map<String, NamespaceBundleStats> m = new ConcurrentHashMap<>();
                    Json.fields(v).forEach((b, s) -> m.put(b, stats(s)));
                    l.setLastStats(m);
                }
                default -> throw new IllegalArgumentException("broker field " + e.getKey());
            }
        }
    }

    static NamespaceBundleStats stats(JsonNode n) {
        NamespaceBundleStats s = new NamespaceBundleStats();
        for (Map.Entry<String, JsonNode> e : Json.fields(n).entrySet()) {
            JsonNode v = e.getValue();
            switch (e.getKey()) {
                case "msg_rate_in" -> s.msgRateIn = Json.num(v, 0);
                case "msg_rate_out" -> s.msgRateOut = Json.num(v, 0);
                case "msg_throughput_in" -> s.msgThroughputIn = Json.num(v, 0);
                case "msg_throughput_out" -> s.msgThroughputOut = Json.num(v, 0);
                case "topics" -> s.topics = v.asLong();
                case "consumer_count" -> s.consumerCount = v.asInt();
                case "producer_count" -> s.producerCount = v.asInt();
                case "cache_size" -> s.cacheSize = v.asLong();
                default -> throw new IllegalArgumentException("stats field " + e.getKey());
            }
        }
        return s;
    }

    static void mergeBundle(LoadData ld, String name, JsonNode n) {
        BundleData b = ld.getBundleData().remove(name);
        if (b == null) {
            b = new BundleData(10, 1000);
        }
        merge(b.getShortTermData(), n);
        merge(b.getLongTermData(), n);
        ld.getBundleData().put(name, b);
    }

    static void merge(TimeAverageMessageData t, JsonNode n) {
        if (n.has("msg_rate_in")) {
            t.setMsgRateIn(Json.num(n.get("msg_rate_in"), 0));
        }
        if (n.has("msg_rate_out")) {
            t.setMsgRateOut(Json.num(n.get("msg_rate_out"), 0));
        }
        if (n.has("msg_throughput_in")) {
            t.setMsgThroughputIn(Json.num(n.get("msg_throughput_in"), 0));
        }
        if (n.has("msg_throughput_out")) {
            t.setMsgThroughputOut(Json.num(n.get("msg_throughput_out"), 0));
        }
    }

    static Set<String> brokers(LoadData ld) {
        return new HashSet<>(ld.getBrokerData().keySet());
    }

    static LoadData load(JsonNode in) {
        LoadData ld = new LoadData();
        Json.fields(in.get("brokers")).forEach((k, v) -> mergeBroker(ld, k, v));
        Json.fields(in.get("bundles")).forEach((k, v) -> mergeBundle(ld, k, v));
        return ld;
    }

    /** Applies what a round changes before the call. */
    static void change(LoadData ld, JsonNode r) {
        for (String b : Json.strings(r.get("remove_brokers"))) {
            ld.getBrokerData().remove(b);
        }
        for (String b : Json.strings(r.get("remove_bundles"))) {
            ld.getBundleData().remove(b);
        }
        Json.fields(r.get("set_brokers")).forEach((k, v) -> mergeBroker(ld, k, v));
        Json.fields(r.get("set_bundles")).forEach((k, v) -> mergeBundle(ld, k, v));
        if (r.has("recently_unloaded")) {
            ld.getRecentlyUnloadedBundles().clear();
            Json.strings(r.get("recently_unloaded")).forEach(b -> ld.getRecentlyUnloadedBundles().put(b, 1L));
        }
    }
}
