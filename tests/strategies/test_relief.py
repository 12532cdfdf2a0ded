"""The relief of one broker: down to the average, through the placement, and only where it improves the balance."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from strategy_testing.clusters import cluster, with_bundles
from trimtab_strategies import registry
from trimtab_strategies.guard import MoveLimits
from trimtab_strategies.model import ClusterLoad, Memory, Plan, Reason
from trimtab_strategies.planner.decide import decide
from trimtab_strategies.planner.drain import Drains
from trimtab_strategies.planner.relief import BrokerRelief

HOT = cluster(bundles={"a": [4, 2, 1, 1], "b": [1], "c": [1]}, a=0.8, b=0.2, c=0.2)
"""The average is 40 %; the bundles of a cause 40, 20, 10 and 10 points."""


def relieved(load: ClusterLoad, relief: BrokerRelief, limits: MoveLimits | None = None) -> Plan:
    pair = replace(registry.pair("Trim", {}, "LeastResourceUsageWithWeight", {}), shedder=relief)
    limits = limits or MoveLimits()
    plan = decide(load, pair, limits, Memory(shedder={"kept": 1}), np.random.default_rng(1), drains=Drains())
    assert plan.memory.shedder == {"kept": 1}, "the policy's own shedder remembers as before"
    return plan.plan


def test_the_largest_bundles_that_fit_leave_until_the_broker_carries_the_average() -> None:
    plan = relieved(HOT, BrokerRelief("a"))

    assert {(move.source, move.reason) for move in plan.moves} == {("a", Reason.ADMIN)}
    row = plan.brokers.index("a")
    assert plan.after[row, 0] == pytest.approx(40, abs=1)
    assert plan.after[:, 0].max() < plan.before[row, 0]


def test_a_broker_at_or_below_the_average_keeps_its_bundles() -> None:
    plan = relieved(HOT, BrokerRelief("b"))

    assert not plan.moves
    [held] = [held for held in plan.held_back if held.subject == "b"]
    assert (held.reason, held.detail) == (Reason.BALANCED, "its usage is 20%, not above the average of 40%")


def test_one_bundle_leaves_whatever_the_average_is() -> None:
    bundle = HOT.bundles.names[2]
    plan = relieved(HOT, BrokerRelief("a", bundle))

    assert [(move.bundle, move.source) for move in plan.moves] == [(bundle, "a")]


def test_a_bundle_that_a_limit_keeps_stays() -> None:
    moved_now = with_bundles(HOT, last_unload={2: HOT.now})
    plan = relieved(moved_now, BrokerRelief("a", HOT.bundles.names[2]))

    assert not plan.moves
    assert Reason.COOL_DOWN in {held.reason for held in plan.held_back}


def test_the_limits_of_the_policy_hold() -> None:
    assert len(relieved(HOT, BrokerRelief("a"), MoveLimits(max_moves_per_cycle=1)).moves) == 1


@pytest.mark.parametrize("broker", ["z", "down"])
def test_a_broker_that_takes_no_part_is_told(broker: str) -> None:
    load = cluster(bundles=2, a=0.5, b=0.5, c=0.5, d=0.5, down=0.9)
    ready = load.brokers.ready.copy()
    ready[load.brokers.index["down"]] = False
    plan = relieved(replace(load, brokers=replace(load.brokers, ready=ready)), BrokerRelief(broker))

    assert not plan.moves
    assert (broker, Reason.UNKNOWN_BROKER) in {(held.subject, held.reason) for held in plan.held_back}


def test_a_broker_with_one_huge_bundle_has_none_that_fits() -> None:
    plan = relieved(cluster(bundles={"a": [1], "b": [1], "c": [1]}, a=0.9, b=0.3, c=0.3), BrokerRelief("a"))

    assert not plan.moves
    assert (Reason.NO_BUNDLES, "a") in {(held.reason, held.subject) for held in plan.held_back}
