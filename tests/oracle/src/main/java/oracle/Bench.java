package oracle;

import java.lang.management.ManagementFactory;
import java.lang.management.ThreadMXBean;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.Callable;
import org.apache.pulsar.broker.ServiceConfiguration;
import org.apache.pulsar.broker.loadbalance.LoadData;
import org.apache.pulsar.broker.loadbalance.LoadSheddingStrategy;
import org.apache.pulsar.broker.loadbalance.ModularLoadManagerStrategy;
import org.apache.pulsar.broker.loadbalance.extensions.LoadManagerContext;
import org.apache.pulsar.broker.loadbalance.extensions.data.BrokerLoadData;
import org.apache.pulsar.broker.loadbalance.extensions.models.UnloadCounter;
import org.apache.pulsar.broker.loadbalance.extensions.scheduler.TransferShedder;
import org.apache.pulsar.broker.loadbalance.impl.AvgShedder;
import org.apache.pulsar.broker.loadbalance.impl.BundleSplitterTask;
import org.apache.pulsar.broker.loadbalance.impl.LeastLongTermMessageRate;
import org.apache.pulsar.broker.loadbalance.impl.LeastResourceUsageWithWeight;
import org.apache.pulsar.broker.loadbalance.impl.RoundRobinBrokerSelector;
import org.apache.pulsar.policies.data.loadbalancer.BundleData;

/**
 * Times one call of each strategy on large clusters, after warming up; one line of JSON for each.
 *
 * <p>Arguments: the seconds that may go into one line, then sizes as brokers x bundles of each, such as 100x600.
 */
public final class Bench {
    /** Bundles in a broker's report. */
    private static final int TOP = 10;
    private static final int MOST_CALLS = 2000;

    private final double seconds;
    private final BenchWorld world;
    private final String workload;
    private final ServiceConfiguration conf = new ServiceConfiguration();

    private Bench(double seconds, int brokers, int perBroker, String workload) {
        this.seconds = seconds;
        this.world = new BenchWorld(brokers, perBroker, workload.equals("hot"));
        this.workload = workload;
        conf.setLoadBalancerAvgShedderHitCountLowThreshold(1);
        conf.setLoadBalancerAvgShedderHitCountHighThreshold(1);
        conf.setLoadBalancerSheddingConditionHitCountThreshold(0);
        conf.setLoadBalancerNamespaceBundleSplitConditionHitCountThreshold(0);
        conf.setLoadBalancerNamespaceBundleMaxMsgRate(400);
        conf.setLoadBalancerNamespaceMaximumBundles(100_000);
    }

    public static void main(String[] args) throws Exception {
        for (String size : Arrays.asList(args).subList(1, args.length)) {
            String[] numbers = size.split("x");
            for (String workload : List.of("hot", "balanced")) {
                new Bench(Double.parseDouble(args[0]), Integer.parseInt(numbers[0]), Integer.parseInt(numbers[1]),
                        workload).run();
            }
        }
        System.exit(0);
    }

    private void run() throws Exception {
        modular(world.load());
        extensible();
    }

    private void modular(LoadData load) throws Exception {
        for (String name : List.of("Threshold", "Overload", "UniformLoad", "Avg")) {
            LoadSheddingStrategy shedder = ModularShedding.shedder("modular." + name + "Shedder");
            time("impl." + name + "Shedder", "shed", () -> shedder.findBundlesForUnloading(load, conf).size());
        }
        Set<String> candidates = world.names();
        BundleData bundle = new BundleData(10, 1000);
        for (ModularLoadManagerStrategy placement : List.of(new LeastLongTermMessageRate(),
                new LeastResourceUsageWithWeight(), new RoundRobinBrokerSelector(), new AvgShedder())) {
            time("impl." + placement.getClass().getSimpleName(), "place",
                    () -> placement.selectBroker(candidates, bundle, load, conf).isPresent() ? 1 : 0);
        }
        BundleSplitterTask splitter = new BundleSplitterTask();
        var pulsar = ModularSplitting.pulsar(conf, namespace -> world.perBroker);
        time("impl.BundleSplitterTask", "split", () -> splitter.findBundlesToSplit(load, pulsar).size());
    }

    private void extensible() throws Exception {
        Map<String, BrokerLoadData> reports = world.reports();
        Map<String, Object> available = new HashMap<>();
        reports.keySet().forEach(broker -> available.put(broker, null));
        LoadManagerContext context = Fakes.context(conf, Fakes.store(reports), Fakes.store(world.topBundles(TOP)),
                Fakes.registry(available, "self"));
        TransferShedder shedder = new TransferShedder(new UnloadCounter());
        time("extensions.scheduler.TransferShedder", "shed",
                () -> shedder.findBundlesForUnloading(context, new HashMap<>(), new HashMap<>()).size());
        var placement = new org.apache.pulsar.broker.loadbalance.extensions.strategy.LeastResourceUsageWithWeight();
        Set<String> candidates = world.names();
        time("extensions.strategy.LeastResourceUsageWithWeight", "place",
                () -> placement.select(candidates, null, context).isPresent() ? 1 : 0);
        List<ExtensibleSplitting> brokers = new ArrayList<>();
        for (int i = 0; i < world.brokers; i++) {
            brokers.add(new ExtensibleSplitting(conf, world.stats(i), Map.of("t/n" + i, world.perBroker)));
        }
        time("extensions.strategy.DefaultNamespaceBundleSplitStrategyImpl", "split",
                () -> brokers.stream().mapToInt(broker -> broker.decide().size()).sum());
    }

    /** Warms up for half of the time and measures for the rest, both at least a few calls; prints the line. */
    private void time(String original, String method, Callable<Integer> call) throws Exception {
        int decisions = 0;
        double last = 0;
        long begun = System.nanoTime();
        for (int k = 0; k < 1 || (k < MOST_CALLS && since(begun) + last < seconds / 2); k++) {
            long before = System.nanoTime();
            decisions = call.call();
            last = since(before);
        }
        ThreadMXBean threads = ManagementFactory.getThreadMXBean();
        List<Double> wall = new ArrayList<>();
        List<Double> processor = new ArrayList<>();
        begun = System.nanoTime();
        while (wall.size() < 3 || (wall.size() < MOST_CALLS && since(begun) + last < seconds / 2)) {
            long busy = threads.getCurrentThreadCpuTime();
            long before = System.nanoTime();
            decisions = call.call();
            last = since(before);
            wall.add(last * 1000);
            processor.add((threads.getCurrentThreadCpuTime() - busy) / 1e6);
        }
        Map<String, Object> line = new LinkedHashMap<>();
        line.put("original", "org.apache.pulsar.broker.loadbalance." + original);
        line.put("method", method);
        line.put("brokers", world.brokers);
        line.put("per_broker", world.perBroker);
        line.put("workload", workload);
        line.put("median_ms", median(wall));
        line.put("min_ms", wall.stream().mapToDouble(d -> d).min().orElseThrow());
        line.put("cpu_median_ms", median(processor));
        line.put("calls", wall.size());
        line.put("decisions", decisions);
        System.out.println(Json.MAPPER.writeValueAsString(line));
    }

    private static double since(long begun) {
        return (System.nanoTime() - begun) / 1e9;
    }

    private static double median(List<Double> values) {
        double[] sorted = values.stream().mapToDouble(d -> d).sorted().toArray();
        return sorted[sorted.length / 2];
    }
}
