package oracle;

import com.fasterxml.jackson.databind.JsonNode;
import com.google.common.hash.HashFunction;
import com.google.common.hash.Hashing;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import org.apache.pulsar.broker.PulsarService;
import org.apache.pulsar.broker.ServiceConfiguration;
import org.apache.pulsar.common.naming.NamespaceBundle;
import org.apache.pulsar.common.naming.NamespaceBundleFactory;
import org.apache.pulsar.common.naming.NamespaceBundles;
import org.apache.pulsar.common.naming.NamespaceName;
import org.apache.pulsar.common.naming.TopicName;
import org.apache.pulsar.common.policies.data.BundlesData;
import org.apache.pulsar.common.policies.data.PoliciesUtil;
import org.mockito.Mockito;

/** Runs the hash ring: from a topic or a hash to its bundle. */
final class Naming {
    private static Map<String, Long> given;
    private static NamespaceBundleFactory shared;

    private Naming() {
    }

    /** The real factory, one for all scenarios; `hashes` (topic to hash) replaces the CRC-32, null leaves it. */
    static synchronized NamespaceBundleFactory factory(Map<String, Long> hashes) {
        given = hashes;
        if (shared == null) {
            PulsarService pulsar = Mockito.mock(PulsarService.class,
                    Mockito.withSettings().stubOnly().defaultAnswer(Mockito.RETURNS_DEEP_STUBS));
            Mockito.when(pulsar.getConfiguration()).thenReturn(new ServiceConfiguration());
            HashFunction crc = Hashing.crc32();
            shared = new NamespaceBundleFactory(pulsar, crc) {
                @Override
                public long getLongHashCode(String name) {
                    return given == null ? super.getLongHashCode(name) : given.get(name);
                }
            };
        }
        return shared;
    }

    static Map<String, Object> topicToBundle(JsonNode in) {
        NamespaceBundleFactory f = factory(null);
        List<Object> res = new ArrayList<>();
        for (JsonNode t : in.get("topics")) {
            Map<String, Object> o = new LinkedHashMap<>();
            try {
                TopicName tn = TopicName.get(t.asText());
                o.put("name", tn.toString());
                o.put("hash", f.getLongHashCode(tn.toString()));
                List<String> found = new ArrayList<>();
                for (JsonNode n : in.get("num_bundles")) {
                    NamespaceBundles bs = f.getBundles(tn.getNamespaceObject(), PoliciesUtil.getBundles(n.asInt()));
                    found.add(bs.findBundle(tn).getBundleRange());
                }
                if (in.has("boundaries")) {
                    BundlesData bd = BundlesData.builder().boundaries(Json.strings(in.get("boundaries")))
                            .numBundles(in.get("boundaries").size() - 1).build();
                    found.add(f.getBundles(tn.getNamespaceObject(), bd).findBundle(tn).getBundleRange());
                }
                o.put("bundles", found);
            } catch (Exception e) {
                o.put("exception", e.getClass().getSimpleName());
            }
            res.add(o);
        }
        return Map.of("topics", res);
    }

    static Map<String, Object> hashToBundle(JsonNode in) throws Exception {
        NamespaceBundleFactory f = factory(null);
        BundlesData bd = BundlesData.builder().boundaries(Json.strings(in.get("boundaries")))
                .numBundles(in.get("boundaries").size() - 1).build();
        NamespaceBundles bs = f.getBundles(NamespaceName.get("t/n"), bd);
        Method getBundle = NamespaceBundles.class.getDeclaredMethod("getBundle", long.class);
        getBundle.setAccessible(true);
        List<Object> res = new ArrayList<>();
        for (JsonNode h : in.get("hashes")) {
            try {
                res.add(((NamespaceBundle) getBundle.invoke(bs, h.asLong())).getBundleRange());
            } catch (InvocationTargetException e) {
                res.add("exception " + e.getCause().getClass().getSimpleName());
            }
        }
        return Map.of("bundles", res);
    }
}
