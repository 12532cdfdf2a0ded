"""Helpers of the checks: reorder a cluster, decide several times, describe unloads by name, detect changes in place."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import fields, replace
from typing import Any

import numpy as np

from trimtab_strategies.guard import MoveLimits, movable_bundles
from trimtab_strategies.model import Brokers, Bundles, ClusterLoad, Memory, Plan
from trimtab_strategies.model.cluster_load import BoolArray, IntArray
from trimtab_strategies.planner.decide import Pair, decide
from trimtab_strategies.protocols import Shedder, Shedding

ROUNDS = 9
"""After so many decisions in a row, every strategy that counts hits has acted, if it has its default hit counts."""

MINUTE = 60.0
"""Seconds between two decisions."""


def restored(memory: Mapping[str, Any]) -> dict[str, Any]:
    """The memory as it comes back from a ConfigMap. Raises ValueError or TypeError unless it is plain JSON."""
    found: dict[str, Any] = json.loads(json.dumps(memory, allow_nan=False))
    return found


def movable(cluster: ClusterLoad) -> BoolArray:
    """The bundles (mask, m) that a shedder gets under the default limits."""
    return movable_bundles(cluster, MoveLimits()).allowed


def sheddings(shedder: Shedder, cluster: ClusterLoad, sheddable: BoolArray) -> Iterator[tuple[ClusterLoad, Shedding]]:
    """`ROUNDS` results in a row, a minute apart with the same load, each with its cluster."""
    memory: Mapping[str, Any] = {}
    for step in range(ROUNDS):
        shown = replace(cluster, now=cluster.now + MINUTE * step)
        shedding = shedder.shed(shown, sheddable, memory)
        yield shown, shedding
        memory = shedding.memory


def plans(pair: Pair, cluster: ClusterLoad, limits: MoveLimits, count: int = 4) -> Iterator[tuple[ClusterLoad, Plan]]:
    """`count` plans in a row, a minute apart with the same load, as if no move landed.

    After each plan, the memory is written as JSON and read back, as for a restart.
    """
    memory, rng = Memory(), np.random.default_rng(0)
    for step in range(count):
        shown = replace(cluster, now=cluster.now + MINUTE * step)
        plan, memory = _decided(shown, pair, limits, memory, rng)
        yield shown, plan


def _decided(
    cluster: ClusterLoad, pair: Pair, limits: MoveLimits, memory: Memory, rng: np.random.Generator
) -> tuple[Plan, Memory]:
    decision = decide(cluster, pair, limits, memory, rng)
    kept = {f.name: restored(getattr(decision.memory, f.name)) for f in fields(decision.memory)}
    return decision.plan, Memory(**kept)


def reordered(cluster: ClusterLoad, brokers: IntArray | None = None, bundles: IntArray | None = None) -> ClusterLoad:
    """The same cluster with its rows in another order. brokers (n), bundles (m): the old row of each new row."""
    order = np.arange(len(cluster.brokers)) if brokers is None else brokers
    rows = np.arange(len(cluster.bundles)) if bundles is None else bundles
    place = np.append(np.argsort(order), -1)  # the last entry is for no owner (-1)
    columns = {f.name: _taken(getattr(cluster.bundles, f.name), rows) for f in fields(cluster.bundles)}
    columns["owner"], columns["moving_from"] = place[columns["owner"]], place[columns["moving_from"]]
    return replace(
        cluster,
        brokers=Brokers(**{f.name: _taken(getattr(cluster.brokers, f.name), order) for f in fields(cluster.brokers)}),
        bundles=Bundles(**columns),
        topics=replace(cluster.topics, bundle=np.argsort(rows)[cluster.topics.bundle]),
    )


def _taken(column: Any, rows: IntArray) -> Any:
    return tuple(column[row] for row in rows.tolist()) if isinstance(column, tuple) else column[rows]


def upside_down(count: int) -> IntArray:
    """Rows (count,) from the last to the first."""
    return np.arange(count)[::-1]


def in_words(cluster: ClusterLoad, shedding: Shedding, *, by_traffic: bool = False) -> list[tuple[Any, ...]]:
    """The unloads by name, sorted. `by_traffic` names bundles by their traffic, so equal bundles have one name."""

    def bundles(rows: IntArray) -> list[Any]:
        if by_traffic:
            return sorted(tuple(traffic) for traffic in cluster.bundles.short[rows].tolist())
        return [cluster.bundles.names[row] for row in rows.tolist()]

    names = (*cluster.brokers.names, "")  # the last entry is for no destination (-1)
    return sorted(
        (names[u.broker], names[u.destination], str(u.reason), bundles(u.bundles), bundles(u.returned))
        for u in shedding.unloads
    )


class Unchanged:
    """A context that checks that its block does not change a cluster and a memory. Raises AssertionError if it does."""

    def __init__(self, cluster: ClusterLoad, memory: Mapping[str, Any]) -> None:
        """Take a snapshot of both."""
        self.cluster, self.memory = cluster, memory
        self.before, self.text = _snapshot(cluster), json.dumps(memory)

    def __enter__(self) -> None:
        """Do nothing: the constructor took the snapshots."""

    def __exit__(self, *_: object) -> None:
        assert json.dumps(self.memory) == self.text, "the memory was changed in place"
        assert _snapshot(self.cluster) == self.before, "the cluster was changed in place"


def _snapshot(cluster: ClusterLoad) -> list[bytes]:
    parts = [getattr(part, f.name) for part in (cluster.brokers, cluster.bundles, cluster.topics) for f in fields(part)]
    return [part.tobytes() if isinstance(part, np.ndarray) else repr(part).encode() for part in parts]
