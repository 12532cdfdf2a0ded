package oracle;

import com.fasterxml.jackson.databind.JsonNode;
import com.github.benmanes.caffeine.cache.AsyncLoadingCache;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeSet;
import java.util.concurrent.CompletableFuture;
import org.apache.pulsar.broker.namespace.NamespaceService;
import org.apache.pulsar.common.naming.BundleSplitOption;
import org.apache.pulsar.common.naming.FlowOrQpsEquallyDivideBundleSplitAlgorithm;
import org.apache.pulsar.common.naming.FlowOrQpsEquallyDivideBundleSplitOption;
import org.apache.pulsar.common.naming.NamespaceBundle;
import org.apache.pulsar.common.naming.NamespaceBundleFactory;
import org.apache.pulsar.common.naming.NamespaceBundleSplitAlgorithm;
import org.apache.pulsar.common.naming.NamespaceBundles;
import org.apache.pulsar.common.naming.NamespaceName;
import org.apache.pulsar.common.naming.RangeEquallyDivideBundleSplitAlgorithm;
import org.apache.pulsar.common.naming.SpecifiedPositionsBundleSplitAlgorithm;
import org.apache.pulsar.common.naming.TopicCountEquallyDivideBundleSplitAlgorithm;
import org.apache.pulsar.common.policies.data.BundlesData;
import org.apache.pulsar.common.policies.data.stats.TopicStatsImpl;
import org.mockito.Mockito;

/** Runs the algorithms that say where to split, and the split itself. */
final class SplitBoundaries {
    private static List<String> ownedTopics;
    private static NamespaceService topicService;

    private SplitBoundaries() {
    }

    static Map<String, Object> boundaries(JsonNode in) {
        List<Object> cases = new ArrayList<>();
        in.get("cases").forEach(c -> cases.add(boundariesOf(c)));
        return Map.of("cases", cases);
    }

    private static Map<String, Object> boundariesOf(JsonNode c) {
        List<String> topics = topics(c);
        NamespaceBundle bundle = Naming.factory(hashes(c, topics)).getBundle(NamespaceName.get("t/n"),
                NamespaceBundleFactory.getRange(c.get("lower").asLong(), c.get("upper").asLong()));
        Map<String, Object> o = new LinkedHashMap<>();
        try {
            o.put("boundaries", algorithm(c).getSplitBoundary(option(c, bundle, topics)).join());
        } catch (RuntimeException e) {
            o.put("exception", cause(e));
        }
        return o;
    }

    private static List<String> topics(JsonNode c) {
        if (!c.has("hashes")) {
            return Json.strings(c.get("topics"));
        }
        List<String> topics = new ArrayList<>();
        for (int i = 0; i < c.get("hashes").size(); i++) {
            topics.add("persistent://t/n/topic-" + i);
        }
        return topics;
    }

    private static Map<String, Long> hashes(JsonNode c, List<String> topics) {
        if (!c.has("hashes")) {
            return null;
        }
        Map<String, Long> hashes = new HashMap<>();
        for (int i = 0; i < topics.size(); i++) {
            hashes.put(topics.get(i), c.get("hashes").get(i).asLong());
        }
        return hashes;
    }

    private static NamespaceBundleSplitAlgorithm algorithm(JsonNode c) {
        String name = c.get("algorithm").asText();
        return switch (name) {
            case "range_equally_divide" -> new RangeEquallyDivideBundleSplitAlgorithm();
            case "topic_count_equally_divide" -> new TopicCountEquallyDivideBundleSplitAlgorithm();
            case "specified_positions_divide" -> new SpecifiedPositionsBundleSplitAlgorithm();
            case "specified_positions_divide_force" -> new SpecifiedPositionsBundleSplitAlgorithm(true);
            case "flow_or_qps_equally_divide" -> new FlowOrQpsEquallyDivideBundleSplitAlgorithm();
            default -> throw new IllegalArgumentException(name);
        };
    }

    private static BundleSplitOption option(JsonNode c, NamespaceBundle bundle, List<String> topics) {
        NamespaceService namespaces = owning(topics);
        List<Long> positions = longs(c.get("positions"));
        if (!c.has("stats")) {
            return new BundleSplitOption(namespaces, bundle, positions);
        }
        Map<String, TopicStatsImpl> stats = new HashMap<>();
        for (int i = 0; i < topics.size(); i++) {
            JsonNode values = c.get("stats").get(i);
            if (!values.isNull()) {
                TopicStatsImpl topic = new TopicStatsImpl();
                topic.msgRateIn = Json.num(values.get(0), 0);
                topic.msgThroughputIn = Json.num(values.get(1), 0);
                stats.put(topics.get(i), topic);
            }
        }
        return new FlowOrQpsEquallyDivideBundleSplitOption(namespaces, bundle, positions, stats,
                c.get("max_msg_rate").asInt(), c.get("max_bandwidth_mbytes").asInt(), c.get("diff_percent").asInt());
    }

    /** A NamespaceService whose bundles own the given topics. */
    private static synchronized NamespaceService owning(List<String> topics) {
        ownedTopics = topics;
        if (topicService == null) {
            topicService = Mockito.mock(NamespaceService.class, Mockito.withSettings().stubOnly());
            Mockito.doAnswer(i -> CompletableFuture.completedFuture(ownedTopics)).when(topicService)
                    .getOwnedTopicListForNamespaceBundle(Mockito.any());
        }
        return topicService;
    }

    private static List<Long> longs(JsonNode values) {
        List<Long> out = new ArrayList<>();
        if (values != null) {
            values.forEach(value -> out.add(value.asLong()));
        }
        return out;
    }

    /** The children of a split at the given boundaries; without any, of a plain split into equal parts. */
    static Map<String, Object> children(JsonNode in) {
        List<Object> cases = new ArrayList<>();
        in.get("cases").forEach(c -> cases.add(childrenOf(c)));
        return Map.of("cases", cases);
    }

    private static Map<String, Object> childrenOf(JsonNode c) {
        NamespaceBundleFactory factory = Naming.factory(null);
        Map<String, Object> o = new LinkedHashMap<>();
        try {
            NamespaceBundle parent = factory.getBundle("t/n", c.get("parent").asText());
            o.put("can_split", factory.canSplitBundle(parent));
            AsyncLoadingCache<NamespaceName, NamespaceBundles> cache = Reflect.get(factory, "bundlesCache");
            cache.put(NamespaceName.get("t/n"), CompletableFuture.completedFuture(surrounding(factory, parent)));
            List<Long> boundaries = c.has("boundaries") ? longs(c.get("boundaries")) : null;
            List<String> children = new ArrayList<>();
            factory.splitBundles(parent, c.path("num_bundles").asInt(2), boundaries).join().getRight()
                    .forEach(child -> children.add(child.getBundleRange()));
            o.put("children", children);
        } catch (RuntimeException e) {
            o.put("exception", cause(e));
        }
        return o;
    }

    /** A namespace of the parent and of the one bundle to each side that completes the ring. */
    private static NamespaceBundles surrounding(NamespaceBundleFactory factory, NamespaceBundle parent) {
        TreeSet<String> edges = new TreeSet<>(List.of("0x00000000", "0xffffffff"));
        edges.add(String.format("0x%08x", parent.getKeyRange().lowerEndpoint()));
        edges.add(String.format("0x%08x", parent.getKeyRange().upperEndpoint()));
        return factory.getBundles(NamespaceName.get("t/n"),
                BundlesData.builder().boundaries(new ArrayList<>(edges)).numBundles(edges.size() - 1).build());
    }

    private static String cause(RuntimeException e) {
        return (e.getCause() == null ? e : e.getCause()).getClass().getSimpleName();
    }
}
