package oracle;

import com.fasterxml.jackson.databind.JsonNode;
import java.io.BufferedReader;
import java.io.FileDescriptor;
import java.io.FileOutputStream;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.io.PrintWriter;
import java.io.StringWriter;
import java.nio.charset.StandardCharsets;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.TreeMap;

/** Reads one scenario a line, a JSON object, and answers each with one line, at once. */
public final class Oracle {
    /** Runs the real classes on one scenario. */
    private interface Algorithm {
        Map<String, Object> run(JsonNode scenario) throws Exception;
    }

    private static final Map<String, Algorithm> ALGORITHMS = new TreeMap<>(Map.ofEntries(
            Map.entry("base.resource_usage", ResourceUsages::usage),
            Map.entry("extensible.BrokerLoadData", BrokerReports::load),
            Map.entry("extensible.DefaultNamespaceBundleSplitStrategyImpl", in -> new ExtensibleSplitting(in).split(in)),
            Map.entry("extensible.LeastResourceUsageWithWeight", ExtensiblePlacement::place),
            Map.entry("extensible.TopKBundles", BrokerReports::topBundles),
            Map.entry("extensible.TransferShedder", in -> new TransferShedding(in).shed(in)),
            Map.entry("modular.AvgShedder", ModularShedding::shed),
            Map.entry("modular.AvgShedder.selectBroker", AvgPlacement::place),
            Map.entry("modular.BundleSplitterTask", ModularSplitting::split),
            Map.entry("modular.LeastLongTermMessageRate", ModularPlacement::place),
            Map.entry("modular.LeastResourceUsageWithWeight", ModularPlacement::place),
            Map.entry("modular.OverloadShedder", ModularShedding::shed),
            Map.entry("modular.RoundRobinBrokerSelector", ModularPlacement::place),
            Map.entry("modular.ThresholdShedder", ModularShedding::shed),
            Map.entry("modular.UniformLoadShedder", ModularShedding::shed),
            Map.entry("naming.hash_to_bundle", Naming::hashToBundle),
            Map.entry("naming.topic_to_bundle", Naming::topicToBundle),
            Map.entry("split.boundaries", SplitBoundaries::boundaries),
            Map.entry("split.children", SplitBoundaries::children)));

    private Oracle() {
    }

    public static void main(String[] args) throws Exception {
        PrintStream out = new PrintStream(new FileOutputStream(FileDescriptor.out), false, StandardCharsets.UTF_8);
        System.setOut(System.err);
        BufferedReader scenarios = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = scenarios.readLine(); line != null; line = scenarios.readLine()) {
            out.print(Json.MAPPER.writeValueAsString(answer(Json.MAPPER.readTree(line))) + "\n");
            out.flush();
        }
        System.exit(0);     // Pulsar's classes leave threads behind
    }

    private static Map<String, Object> answer(JsonNode scenario) {
        Map<String, Object> answer = new LinkedHashMap<>();
        answer.put("id", scenario.path("id").asText());
        try {
            answer.put("java", algorithm(scenario.path("algorithm").asText()).run(scenario));
        } catch (Throwable e) {
            StringWriter trace = new StringWriter();
            e.printStackTrace(new PrintWriter(trace));
            answer.put("error", trace.toString());
        }
        return answer;
    }

    private static Algorithm algorithm(String name) {
        if (!ALGORITHMS.containsKey(name)) {
            throw new IllegalArgumentException("algorithm '" + name + "' is none of " + ALGORITHMS.keySet());
        }
        return ALGORITHMS.get(name);
    }
}
