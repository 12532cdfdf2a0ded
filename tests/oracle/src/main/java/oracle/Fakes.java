package oracle;

import java.lang.reflect.Proxy;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;
import java.util.function.BiConsumer;
import org.apache.pulsar.broker.ServiceConfiguration;
import org.apache.pulsar.broker.loadbalance.extensions.BrokerRegistry;
import org.apache.pulsar.broker.loadbalance.extensions.LoadManagerContext;
import org.apache.pulsar.broker.loadbalance.extensions.store.LoadDataStore;

/** Stands in for what surrounds the strategies of the extensible manager: stores, registry, context. */
final class Fakes {
    private Fakes() {
    }

    /** A LoadDataStore backed by a plain HashMap, as the upstream unit tests use. */
    @SuppressWarnings("unchecked")
    static <T> LoadDataStore<T> store(Map<String, T> map) {
        return (LoadDataStore<T>) Proxy.newProxyInstance(Fakes.class.getClassLoader(), new Class<?>[] {LoadDataStore.class},
                (p, m, a) -> switch (m.getName()) {
                    case "get" -> Optional.ofNullable(map.get((String) a[0]));
                    case "entrySet" -> map.entrySet();
                    case "size" -> map.size();
                    case "forEach" -> {
                        map.forEach((BiConsumer<String, T>) a[0]);
                        yield null;
                    }
                    case "hashCode" -> System.identityHashCode(p);
                    case "equals" -> p == a[0];
                    case "toString" -> "store";
                    default -> throw new UnsupportedOperationException("store." + m.getName());
                });
    }

    static BrokerRegistry registry(Map<String, ?> available, String brokerId) {
        return (BrokerRegistry) Proxy.newProxyInstance(Fakes.class.getClassLoader(), new Class<?>[] {BrokerRegistry.class},
                (p, m, a) -> switch (m.getName()) {
                    case "getAvailableBrokerLookupDataAsync" -> CompletableFuture.completedFuture(new HashMap<>(available));
                    case "getAvailableBrokersAsync" ->
                            CompletableFuture.completedFuture(new ArrayList<>(available.keySet()));
                    case "getBrokerId" -> brokerId;
                    default -> throw new UnsupportedOperationException("registry." + m.getName());
                });
    }

    static LoadManagerContext context(ServiceConfiguration conf, LoadDataStore<?> brokers, LoadDataStore<?> top,
                                      BrokerRegistry registry) {
        return (LoadManagerContext) Proxy.newProxyInstance(Fakes.class.getClassLoader(),
                new Class<?>[] {LoadManagerContext.class},
                (p, m, a) -> switch (m.getName()) {
                    case "brokerConfiguration" -> conf;
                    case "brokerLoadDataStore" -> brokers;
                    case "topBundleLoadDataStore" -> top;
                    case "brokerRegistry" -> registry;
                    default -> throw new UnsupportedOperationException("context." + m.getName());
                });
    }

    /** The number of bundles of a namespace; like Pulsar's own lookup it throws where the namespace is unknown. */
    static int bundleCount(Integer known) {
        if (known == null) {
            throw new IllegalStateException("no such namespace");
        }
        return known;
    }
}
