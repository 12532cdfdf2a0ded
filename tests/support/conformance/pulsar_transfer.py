"""Replays of the extensible load manager: placement, broker reports, TransferShedder, TopKBundles.

A recording has the brokers' reports (smoothed usage, heaviest bundles), which the strategy gets as its memory. Pulsar's
classes visit brokers in the order of a Java map, ours by name. So the brokers of a recording get names that begin with
their position in that map.

Pulsar's partial sort determines the order of bundles of equal weight. Our strategies order such bundles by name. So
this module implements Pulsar's sort, to compare its order with the recorded one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from conformance import pulsar_clusters
from conformance.pulsar_clusters import Algorithm, Answer, Input, candidates, names_of, params
from trimtab_strategies.filters import SYSTEM_NAMESPACE
from trimtab_strategies.hash_ring import is_monitoring
from trimtab_strategies.java_compat import SMALLEST_TABLE, hash_map_order
from trimtab_strategies.model import THROUGHPUT_IN, THROUGHPUT_OUT, ClusterLoad
from trimtab_strategies.model.cluster_load import BoolArray, IntArray
from trimtab_strategies.placement.least_resource_usage import (
    ExtensibleLeastResourceUsageWithWeight,
    ExtensibleLeastResourceUsageWithWeightParams,
)
from trimtab_strategies.shedding.transfer.reports import Reports
from trimtab_strategies.shedding.transfer.shedder import TransferOutcome, TransferShedder, TransferShedderParams
from trimtab_strategies.usage import MODULAR_COLUMNS, percent, reported_steps


def extensible_least_resource_usage(given: Input) -> Answer:
    """``extensible.LeastResourceUsageWithWeight``: the tied best brokers of each step.

    The recording has the smoothed usage that brokers reported, which the strategy gets as its memory.
    """
    placement = ExtensibleLeastResourceUsageWithWeight(
        params(ExtensibleLeastResourceUsageWithWeightParams, given["conf"])
    )
    steps = []
    for step in given["steps"]:
        ema = {name: float(value) for name, value in step["weighted_max_ema"].items()}
        cluster = pulsar_clusters.cluster({name: {} for name in [*ema, *step["candidates"]]}, {})
        memory = {"now": cluster.now, "brokers": {"ema": ema, "usage": dict.fromkeys(ema, 0.0)}}
        allowed = candidates(cluster, step["candidates"])
        best = placement.best(cluster, 0, allowed, memory).brokers if len(allowed) else allowed
        steps.append({"one_of": names_of(cluster, best)})
    return {"steps": steps}


def broker_load_data(given: Input) -> Answer:
    """``extensible.BrokerLoadData``: the averages of one broker after each of its reports."""
    shedder = TransferShedder(params(TransferShedderParams, given["conf"]))
    memory: Mapping[str, Any] = {}
    rounds = []
    for now, report in enumerate(given["rounds"]):
        cluster = pulsar_clusters.cluster({"broker": report}, {}, now)
        memory = shedder.averaged(cluster, memory)
        percents = percent(cluster.brokers.usage, cluster.brokers.limit)
        largest = np.fmax.reduce(percents[0, list(MODULAR_COLUMNS)], initial=np.float32(-np.inf))
        averages = {
            "weighted_max_ema": memory["brokers"]["ema"]["broker"],
            "msg_throughput_ema": memory["brokers"]["throughput"]["broker"],
        }
        rounds.append({**averages, "max_resource_usage": float(largest) / 100})  # only here Pulsar divides as double
    return {"rounds": rounds}


def top_k_bundles(given: Input) -> Answer:
    """``extensible.TopKBundles``: the heaviest of the reported bundles and of all bundles, each lightest first."""
    bundles, excluded = given["bundles"], given["conf"].get("loadBalancerSheddingExcludedNamespaces", ())
    reported = {name: entry for name, entry in bundles.items() if _is_reported(name, entry, excluded)}
    return {
        "partition_sort_reversed": _heaviest(bundles, given["k"]),
        "published": _heaviest(reported, given["k"]),
    }


def transfer_shedder(given: Input) -> Answer:
    """``extensible.TransferShedder``: unloads, or the reasons for none, and the state after each round."""
    tuned = params(TransferShedderParams, given["conf"])
    scene = _Scene()
    scene.set_brokers(given.get("brokers", {}))
    scene.top_bundles.update(given.get("top_bundles", {}))
    return {"rounds": [_round(scene, tuned, changes) for changes in given["rounds"]]}


ALGORITHMS: Mapping[str, Algorithm] = {
    "extensible.BrokerLoadData": broker_load_data,
    "extensible.LeastResourceUsageWithWeight": extensible_least_resource_usage,
    "extensible.TopKBundles": top_k_bundles,
    "extensible.TransferShedder": transfer_shedder,
}


UNREPORTED_USAGE = 1.0
"""Smoothed usage (ratio) of a broker that has not reported yet, as in Pulsar."""


Fields = Mapping[str, Any]


@dataclass
class _Scene:
    """The state that a scenario has set so far. brokers and top_bundles are by broker name, times in milliseconds."""

    brokers: dict[str, dict[str, Any]] = field(default_factory=dict)
    top_bundles: dict[str, list[list[Any]]] = field(default_factory=dict)
    bundles_unloaded: frozenset[str] = frozenset()
    brokers_unloaded: dict[str, float] = field(default_factory=dict)
    hits: int = 0
    _slots: int = SMALLEST_TABLE

    @property
    def walked(self) -> list[str]:
        """The brokers in the order of the recorder's map.

        ``computeIfAbsent`` has filled that map. It puts a new key before the other keys of its slot. A map that is too
        full grows only at the next call of ``computeIfAbsent``.
        """
        return hash_map_order(reversed(self.brokers), self._slots)

    def set_brokers(self, changes: Mapping[str, Fields]) -> None:
        """Merge fields. If throughput is set without its average, the average is the sum of throughput in and out."""
        for name, fields in changes.items():
            if len(self.brokers) > self._slots * 3 // 4:
                self._slots *= 2
            entry = self.brokers.setdefault(name, {})
            entry.update(fields)
            both = ("msg_throughput_in", "msg_throughput_out")
            if "msg_throughput_ema" not in fields and any(name in fields for name in both):
                entry["msg_throughput_ema"] = sum(float(entry.get(name, 0.0)) for name in both)

    def step(self, changes: Fields) -> None:
        """Apply what a round sets before the call."""
        for name in changes.get("remove_brokers", ()):
            self.brokers.pop(name, None)
            self.top_bundles.pop(name, None)
        self.set_brokers(changes.get("set_brokers", {}))
        self.top_bundles.update(changes.get("set_top_bundles", {}))
        self.top_bundles = {name: reported for name, reported in self.top_bundles.items() if reported is not None}
        self.bundles_unloaded = frozenset(changes.get("recently_unloaded_bundles", self.bundles_unloaded))
        self.brokers_unloaded = dict(changes.get("recently_unloaded_brokers", self.brokers_unloaded))


def _round(scene: _Scene, tuned: TransferShedderParams, changes: Fields) -> Answer:
    scene.step(changes)
    view = _RoundView(scene, changes, frozenset(tuned.excluded_namespaces))
    shedder = TransferShedder(tuned, view.reports)
    outcome = shedder.outcome(view.cluster, np.ones(len(view.cluster.bundles), dtype=bool), view.memory())
    scene.hits = int(outcome.shedding.memory["hits"])
    rested = {view.names[row] for row in outcome.rested}
    scene.brokers_unloaded = {name: at for name, at in scene.brokers_unloaded.items() if name not in rested}
    return view.answer(outcome, scene)


class _RoundView:
    """One round as our strategy sees it."""

    def __init__(self, scene: _Scene, changes: Fields, excluded: frozenset[str]) -> None:
        self.scene, self.changes, self.excluded = scene, changes, excluded
        walked = scene.walked
        available = changes.get("available", walked)
        missing = [name for name in available if name not in scene.brokers]
        self.names = [*walked, *missing]
        self.place = {name: f"{k:06d} {name}" for k, name in enumerate(self.names)}
        self.bundles = [entry[0] for name in self.names for entry in scene.top_bundles.get(name, ())]
        self.cluster = self._cluster(set(available))

    def _cluster(self, available: set[str]) -> ClusterLoad:
        brokers: dict[str, dict[str, Any]] = {}
        bundles: dict[str, dict[str, Any]] = {}
        for name in self.names:
            own: dict[str, dict[str, Any]] = {}
            for bundle, into, out in self.scene.top_bundles.get(name, ()):
                own[f"{bundle}#{len(bundles) + len(own)}"] = {"msg_throughput_in": into, "msg_throughput_out": out}
            bundles.update(own)
            brokers[self.place[name]] = {**self.scene.brokers.get(name, {}), "bundles": list(own)}
        now = self.changes.get("now", 0)
        ages = [now - self.scene.brokers.get(name, {}).get("updated_at", now) for name in self.names]
        cluster = pulsar_clusters.cluster(brokers, bundles, now / 1000)
        ready = np.array([name in available for name in self.names], dtype=bool)
        age = np.array(ages, dtype=np.float64) / 1000
        return replace(cluster, brokers=replace(cluster.brokers, age=age, ready=ready))

    def memory(self) -> dict[str, Any]:
        """The strategy's memory at this point."""
        known = {self.place[name]: entry for name, entry in self.scene.brokers.items()}
        unloaded = self.scene.brokers_unloaded.items()
        return {
            "now": self.cluster.now,
            "hits": self.scene.hits,
            "brokers": {
                "ema": {name: float(entry.get("weighted_max_ema", UNREPORTED_USAGE)) for name, entry in known.items()},
                "throughput": {name: float(entry.get("msg_throughput_ema", 0.0)) for name, entry in known.items()},
                "unloaded": {self.place[name]: at / 1000 for name, at in unloaded if name in self.place},
            },
        }

    def reports(self, cluster: ClusterLoad, sheddable: BoolArray, params: TransferShedderParams) -> Reports:  # noqa: ARG002 - all is recorded
        """The recorded reports of the brokers."""
        return _Recorded(self)

    def answer(self, outcome: TransferOutcome, scene: _Scene) -> Answer:
        """The round in the recording's format."""
        shedding, before, after = outcome.shedding, outcome.before, outcome.after
        moves = []
        for unload in shedding.unloads:
            source, destination = self.names[unload.broker], self._destination(unload.destination)
            back = {"source": destination, "dest": source, "reason": str(unload.reason)}
            there = {"source": source, "dest": destination, "reason": str(unload.reason)}
            moves += [{"bundle": self.bundles[row], **back} for row in unload.returned]
            moves += [{"bundle": self.bundles[row], **there} for row in unload.bundles]
        return {
            "unloads": moves,
            "skip": [f"Skip/{held.reason}" for held in shedding.held_back],
            "load_avg": None if before is None else before.mean,
            "load_std": None if before is None else before.deviation,
            "hit_count_after": scene.hits,
            "std_after": None if after is None else after.deviation,
            "recently_unloaded_brokers_after": sorted(scene.brokers_unloaded),
        }

    def _destination(self, row: int) -> str | None:
        return self.names[row] if row >= 0 else None


class _Recorded:
    """The reports of one round; rows are those of its cluster."""

    def __init__(self, view: _RoundView) -> None:
        changes, scene = view.changes, view.scene
        self._view = view
        self._not_owned = frozenset(changes.get("not_owned", ()))
        self._fixed = frozenset(changes.get("not_transferable", ()))
        self._allowed = {bundle: frozenset(names) for bundle, names in changes.get("allowed_brokers", {}).items()}
        self._filtered = bool(self._fixed or self._allowed)
        self._unloaded = scene.bundles_unloaded

    def of(self, broker: int) -> IntArray | None:
        reported = self._view.names[broker] in self._view.scene.top_bundles
        return self._view.cluster.bundles.owned_by(broker) if reported else None

    def throughput(self, bundle: int) -> float:
        short = self._view.cluster.bundles.short[bundle]
        return float(short[THROUGHPUT_IN] + short[THROUGHPUT_OUT])

    def may_leave(self, bundle: int) -> bool:
        name = self._view.bundles[bundle]
        excluded = name.rpartition("/")[0] in self._view.excluded
        return not (excluded or name in self._not_owned or name in self._unloaded)

    def may_return(self, bundle: int) -> bool:  # noqa: ARG002 - as in Pulsar, any
        return True

    def transferable(self, bundle: int, destination: int) -> bool:
        name, to = self._view.bundles[bundle], destination
        if not self._filtered:
            return True
        kept = name not in self._fixed and self._view.names[to] in self._allowed.get(name, {self._view.names[to]})
        return kept and bool(self._view.cluster.brokers.ready[to])


Weighed = tuple[tuple[int, ...], str]
"""A bundle's weight, as numbers in order of significance, and its name."""


def _is_reported(name: str, entry: Mapping[str, Any], excluded: tuple[str, ...]) -> bool:
    space = name.rpartition("/")[0]
    own = space == SYSTEM_NAMESPACE or is_monitoring(space)
    busy = float(entry.get("msg_throughput_in", 0)) + float(entry.get("msg_throughput_out", 0)) != 0
    return busy and not own and space not in excluded


def _heaviest(bundles: Mapping[str, Mapping[str, Any]], count: int) -> list[str]:
    """Names of the `count` heaviest bundles, lightest first."""
    count = min(count, len(bundles))
    ordered = partition_sort(_weighed(bundles), count) if count > 0 else []
    return [name for _, name in reversed(ordered)]


def _weighed(bundles: Mapping[str, Mapping[str, Any]]) -> list[Weighed]:
    entries = list(bundles.values())
    sessions = [sum(entry.get(what, 0) for what in ("topics", "consumer_count", "producer_count")) for entry in entries]
    cache = [entry.get("cache_size", 0) for entry in entries]
    steps = reported_steps(
        pulsar_clusters.traffic(entries), np.array(sessions, dtype=float), np.array(cache, dtype=float)
    )
    return list(zip(map(tuple, steps.tolist()), bundles, strict=True))


def partition_sort(bundles: list[Weighed], count: int) -> list[Weighed]:
    """The `count` heaviest of `bundles`, heaviest first. Equal ones are in the order of Pulsar's quick-select."""
    found, start, end = list(bundles), 0, len(bundles) - 1
    while start < end:
        first, after = _partitioned(found, start, end)
        if first <= count - 1 < after:
            end = first
            break
        start, end = (start, first - 1) if count - 1 < first else (after, end)
    found[:end] = sorted(found[:end], key=lambda bundle: bundle[0], reverse=True)
    return found[:count]


def _partitioned(found: list[Weighed], start: int, end: int) -> tuple[int, int]:
    """Partition a window by its last entry, heavier ones first; return the range of rows that equal the last entry."""
    pivot = found[end][0]
    first, here, last = start, start, end
    while here <= last:
        weight = found[here][0]
        if weight > pivot:
            found[first], found[here] = found[here], found[first]
            first, here = first + 1, here + 1
        elif weight < pivot:
            found[here], found[last] = found[last], found[here]
            last -= 1
        else:
            here += 1
    return first, here
