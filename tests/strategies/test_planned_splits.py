"""A plan that splits: the bundle is not moved as well, and its children count against the caps."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from planned_moves import FOUR_BROKERS, pair_asking_for, plan
from strategy_testing.clusters import cluster
from trimtab_strategies.guard import MoveLimits
from trimtab_strategies.model import ClusterLoad, Memory, NamespacePolicy, Reason
from trimtab_strategies.model.cluster_load import BoolArray, IntArray
from trimtab_strategies.planner.decide import decide
from trimtab_strategies.protocols import Choice, SplitCandidate, Splitting


@dataclass(frozen=True)
class Splits:
    """A splitter that divides bundle 0 at these positions and counts how often it was asked."""

    spread: bool = True
    positions: tuple[int, ...] = (0x40000000,)

    def split(self, cluster: ClusterLoad, splittable: BoolArray, memory: Mapping[str, Any]) -> Splitting:  # noqa: ARG002
        split = SplitCandidate(0, np.array(self.positions), Reason.MSG_RATE, spread=self.spread)
        return Splitting((split,), memory={"asked": memory.get("asked", 0) + 1})


class AnyBroker:
    """A placement to which all brokers are the same."""

    def best(self, cluster: ClusterLoad, bundle: int, candidates: IntArray, memory: Mapping[str, Any]) -> Choice:  # noqa: ARG002
        return Choice(candidates, memory)


def test_bundle_that_is_split_is_not_moved_in_the_same_plan() -> None:
    both = replace(pair_asking_for(0, [0, 1], 1), splitter=Splits())

    decision = decide(FOUR_BROKERS, both, MoveLimits(), Memory(splitter={"asked": 4}), np.random.default_rng(0))

    (split,) = decision.plan.splits
    assert split.bundle == "public/a/0x00000000_0x80000000"
    assert set(split.destinations) == {"d"}
    assert split.bundle not in {move.bundle for move in decision.plan.moves}
    assert decision.memory.splitter == {"asked": 5}


def test_each_child_counts_where_it_goes() -> None:
    """The namespace wants an even number of its bundles on each broker, and d stays the coldest one."""
    drawn = replace(FOUR_BROKERS, policies={"public/a": NamespacePolicy(spread=True)})
    splitter = Splits(positions=(0x20000000, 0x40000000, 0x60000000))
    pair = replace(pair_asking_for(0, [1], 1), splitter=splitter, placement=AnyBroker())

    (split,) = plan(drawn, pair, max_moves_per_cycle=10).splits

    assert split.destinations == ("d", "c", "b", "d")


def test_children_that_leave_count_against_the_cap() -> None:
    drawn = cluster(a=0.9, b=0.3, c=0.2, d=0.1, bundles={"a": [1, 1, 3], "b": [1], "c": [1], "d": [1]})
    pair = replace(pair_asking_for(0, [1], 2), splitter=Splits())

    assert not plan(drawn, pair, max_moves_per_cycle=2).moves
    assert plan(drawn, pair, max_moves_per_cycle=3).moves


def test_children_and_moves_together_keep_to_the_cap_per_broker() -> None:
    drawn = cluster(a=0.9, b=0.3, c=0.2, d=0.1, bundles={"a": [1, 1, 3], "b": [1], "c": [1], "d": [1]})
    pair = replace(pair_asking_for(0, [1], 2), splitter=Splits())

    assert not plan(drawn, pair, max_moves_per_broker=2).moves
    assert plan(drawn, pair, max_moves_per_broker=3).moves


def test_children_stay_when_the_hour_s_moves_are_spent() -> None:
    pair = replace(pair_asking_for(0, [1], 2), splitter=Splits())

    decision = decide(FOUR_BROKERS, pair, MoveLimits(), Memory(), np.random.default_rng(0), moved_last_hour=200)

    (split,) = decision.plan.splits
    assert split.destinations == ()
    assert not decision.plan.moves
