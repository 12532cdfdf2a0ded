package oracle;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.Map;
import java.util.TreeMap;
import java.util.function.Function;
import org.apache.pulsar.broker.PulsarService;
import org.apache.pulsar.broker.ServiceConfiguration;
import org.apache.pulsar.broker.loadbalance.impl.BundleSplitterTask;
import org.apache.pulsar.broker.namespace.NamespaceService;
import org.mockito.Mockito;

/** Runs the rule of the modular manager that says which bundles to split. */
final class ModularSplitting {
    private ModularSplitting() {
    }

    static Map<String, Object> split(JsonNode in) throws Exception {
        Map<String, JsonNode> counts = Json.fields(in.get("namespace_bundle_count"));
        PulsarService pulsar = pulsar(Settings.of(in.get("conf")),
                namespace -> counts.containsKey(namespace) ? counts.get(namespace).asInt() : null);
        return Map.of("splits", new TreeMap<>(new BundleSplitterTask().findBundlesToSplit(ModularWorld.load(in), pulsar)));
    }

    /** A PulsarService that knows its settings and how many bundles a namespace has, null where it does not. */
    static PulsarService pulsar(ServiceConfiguration conf, Function<String, Integer> bundleCounts) throws Exception {
        NamespaceService namespaces = Mockito.mock(NamespaceService.class, Mockito.withSettings().stubOnly());
        PulsarService pulsar = Mockito.mock(PulsarService.class, Mockito.withSettings().stubOnly());
        Mockito.doReturn(conf).when(pulsar).getConfiguration();
        Mockito.doReturn(namespaces).when(pulsar).getNamespaceService();
        Mockito.doAnswer(i -> Fakes.bundleCount(bundleCounts.apply(i.getArgument(0).toString())))
                .when(namespaces).getBundleCount(Mockito.any());
        return pulsar;
    }
}
