package oracle;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.IntNode;
import java.lang.reflect.Proxy;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.pulsar.broker.PulsarService;
import org.apache.pulsar.broker.ServiceConfiguration;
import org.apache.pulsar.broker.loadbalance.LoadManager;
import org.apache.pulsar.broker.loadbalance.extensions.ExtensibleLoadManagerImpl;
import org.apache.pulsar.broker.loadbalance.extensions.ExtensibleLoadManagerWrapper;
import org.apache.pulsar.broker.loadbalance.extensions.LoadManagerContext;
import org.apache.pulsar.broker.loadbalance.extensions.channel.ServiceUnitState;
import org.apache.pulsar.broker.loadbalance.extensions.channel.ServiceUnitStateChannel;
import org.apache.pulsar.broker.loadbalance.extensions.channel.ServiceUnitStateData;
import org.apache.pulsar.broker.loadbalance.extensions.models.SplitCounter;
import org.apache.pulsar.broker.loadbalance.extensions.models.SplitDecision;
import org.apache.pulsar.broker.loadbalance.extensions.strategy.DefaultNamespaceBundleSplitStrategyImpl;
import org.apache.pulsar.broker.namespace.NamespaceService;
import org.apache.pulsar.broker.service.BrokerService;
import org.apache.pulsar.common.naming.NamespaceBundle;
import org.apache.pulsar.common.naming.NamespaceBundleFactory;
import org.apache.pulsar.common.naming.NamespaceBundleSplitAlgorithm;
import org.apache.pulsar.policies.data.loadbalancer.NamespaceBundleStats;
import org.mockito.Mockito;

/**
 * Runs the rule of the extensible manager that says which bundles to split, round after round on one object.
 *
 * <p>Bundles are walked in the listed order, and the decisions keep theirs.
 */
final class ExtensibleSplitting {
    private final SplitCounter counter = new SplitCounter();
    private final DefaultNamespaceBundleSplitStrategyImpl strategy = new DefaultNamespaceBundleSplitStrategyImpl(counter);
    private final Map<String, NamespaceBundleStats> stats = new LinkedHashMap<>();
    private final Map<String, Integer> namespaceBundles = new HashMap<>();
    private final Map<String, ServiceUnitStateData> states = new LinkedHashMap<>();
    private final Set<String> notOwned = new HashSet<>();
    private final ServiceConfiguration conf;
    private final PulsarService pulsar;
    private final LoadManagerContext context;
    private JsonNode boundariesReturned = IntNode.valueOf(1);

    ExtensibleSplitting(JsonNode in) throws Exception {
        this(Settings.of(in.get("conf")), Map.of(), Map.of());
        Json.fields(in.get("bundles")).forEach((bundle, values) -> stats.put(bundle, ModularWorld.stats(values)));
    }

    /** One broker with its bundles and with what it knows of the number of bundles of namespaces. */
    ExtensibleSplitting(ServiceConfiguration conf, Map<String, NamespaceBundleStats> bundles,
                        Map<String, Integer> namespaceBundles) throws Exception {
        this.conf = conf;
        this.stats.putAll(bundles);
        this.namespaceBundles.putAll(namespaceBundles);
        Reflect.set(strategy, "decisionCache", new LinkedHashSet<SplitDecision>());
        this.pulsar = pulsar();
        this.context = Fakes.context(conf, null, null, Fakes.registry(Map.of(), "self"));
    }

    Set<SplitDecision> decide() {
        return strategy.findBundlesToSplit(context, pulsar);
    }

    Map<String, Object> split(JsonNode in) {
        List<Object> rounds = new ArrayList<>();
        for (JsonNode r : in.get("rounds")) {
            change(in, r);
            Map<String, Long> before = counts();
            Map<String, Object> o = new LinkedHashMap<>();
            o.put("splits", splits(decide()));
            o.put("counted", added(before));
            o.put("hit_counts", new TreeMap<>(Reflect.<Map<String, Integer>>get(strategy, "splitConditionHitCounts")));
            rounds.add(o);
        }
        return Map.of("rounds", rounds);
    }

    private static List<Object> splits(Set<SplitDecision> decisions) {
        List<Object> splits = new ArrayList<>();
        for (SplitDecision decision : decisions) {
            Map<String, Object> split = new LinkedHashMap<>();
            split.put("bundle", decision.getSplit().serviceUnit());
            split.put("reason", decision.getReason().toString());
            split.put("children", new TreeSet<>(decision.getSplit().splitServiceUnitToDestBroker().keySet()));
            splits.add(split);
        }
        return splits;
    }

    private void change(JsonNode in, JsonNode r) {
        Json.strings(r.get("remove_bundles")).forEach(stats::remove);
        Json.fields(r.get("set_bundles")).forEach((bundle, values) -> stats.put(bundle, ModularWorld.stats(values)));
        namespaceBundles.clear();
        Json.fields(current(in, r, "namespace_bundle_count")).forEach((ns, n) -> namespaceBundles.put(ns, n.asInt()));
        notOwned.clear();
        notOwned.addAll(Json.strings(current(in, r, "not_owned")));
        states.clear();
        for (String bundle : Json.strings(current(in, r, "splitting"))) {
            states.put(bundle, new ServiceUnitStateData(ServiceUnitState.Splitting, null, "self", 1));
        }
        boundariesReturned = current(in, r, "split_boundaries_returned");
    }

    private static JsonNode current(JsonNode in, JsonNode r, String field) {
        return r.has(field) ? r.get(field) : in.get(field);
    }

    private PulsarService pulsar() throws Exception {
        PulsarService pulsar = mock(PulsarService.class);
        BrokerService broker = mock(BrokerService.class);
        ExtensibleLoadManagerWrapper wrapper = mock(ExtensibleLoadManagerWrapper.class);
        ExtensibleLoadManagerImpl manager = mock(ExtensibleLoadManagerImpl.class);
        Mockito.doReturn(new AtomicReference<LoadManager>(wrapper)).when(pulsar).getLoadManager();
        Mockito.doReturn(manager).when(wrapper).get();
        Mockito.doReturn(channel()).when(manager).getServiceUnitStateChannel();
        Mockito.doReturn(conf).when(pulsar).getConfiguration();
        Mockito.doReturn(namespaces()).when(pulsar).getNamespaceService();
        Mockito.doReturn(broker).when(pulsar).getBrokerService();
        Mockito.doReturn(stats).when(broker).getBundleStats();
        return pulsar;
    }

    /** Not a mock, as it is asked about every bundle, and a mock's time would be what is measured. */
    private ServiceUnitStateChannel channel() {
        return (ServiceUnitStateChannel) Proxy.newProxyInstance(ServiceUnitStateChannel.class.getClassLoader(),
                new Class<?>[] {ServiceUnitStateChannel.class}, (p, m, a) -> switch (m.getName()) {
                    case "isOwner" -> !notOwned.contains((String) a[0]);
                    case "getOwnershipEntrySet" -> states.entrySet();
                    default -> throw new UnsupportedOperationException("channel." + m.getName());
                });
    }

    private NamespaceService namespaces() throws Exception {
        NamespaceBundleFactory factory = Naming.factory(null);
        NamespaceService namespaces = mock(NamespaceService.class);
        Mockito.doReturn(factory).when(namespaces).getNamespaceBundleFactory();
        Mockito.doAnswer(i -> Fakes.bundleCount(namespaceBundles.get(i.getArgument(0).toString())))
                .when(namespaces).getBundleCount(Mockito.any());
        Mockito.doAnswer(i -> boundaries(i.getArgument(0))).when(namespaces).getSplitBoundary(Mockito.any(),
                Mockito.<List<Long>>any(), Mockito.<NamespaceBundleSplitAlgorithm>any());
        return namespaces;
    }

    /** What the boundary algorithm answers: evenly spaced boundaries, nothing, or a failure. */
    private CompletableFuture<List<Long>> boundaries(NamespaceBundle bundle) {
        if (boundariesReturned == null || boundariesReturned.isNull()) {
            return CompletableFuture.completedFuture(null);
        }
        int count = boundariesReturned.asInt();
        if (count < 0) {
            return CompletableFuture.failedFuture(new IllegalStateException("no boundary"));
        }
        long lower = bundle.getKeyRange().lowerEndpoint();
        long step = (bundle.getKeyRange().upperEndpoint() - lower) / (count + 1);
        List<Long> boundaries = new ArrayList<>();
        for (int k = 1; k <= count; k++) {
            boundaries.add(lower + k * step);
        }
        return CompletableFuture.completedFuture(boundaries);
    }

    private Map<String, Long> counts() {
        return Counters.counts(Reflect.get(counter, "breakdownCounters"));
    }

    private List<String> added(Map<String, Long> before) {
        return Counters.added(before, counts());
    }

    private static <T> T mock(Class<T> type) {
        return Mockito.mock(type, Mockito.withSettings().stubOnly());
    }
}
