package oracle;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.Comparator;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.pulsar.broker.loadbalance.LoadData;
import org.apache.pulsar.broker.loadbalance.extensions.data.BrokerLoadData;
import org.apache.pulsar.broker.loadbalance.extensions.data.TopBundlesLoadData;
import org.apache.pulsar.policies.data.loadbalancer.BrokerData;
import org.apache.pulsar.policies.data.loadbalancer.BundleData;
import org.apache.pulsar.policies.data.loadbalancer.LocalBrokerData;
import org.apache.pulsar.policies.data.loadbalancer.NamespaceBundleStats;
import org.apache.pulsar.policies.data.loadbalancer.ResourceUsage;
import org.apache.pulsar.policies.data.loadbalancer.TimeAverageBrokerData;

/** The large cluster that calls are timed on; benchmarks/decide.py builds the same one and says how. */
final class BenchWorld {
    private static final int HASHED_PER_BROKER = 600;

    final int brokers;
    final int perBroker;
    private final boolean hot;

    BenchWorld(int brokers, int perBroker, boolean hot) {
        this.brokers = brokers;
        this.perBroker = perBroker;
        this.hot = hot;
    }

    private boolean burns(int i) {
        return hot && i % 10 == 0;
    }

    private double rate(int i, int j) {
        long hash = (i * HASHED_PER_BROKER + j) * 2654435761L & 0xFFFFFFFFL;
        return (20 + 80 * (hash / 4294967296.0)) * (burns(i) ? 4 : 1);
    }

    private double cpu(int i) {
        return burns(i) ? 95 : 40 + i % 7;
    }

    static String broker(int i) {
        return String.format("broker-%04d:8080", i);
    }

    private String bundle(int i, int j) {
        long step = (1L << 32) / perBroker;
        long upper = j == perBroker - 1 ? 0xFFFFFFFFL : (j + 1) * step;
        return String.format("t/n%d/0x%08x_0x%08x", i, j * step, upper);
    }

    Set<String> names() {
        Set<String> names = new HashSet<>();
        for (int i = 0; i < brokers; i++) {
            names.add(broker(i));
        }
        return names;
    }

    LoadData load() {
        LoadData load = new LoadData();
        for (int i = 0; i < brokers; i++) {
            LocalBrokerData local = new LocalBrokerData();
            Map<String, NamespaceBundleStats> stats = stats(i);
            double rate = 0;
            for (Map.Entry<String, NamespaceBundleStats> e : stats.entrySet()) {
                rate += e.getValue().msgRateIn;
                load.getBundleData().put(e.getKey(), averaged(e.getValue()));
            }
            local.setCpu(new ResourceUsage(cpu(i), 100));
            local.setBundles(new HashSet<>(stats.keySet()));
            local.setLastStats(stats);
            local.setMsgRateIn(rate);
            local.setMsgRateOut(rate);
            local.setMsgThroughputIn(1024 * rate);
            local.setMsgThroughputOut(1024 * rate);
            BrokerData data = new BrokerData(local);
            TimeAverageBrokerData average = new TimeAverageBrokerData();
            average.setLongTermMsgRateIn(rate);
            average.setLongTermMsgRateOut(rate);
            data.setTimeAverageData(average);
            load.getBrokerData().put(broker(i), data);
        }
        return load;
    }

    private static BundleData averaged(NamespaceBundleStats stats) {
        BundleData data = new BundleData(10, 1000);
        for (var average : List.of(data.getShortTermData(), data.getLongTermData())) {
            average.setMsgRateIn(stats.msgRateIn);
            average.setMsgRateOut(stats.msgRateOut);
            average.setMsgThroughputIn(stats.msgThroughputIn);
            average.setMsgThroughputOut(stats.msgThroughputOut);
        }
        return data;
    }

    Map<String, NamespaceBundleStats> stats(int i) {
        Map<String, NamespaceBundleStats> stats = new LinkedHashMap<>();
        for (int j = 0; j < perBroker; j++) {
            stats.put(bundle(i, j), stats(i, j));
        }
        return stats;
    }

    private NamespaceBundleStats stats(int i, int j) {
        NamespaceBundleStats stats = new NamespaceBundleStats();
        stats.msgRateIn = rate(i, j);
        stats.msgRateOut = stats.msgRateIn;
        stats.msgThroughputIn = 1024 * stats.msgRateIn;
        stats.msgThroughputOut = stats.msgThroughputIn;
        stats.topics = 10;
        return stats;
    }

    Map<String, BrokerLoadData> reports() {
        Map<String, BrokerLoadData> reports = new HashMap<>();
        for (int i = 0; i < brokers; i++) {
            double throughput = stats(i).values().stream().mapToDouble(s -> s.msgThroughputIn).sum();
            BrokerLoadData data = new BrokerLoadData();
            Reflect.set(data, "weightedMaxEMA", cpu(i) / 100);
            Reflect.set(data, "msgThroughputIn", throughput);
            Reflect.set(data, "msgThroughputOut", throughput);
            Reflect.set(data, "msgThroughputEMA", 2 * throughput);
            Reflect.set(data, "updatedAt", System.currentTimeMillis() + 600_000);   // never outdated while measured
            reports.put(broker(i), data);
        }
        return reports;
    }

    /** The k heaviest bundles of each broker, lightest first, as brokers publish them. */
    Map<String, TopBundlesLoadData> topBundles(int k) {
        Map<String, TopBundlesLoadData> tops = new HashMap<>();
        for (int i = 0; i < brokers; i++) {
            int broker = i;
            Integer[] rows = new Integer[perBroker];
            Arrays.setAll(rows, j -> j);
            Arrays.sort(rows, Comparator.comparingDouble(j -> rate(broker, j)));
            List<TopBundlesLoadData.BundleLoadData> top = new ArrayList<>();
            for (int q = perBroker - k; q < perBroker; q++) {
                top.add(new TopBundlesLoadData.BundleLoadData(bundle(i, rows[q]), stats(i, rows[q])));
            }
            TopBundlesLoadData data = new TopBundlesLoadData();
            data.getTopBundlesLoadData().addAll(top);
            tops.put(broker(i), data);
        }
        return tops;
    }
}
