"""Small simulated clusters for tests, and a decider that follows a script."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from trimtab_lab.simulation import Orders, Scenario, World, build
from trimtab_strategies.model import CPU, ClusterLoad, Move, Reason, Split
from trimtab_strategies.planner.drain import NO_DRAINS, Drains
from trimtab_strategies.usage import percent

RNG = np.random.default_rng


def scenario(*usage: float, per_broker: int = 4, **fields: Any) -> Scenario:
    """A scenario of equal bundles without noise on brokers with this usage (ratio). fields: the scenario's."""
    given = {
        "title": "Small",
        "description": "A few brokers.",
        "machines": [{"count": len(usage), "usage": list(usage), "bundles": per_broker}],
        "tenants": [{"skew": 0, "jitter": 0}],
    }
    return Scenario.model_validate(given | fields)


def small(*usage: float, per_broker: int = 4, **fields: Any) -> World:
    """The world of `scenario`."""
    return build(scenario(*usage, per_broker=per_broker, **fields), RNG(0))


@dataclass
class Script:
    """Decides as scripted, round by round, and keeps the snapshots that it gets.

    wanted: round -> pairs of bundle and destination (rows). splits: round -> a bundle (row), boundaries, destinations
    (rows, -1 for its owner). forgot: rounds in which another leader took over. seen, drains: what it got in each round.
    """

    wanted: dict[int, list[tuple[int, int]]] = field(default_factory=dict)
    splits: dict[int, tuple[int, Sequence[int], Sequence[int]]] = field(default_factory=dict)
    seen: list[ClusterLoad] = field(default_factory=list)
    forgot: list[int] = field(default_factory=list)
    drains: list[Drains] = field(default_factory=list)

    def decide(self, cluster: ClusterLoad, _: np.random.Generator, *, drains: Drains = NO_DRAINS) -> Orders:
        """See `Decider`."""
        step = len(self.seen)
        self.seen.append(cluster)
        self.drains.append(drains)
        names, brokers = cluster.bundles.names, cluster.brokers.names
        owner = [brokers[row] if row >= 0 else "" for row in cluster.bundles.owner.tolist()]
        moves = tuple(
            Move(names[bundle], owner[bundle], brokers[broker], Reason.OVERLOADED)
            for bundle, broker in self.wanted.get(step, [])
        )
        splits: tuple[Split, ...] = ()
        if step in self.splits:
            bundle, boundaries, to = self.splits[step]
            there = tuple(brokers[row] if row >= 0 else owner[bundle] for row in to)
            splits = (Split(names[bundle], owner[bundle], tuple(boundaries), Reason.BANDWIDTH, there),)
        return Orders(moves, splits)

    def forget(self) -> None:
        """See `Decider`."""
        self.forgot.append(len(self.seen))


@dataclass
class Still:
    """Moves nothing."""

    def decide(self, *_: object, **__: object) -> Orders:
        """See `Decider`."""
        return Orders()

    def forget(self) -> None:
        """See `Decider`."""


def cpu(cluster: ClusterLoad) -> list[float]:
    """CPU percent of each broker, to a tenth."""
    found: list[float] = percent(cluster.brokers.usage, cluster.brokers.limit)[:, CPU].round(1).tolist()
    return found
