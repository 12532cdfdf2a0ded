package oracle;

import com.fasterxml.jackson.databind.JsonNode;
import java.util.Map;
import java.util.TreeMap;
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
        ServiceConfiguration conf = Settings.of(in.get("conf"));
        Map<String, JsonNode> counts = Json.fields(in.get("namespace_bundle_count"));
        NamespaceService namespaces = Mockito.mock(NamespaceService.class, Mockito.withSettings().stubOnly());
        PulsarService pulsar = Mockito.mock(PulsarService.class, Mockito.withSettings().stubOnly());
        Mockito.doReturn(conf).when(pulsar).getConfiguration();
        Mockito.doReturn(namespaces).when(pulsar).getNamespaceService();
        Mockito.doAnswer(i -> {
            JsonNode count = counts.get(i.getArgument(0).toString());
            return Fakes.bundleCount(count == null ? null : count.asInt());
        }).when(namespaces).getBundleCount(Mockito.any());
        return Map.of("splits", new TreeMap<>(new BundleSplitterTask().findBundlesToSplit(ModularWorld.load(in), pulsar)));
    }
}
