"""Replays of shedders of Pulsar's modular manager (``modular.*Shedder``)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from conformance import pulsar_clusters
from conformance.pulsar_clusters import Algorithm, Answer, Input, candidates, names_of, params
from trimtab_strategies.hash_ring import is_monitoring
from trimtab_strategies.java_compat import concurrent_map_order, hash_map_order
from trimtab_strategies.model import ClusterLoad
from trimtab_strategies.model.cluster_load import BoolArray
from trimtab_strategies.protocols import Shedder, Shedding, forget_others
from trimtab_strategies.shedding import avg, overload, threshold, uniform

State = Callable[[ClusterLoad, Mapping[str, Any]], Answer]
"""Takes the cluster and the shedder's memory after a round. Returns the part of it that a recording contains."""


def threshold_shedder(given: Input) -> Answer:
    """``modular.ThresholdShedder``: unloads and smoothed usage after each round."""
    shedder = threshold.ThresholdShedder(params(threshold.ThresholdShedderParams, given["conf"]))
    return _rounds(given, shedder, lambda _, memory: {"ema": memory["brokers"]["ema"]}, pruned=True)


def overload_shedder(given: Input) -> Answer:
    """``modular.OverloadShedder``: unloads of each round."""
    return _rounds(given, overload.OverloadShedder(params(overload.OverloadShedderParams, given["conf"])))


def uniform_load_shedder(given: Input) -> Answer:
    """``modular.UniformLoadShedder``: unloads of each round."""
    return _rounds(given, uniform.UniformLoadShedder(params(uniform.UniformLoadShedderParams, given["conf"])))


def avg_shedder(given: Input) -> Answer:
    """``modular.AvgShedder``: unloads, scores, counters and plan after each round."""
    tuned = params(avg.AvgShedderParams, given["conf"])

    def state(cluster: ClusterLoad, memory: Mapping[str, Any]) -> Answer:
        score = avg.scores(cluster, tuned.weights).tolist()
        counted = memory["brokers"]
        return {
            "scores": dict(zip(cluster.brokers.names, score, strict=True)),
            "hit_high": counted["hitHigh"],
            "hit_low": counted["hitLow"],
            "plan": _plan(cluster, memory),
        }

    return _rounds(given, avg.AvgShedder(tuned), state)


def avg_shedder_select_broker(given: Input) -> Answer:
    """``modular.AvgShedder.selectBroker``: planned broker and possible answers, after the rounds, for each case."""
    shedder = avg.AvgShedder(params(avg.AvgShedderParams, given["conf"]))
    placement = avg.AvgShedderPlacement(avg.AvgShedderPlacementParams())
    cluster, memory = pulsar_clusters.cluster(given["brokers"], given["bundles"]), dict[str, Any]()
    for cluster, shedding in _played(given, shedder):  # noqa: B007 - the last one counts
        memory = dict(shedding.memory)
    plan = memory.get("planByStatistics", [])
    for bundle, destination in given.get("plan", {}).items():
        plan = avg.put(plan, cluster, cluster.bundles.index[bundle], destination)
    memory["planByStatistics"] = plan
    return {"cases": [_selected(placement, cluster, case, memory) for case in given["cases"]]}


def _selected(
    placement: avg.AvgShedderPlacement, cluster: ClusterLoad, case: Mapping[str, Any], memory: Mapping[str, Any]
) -> Answer:
    bundle, allowed = cluster.bundles.index[case["bundle"]], candidates(cluster, case["candidates"])
    if not len(allowed):
        return {"exception": "ArithmeticException"}
    best = placement.best(cluster, bundle, allowed, memory).brokers
    again = [
        placement.best(cluster, bundle, allowed, placement.chosen(cluster, bundle, pick, memory)).brokers.tolist()
        for pick in best.tolist()
    ]
    return {
        "one_of": names_of(cluster, best),
        "planned": placement.planned(cluster, bundle, memory),
        "second_call_same": again == [[pick] for pick in best.tolist()],
    }


def _plan(cluster: ClusterLoad, memory: Mapping[str, Any]) -> dict[str, str]:
    """For each bundle with averages the planned broker, as a look-up finds it now."""
    rows = np.flatnonzero(np.isfinite(cluster.bundles.short).all(axis=1)).tolist()
    found = {row: avg.look_up(memory.get("planByStatistics", ()), cluster, row) for row in rows}
    return {cluster.bundles.names[row]: name for row, name in found.items() if name is not None}


def _rounds(given: Input, shedder: Shedder, state: State | None = None, *, pruned: bool = False) -> Answer:
    rounds: list[Answer] = []
    for cluster, shedding in _played(given, shedder, pruned=pruned):
        unloads = {
            cluster.brokers.names[unload.broker]: [cluster.bundles.names[row] for row in unload.bundles]
            for unload in shedding.unloads
        }
        rounds.append({"unloads": unloads})
        if state is not None:
            rounds[-1]["state"] = state(cluster, shedding.memory)
    return {"rounds": rounds}


def _played(given: Input, shedder: Shedder, *, pruned: bool = False) -> Iterator[tuple[ClusterLoad, Shedding]]:
    """Each round's cluster and answer. pruned: whether Pulsar's shedder drops brokers that are no longer active."""
    brokers = {name: dict(entry) for name, entry in given["brokers"].items()}
    bundles = {name: dict(entry) for name, entry in given["bundles"].items()}
    unloaded: list[str] = []
    memory: Mapping[str, Any] = {}
    for step in given["rounds"]:
        _remove(brokers, step.get("remove_brokers", ()))
        _remove(bundles, step.get("remove_bundles", ()))
        pulsar_clusters.merge(brokers, step.get("set_brokers", {}))
        pulsar_clusters.merge(bundles, step.get("set_bundles", {}))
        unloaded = step.get("recently_unloaded", unloaded)
        if step.get("notify_active") and pruned:
            memory = forget_others(memory, list(brokers))
        cluster = pulsar_clusters.cluster(brokers, _in_java_order(bundles))
        shedding = shedder.shed(cluster, _sheddable(cluster, unloaded), memory)
        memory = shedding.memory
        yield cluster, shedding


def _in_java_order(bundles: Mapping[str, pulsar_clusters.Fields]) -> dict[str, pulsar_clusters.Fields]:
    """The bundles in Pulsar's order: that of a hash map that is filled from a concurrent map."""
    sheddable = [name for name in bundles if not is_monitoring(name.rpartition("/")[0])]
    walked = hash_map_order(concurrent_map_order(sheddable))
    return {name: bundles[name] for name in dict.fromkeys([*walked, *bundles])}


def _remove(entries: dict[str, Any], names: list[str]) -> None:
    for name in names:
        entries.pop(name, None)


def _sheddable(cluster: ClusterLoad, unloaded: list[str]) -> BoolArray:
    """Bundles that have averages, are past their grace period, and are not a broker's own heartbeat."""
    bundles = cluster.bundles
    recent = np.isin(np.array(bundles.names, dtype=object), unloaded)
    monitoring = np.array([is_monitoring(name) for name in cluster.namespaces], dtype=bool)[bundles.namespace]
    allowed: BoolArray = np.isfinite(bundles.short).all(axis=1) & ~recent & ~monitoring
    return allowed


ALGORITHMS: Mapping[str, Algorithm] = {
    "modular.ThresholdShedder": threshold_shedder,
    "modular.OverloadShedder": overload_shedder,
    "modular.UniformLoadShedder": uniform_load_shedder,
    "modular.AvgShedder": avg_shedder,
    "modular.AvgShedder.selectBroker": avg_shedder_select_broker,
}
