package oracle;

import com.fasterxml.jackson.databind.JsonNode;
import java.lang.reflect.Proxy;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.CompletableFuture;
import org.apache.pulsar.broker.PulsarService;
import org.apache.pulsar.broker.ServiceConfiguration;
import org.apache.pulsar.broker.loadbalance.extensions.LoadManagerContext;
import org.apache.pulsar.broker.loadbalance.extensions.channel.ServiceUnitStateChannel;
import org.apache.pulsar.broker.loadbalance.extensions.data.BrokerLoadData;
import org.apache.pulsar.broker.loadbalance.extensions.data.TopBundlesLoadData;
import org.apache.pulsar.broker.loadbalance.extensions.filter.BrokerFilter;
import org.apache.pulsar.broker.loadbalance.extensions.models.UnloadCounter;
import org.apache.pulsar.broker.loadbalance.extensions.models.UnloadDecision;
import org.apache.pulsar.broker.loadbalance.extensions.scheduler.TransferShedder;
import org.apache.pulsar.broker.namespace.NamespaceService;
import org.apache.pulsar.common.naming.NamespaceBundleFactory;
import org.apache.pulsar.policies.data.loadbalancer.NamespaceBundleStats;
import org.mockito.Mockito;

/**
 * Runs TransferShedder round after round on one object.
 *
 * <p>The shedder reads the wall clock, so the times of a scenario are shifted to it in every round.
 */
final class TransferShedding {
    /** What the counter is set to before a round; it stays when the round ends before loads are known. */
    private static final double NOT_COMPUTED = Double.NEGATIVE_INFINITY;

    private static PulsarService bundleNames;

    private final ServiceConfiguration conf;
    private final UnloadCounter counter = new UnloadCounter();
    private final TransferShedder shedder = new TransferShedder(counter);
    private final Map<String, BrokerLoadData> brokers = new HashMap<>();
    private final Map<String, TopBundlesLoadData> topBundles = new HashMap<>();
    private final Map<String, Long> updatedAt = new HashMap<>();
    private final Map<String, Long> recentBundles = new HashMap<>();
    private final Map<String, Long> recentBrokers = new HashMap<>();
    private final Map<String, Long> recentTimes = new HashMap<>();

    TransferShedding(JsonNode in) throws Exception {
        conf = Settings.of(in.get("conf"));
        Reflect.set(shedder, "decisionCache", new LinkedHashSet<UnloadDecision>());     // shows the order of decisions
        Json.fields(in.get("brokers")).forEach(this::mergeBroker);
        Json.fields(in.get("top_bundles")).forEach((broker, list) -> topBundles.put(broker, top(list)));
    }

    Map<String, Object> shed(JsonNode in) {
        List<Object> rounds = new ArrayList<>();
        in.get("rounds").forEach(round -> rounds.add(round(round)));
        return Map.of("rounds", rounds);
    }

    private Map<String, Object> round(JsonNode r) {
        change(r);
        setClock(r);
        setOwnership(r);
        setFilter(r);
        Map<String, Object> available = new HashMap<>();
        (r.has("available") ? Json.strings(r.get("available")) : brokers.keySet()).forEach(b -> available.put(b, null));
        LoadManagerContext context = Fakes.context(conf, Fakes.store(brokers), Fakes.store(topBundles),
                Fakes.registry(available, "b"));
        Map<String, Long> before = Counters.counts(counter.getBreakdownCounters());
        Reflect.set(counter, "loadAvg", NOT_COMPUTED);
        Map<String, Object> o = new LinkedHashMap<>();
        o.put("unloads", unloads(shedder.findBundlesForUnloading(context, recentBundles, recentBrokers)));
        o.put("skip", Counters.added(before, Counters.counts(counter.getBreakdownCounters())));
        boolean loaded = counter.getLoadAvg() != NOT_COMPUTED;
        Object stats = Reflect.get(shedder, "stats");
        o.put("load_avg", loaded ? Json.dbl(counter.getLoadAvg()) : null);
        o.put("load_std", loaded ? Json.dbl(counter.getLoadStd()) : null);
        o.put("hit_count_after", Reflect.get(shedder, "unloadConditionHitCount"));
        o.put("std_after", loaded ? Json.dbl(Reflect.<Double>get(stats, "std")) : null);
        o.put("recently_unloaded_brokers_after", new TreeSet<>(recentBrokers.keySet()));
        return o;
    }

    private static List<Object> unloads(Set<UnloadDecision> decisions) {
        List<Object> unloads = new ArrayList<>();
        for (UnloadDecision decision : decisions) {
            Map<String, Object> unload = new LinkedHashMap<>();
            unload.put("bundle", decision.getUnload().serviceUnit());
            unload.put("source", decision.getUnload().sourceBroker());
            unload.put("dest", decision.getUnload().destBroker().orElse(null));
            unload.put("reason", decision.getReason().toString());
            unloads.add(unload);
        }
        return unloads;
    }

    private void change(JsonNode r) {
        Json.strings(r.get("remove_brokers")).forEach(broker -> {
            brokers.remove(broker);
            topBundles.remove(broker);
        });
        Json.fields(r.get("set_brokers")).forEach(this::mergeBroker);
        Json.fields(r.get("set_top_bundles")).forEach((broker, list) -> {
            if (list.isNull()) {
                topBundles.remove(broker);
            } else {
                topBundles.put(broker, top(list));
            }
        });
    }

    private void mergeBroker(String name, JsonNode n) {
        BrokerLoadData data = brokers.computeIfAbsent(name, k -> new BrokerLoadData());
        for (Map.Entry<String, JsonNode> e : Json.fields(n).entrySet()) {
            JsonNode v = e.getValue();
            switch (e.getKey()) {
                case "weighted_max_ema" -> Reflect.set(data, "weightedMaxEMA", Json.num(v, 0));
                case "msg_throughput_in" -> Reflect.set(data, "msgThroughputIn", Json.num(v, 0));
                case "msg_throughput_out" -> Reflect.set(data, "msgThroughputOut", Json.num(v, 0));
                case "msg_throughput_ema" -> Reflect.set(data, "msgThroughputEMA", Json.num(v, 0));
                case "updated_at" -> updatedAt.put(name, v.asLong());
                default -> throw new IllegalArgumentException("broker field " + e.getKey());
            }
        }
        if (!n.has("msg_throughput_ema") && (n.has("msg_throughput_in") || n.has("msg_throughput_out"))) {
            Reflect.set(data, "msgThroughputEMA", data.getMsgThroughputIn() + data.getMsgThroughputOut());
        }
    }

    private static TopBundlesLoadData top(JsonNode list) {
        TopBundlesLoadData top = new TopBundlesLoadData();
        for (JsonNode b : list) {
            NamespaceBundleStats stats = new NamespaceBundleStats();
            stats.msgThroughputIn = Json.num(b.get(1), 0);
            stats.msgThroughputOut = Json.num(b.get(2), 0);
            top.getTopBundlesLoadData().add(new TopBundlesLoadData.BundleLoadData(b.get(0).asText(), stats));
        }
        return top;
    }

    private void setClock(JsonNode r) {
        long now = System.currentTimeMillis();
        long shift = r.has("now") ? now - r.get("now").asLong() : 0;
        brokers.forEach((name, data) -> {
            Long updated = updatedAt.get(name);
            Reflect.set(data, "updatedAt", updated == null || !r.has("now") ? now : updated + shift);
        });
        if (r.has("recently_unloaded_bundles")) {
            recentBundles.clear();
            Json.strings(r.get("recently_unloaded_bundles")).forEach(bundle -> recentBundles.put(bundle, now));
        }
        recentTimes.keySet().retainAll(recentBrokers.keySet());
        if (r.has("recently_unloaded_brokers")) {
            recentTimes.clear();
            Json.fields(r.get("recently_unloaded_brokers")).forEach((b, t) -> recentTimes.put(b, t.asLong()));
        }
        recentBrokers.clear();
        recentTimes.forEach((broker, time) -> recentBrokers.put(broker, time + shift));
    }

    private void setOwnership(JsonNode r) {
        Set<String> notOwned = new HashSet<>(Json.strings(r.get("not_owned")));
        ServiceUnitStateChannel channel = (ServiceUnitStateChannel) Proxy.newProxyInstance(
                ServiceUnitStateChannel.class.getClassLoader(), new Class<?>[] {ServiceUnitStateChannel.class},
                (p, m, a) -> {
                    if (m.getName().equals("isOwner") && a.length == 2) {
                        return !notOwned.contains((String) a[0]);
                    }
                    throw new UnsupportedOperationException("channel." + m.getName());
                });
        Reflect.set(shedder, "channel", notOwned.isEmpty() ? null : channel);
    }

    /** The one broker filter: it empties the candidates of `not_transferable`, and keeps `allowed_brokers` of others. */
    private void setFilter(JsonNode r) {
        Set<String> fixed = new HashSet<>(Json.strings(r.get("not_transferable")));
        Map<String, Set<String>> allowed = new HashMap<>();
        Json.fields(r.get("allowed_brokers")).forEach((b, kept) -> allowed.put(b, new HashSet<>(Json.strings(kept))));
        Reflect.set(shedder, "pulsar", fixed.isEmpty() && allowed.isEmpty() ? null : bundleNames());
        BrokerFilter filter = (BrokerFilter) Proxy.newProxyInstance(BrokerFilter.class.getClassLoader(),
                new Class<?>[] {BrokerFilter.class}, (p, m, a) -> {
                    if (!m.getName().equals("filterAsync")) {
                        return "recorded";
                    }
                    Map<?, ?> candidates = (Map<?, ?>) a[0];
                    String bundle = a[1].toString();
                    if (fixed.contains(bundle)) {
                        candidates.clear();
                    } else if (allowed.containsKey(bundle)) {
                        candidates.keySet().retainAll(allowed.get(bundle));
                    }
                    return CompletableFuture.completedFuture(candidates);
                });
        Reflect.set(shedder, "brokerFilterPipeline", List.of(filter));
    }

    /** A PulsarService that only knows how to turn a bundle's name into a bundle. */
    private static synchronized PulsarService bundleNames() {
        if (bundleNames == null) {
            NamespaceBundleFactory real = Naming.factory(null);
            NamespaceBundleFactory factory = Mockito.mock(NamespaceBundleFactory.class, Mockito.withSettings().stubOnly());
            NamespaceService namespaces = Mockito.mock(NamespaceService.class, Mockito.withSettings().stubOnly());
            bundleNames = Mockito.mock(PulsarService.class, Mockito.withSettings().stubOnly());
            Mockito.doReturn(namespaces).when(bundleNames).getNamespaceService();
            Mockito.doReturn(factory).when(namespaces).getNamespaceBundleFactory();
            Mockito.doAnswer(i -> real.getBundle(i.<String>getArgument(0), i.<String>getArgument(1)))
                    .when(factory).getBundle(Mockito.anyString(), Mockito.anyString());
        }
        return bundleNames;
    }
}
