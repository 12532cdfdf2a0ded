"""Recorded decisions of ``extensible.TransferShedder``, run here.

A recording gives what brokers reported (smoothed usage, heaviest bundles), so that is handed in as what the strategy
remembers and is told. Pulsar's classes meet the brokers in the order of a Java map, ours by name: so the brokers of a
recording get names that begin with their place in that map.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from trimtab_strategies.conformance import world
from trimtab_strategies.conformance.shared import Answer, Input, params
from trimtab_strategies.java import SMALLEST_TABLE, hash_map_order
from trimtab_strategies.model import THROUGHPUT_IN, THROUGHPUT_OUT, ClusterLoad
from trimtab_strategies.model.load import BoolArray, IntArray
from trimtab_strategies.shedding.top_bundles import Reports
from trimtab_strategies.shedding.transfer import Outcome, TransferShedder, TransferShedderParams

UNREPORTED_USAGE = 1.0
"""Smoothed usage (ratio) of a broker that has not reported yet, as in Pulsar."""

Fields = Mapping[str, Any]


def transfer_shedder(given: Input) -> Answer:
    """``extensible.TransferShedder``: unloads, or why there are none, and the state after each round."""
    tuned = params(TransferShedderParams, given["conf"])
    scene = _Scene()
    scene.set_brokers(given.get("brokers", {}))
    scene.top_bundles.update(given.get("top_bundles", {}))
    return {"rounds": [_round(scene, tuned, changes) for changes in given["rounds"]]}


@dataclass
class _Scene:
    """What a scenario has set so far. brokers and top_bundles are by broker name, times in milliseconds."""

    brokers: dict[str, dict[str, Any]] = field(default_factory=dict)
    top_bundles: dict[str, list[list[Any]]] = field(default_factory=dict)
    bundles_unloaded: frozenset[str] = frozenset()
    brokers_unloaded: dict[str, float] = field(default_factory=dict)
    hits: int = 0
    _slots: int = SMALLEST_TABLE

    @property
    def walked(self) -> list[str]:
        """The brokers in the order of the recorder's map.

        It was filled by ``computeIfAbsent``, which puts a key in front of its slot and grows only at the next call.
        """
        return hash_map_order(reversed(self.brokers), self._slots)

    def set_brokers(self, changes: Mapping[str, Fields]) -> None:
        """Merge fields; a throughput without its average is its own average."""
        for name, fields in changes.items():
            if len(self.brokers) > self._slots * 3 // 4:
                self._slots *= 2
            entry = self.brokers.setdefault(name, {})
            entry.update(fields)
            if "msg_throughput_ema" not in fields and {"msg_throughput_in", "msg_throughput_out"} & fields.keys():
                entry["msg_throughput_ema"] = sum(map(float, _throughputs(entry)))

    def step(self, changes: Fields) -> None:
        """Take over what a round sets before the call."""
        for name in changes.get("remove_brokers", ()):
            self.brokers.pop(name, None)
            self.top_bundles.pop(name, None)
        self.set_brokers(changes.get("set_brokers", {}))
        self.top_bundles.update(changes.get("set_top_bundles", {}))
        self.top_bundles = {name: reported for name, reported in self.top_bundles.items() if reported is not None}
        self.bundles_unloaded = frozenset(changes.get("recently_unloaded_bundles", self.bundles_unloaded))
        self.brokers_unloaded = dict(changes.get("recently_unloaded_brokers", self.brokers_unloaded))


def _throughputs(entry: Fields) -> tuple[float, float]:
    return entry.get("msg_throughput_in", 0.0), entry.get("msg_throughput_out", 0.0)


def _round(scene: _Scene, tuned: TransferShedderParams, changes: Fields) -> Answer:
    scene.step(changes)
    view = _View(scene, changes, frozenset(tuned.excluded_namespaces))
    shedder = TransferShedder(tuned, view.reports)
    outcome = shedder.outcome(view.cluster, np.ones(len(view.cluster.bundles), dtype=bool), view.memory())
    scene.hits = int(outcome.shedding.memory["hits"])
    rested = {view.names[row] for row in outcome.rested}
    scene.brokers_unloaded = {name: at for name, at in scene.brokers_unloaded.items() if name not in rested}
    return view.answer(outcome, scene)


class _View:
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
        cluster = world.cluster(brokers, bundles, now / 1000)
        ready = np.array([name in available for name in self.names], dtype=bool)
        age = np.array(ages, dtype=np.float64) / 1000
        return replace(cluster, brokers=replace(cluster.brokers, age=age, ready=ready))

    def memory(self) -> dict[str, Any]:
        """What the strategy remembers at this point."""
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
        """What was recorded of the brokers' reports."""
        return _Recorded(self)

    def answer(self, outcome: Outcome, scene: _Scene) -> Answer:
        """The round in the recording's shape."""
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

    def __init__(self, view: _View) -> None:
        changes, scene = view.changes, view.scene
        self._view = view
        self._not_owned = frozenset(changes.get("not_owned", ()))
        self._fixed = frozenset(changes.get("not_transferable", ()))
        self._allowed = {bundle: frozenset(names) for bundle, names in changes.get("allowed_brokers", {}).items()}
        self._filtered = bool(self._fixed or self._allowed)
        self._unloaded = scene.bundles_unloaded

    def of(self, broker: int) -> IntArray | None:
        """See `Reports`."""
        reported = self._view.names[broker] in self._view.scene.top_bundles
        return self._view.cluster.bundles.owned_by(broker) if reported else None

    def throughput(self, bundle: int) -> float:
        """See `Reports`."""
        short = self._view.cluster.bundles.short[bundle]
        return float(short[THROUGHPUT_IN] + short[THROUGHPUT_OUT])

    def may_leave(self, bundle: int) -> bool:
        """See `Reports`."""
        name = self._view.bundles[bundle]
        excluded = name.rpartition("/")[0] in self._view.excluded
        return not (excluded or name in self._not_owned or name in self._unloaded)

    def may_return(self, bundle: int) -> bool:  # noqa: ARG002 - as in Pulsar, any
        """See `Reports`."""
        return True

    def transferable(self, bundle: int, destination: int) -> bool:
        """See `Reports`."""
        name, to = self._view.bundles[bundle], destination
        if not self._filtered:
            return True
        kept = name not in self._fixed and self._view.names[to] in self._allowed.get(name, {self._view.names[to]})
        return kept and bool(self._view.cluster.brokers.ready[to])
