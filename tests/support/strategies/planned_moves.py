"""A shedder and a placement whose answers a test sets, and the plan that a balancer makes from them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from strategy_testing.clusters import cluster
from trimtab_strategies import registry
from trimtab_strategies.guard import MoveLimits
from trimtab_strategies.model import ClusterLoad, Memory, Plan, Reason
from trimtab_strategies.model.cluster_load import BoolArray, IntArray
from trimtab_strategies.planner.decide import Pair, decide
from trimtab_strategies.protocols import Choice, Shedding, Unload

PAIR = registry.pair(
    "ThresholdShedder", {"historyPercent": 0}, "ExtensibleLeastResourceUsageWithWeight", {"historyPercent": 0}
)


@dataclass(frozen=True)
class FixedShedder:
    """A shedder that answers with exactly these unloads."""

    unloads: tuple[Unload, ...]

    def shed(self, cluster: ClusterLoad, sheddable: BoolArray, memory: Mapping[str, Any]) -> Shedding:  # noqa: ARG002
        return Shedding(self.unloads, target_weights={"a": 1.0})


def pair_asking_for(source: int, bundles: list[int], destination: int, returned: Sequence[int] = ()) -> Pair:
    """A pair whose shedder requests this move or swap, and whose placement prefers the last of four brokers."""
    unload = Unload(source, np.array(bundles), Reason.OVERLOADED, destination, np.array(returned, dtype=np.int64))
    return Pair(FixedShedder((unload,)), FixedPlacement((3,)))


@dataclass(frozen=True)
class FixedPlacement:
    """A placement that always answers with these brokers (rows)."""

    brokers: tuple[int, ...]

    def best(self, cluster: ClusterLoad, bundle: int, candidates: IntArray, memory: Mapping[str, Any]) -> Choice:  # noqa: ARG002
        return Choice(np.array(self.brokers), memory)


def plan(drawn: ClusterLoad, pair: Pair = PAIR, *, moved_last_hour: int = 0, **limits: Any) -> Plan:
    rng = np.random.default_rng(0)
    return decide(drawn, pair, MoveLimits(**limits), Memory(), rng, moved_last_hour=moved_last_hour).plan


def held(plan: Plan) -> dict[Reason, str]:
    return {entry.reason: entry.subject for entry in plan.held_back}


def moves(made: Plan) -> list[tuple[str, str, str]]:
    return [(move.bundle.removeprefix("public/"), move.source, move.destination) for move in made.moves]


FOUR_BROKERS = cluster(a=0.9, b=0.3, c=0.2, d=0.1, bundles={"a": [1, 3], "b": [1], "c": [1], "d": [1]})
