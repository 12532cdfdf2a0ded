"""The audit of a decision: the brokers that did not get a bundle, and the bundles that stay."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from strategy_testing.clusters import cluster, with_bundles
from trimtab_strategies import registry
from trimtab_strategies.guard import MoveLimits
from trimtab_strategies.model import ClusterLoad, Considered, Isolation, Memory, NamespacePolicy, Plan, Reason
from trimtab_strategies.planner.audit import BROKERS, BUNDLES, MOVES, REJECTED, DecisionAudit
from trimtab_strategies.planner.decide import decide

PAIR = registry.pair(
    "ThresholdShedder",
    {"historyPercent": 0, "min_throughput": 0},
    "LeastResourceUsageWithWeight",
    {"historyPercent": 0, "average_difference": 5},
)


def planned(load: ClusterLoad, limits: MoveLimits = MoveLimits()) -> Plan:  # noqa: B008 - a frozen value
    return decide(load, PAIR, limits, Memory(), np.random.default_rng(1)).plan


def rejected(considered: Considered, move: int = 0) -> Mapping[str, Reason]:
    return {other.broker: other.reason for other in considered.candidates[move].rejected}


def stays(considered: Considered) -> Mapping[str, Reason]:
    return {bundle.bundle: bundle.reason for bundle in considered.staying}


def test_every_move_says_why_the_other_brokers_did_not_get_the_bundle() -> None:
    #  hot gives 30 points away: full would be busier than hot is, cordoned takes nothing, lost is away
    load = cluster(
        bundles={"hot": [3, 3, 3], "full": [1], "cordoned": [1], "gone": [1], "idle": [1], "mid": [1], "low": [1]},
        unschedulable=["cordoned"],
        lost=["gone"],
        hot=0.9,
        full=0.65,
        cordoned=0.1,
        gone=0.1,
        idle=0.05,
        mid=0.3,
        low=0.1,
    )
    plan = planned(load, MoveLimits(max_moves_per_cycle=1))

    [move] = plan.moves
    told = plan.considered.candidates[0]
    assert (round(told.before), round(told.after)) == (90, {"idle": 35, "low": 40, "mid": 60}[move.destination])
    assert rejected(plan.considered) == {
        **dict.fromkeys({"idle", "low", "mid"} - {move.destination}, Reason.NOT_CHOSEN),
        "full": Reason.NO_CANDIDATE,
        "cordoned": Reason.UNSCHEDULABLE,
        "gone": Reason.NOT_READY,
    }


def test_a_broker_that_a_filter_takes_out_is_reported_with_the_filters_reason() -> None:
    load = cluster(bundles={"hot": [3, 3, 3], "b": [1], "c": [1]}, hot=0.9, b=0.1, c=0.2)
    only_c = NamespacePolicy(isolation=Isolation(primary=("hot", "c")))
    plan = planned(replace(load, policies={"public/hot": only_c}), MoveLimits(max_moves_per_cycle=1))

    assert [move.destination for move in plan.moves] == ["c"]
    assert rejected(plan.considered) == {"b": Reason.ISOLATION}


def test_a_broker_whose_cap_is_reached_gets_that_reason() -> None:
    load = cluster(bundles={"hot": [1] * 20, "b": [1], "c": [1]}, hot=0.9, b=0.1, c=0.11)
    considered = planned(load, MoveLimits(max_moves_per_broker=1)).considered

    assert len(considered.candidates) == 1
    stay = stays(considered)
    assert Reason.BROKER_CAP in stay.values()
    assert Reason.NOT_CHOSEN in stay.values()


def test_the_largest_bundles_of_a_hot_broker_say_why_they_stay() -> None:
    load = cluster(bundles={"hot": [5, 4, 3, 2, 1, 1, 1, 1], "b": [1], "c": [1]}, hot=0.9, b=0.1, c=0.1)
    load = with_bundles(load, pinned={0: True}, last_unload={1: load.now - 10}, short={2: [math.nan, 1, 1, 1]})
    plan = planned(load, MoveLimits(max_moves_per_cycle=1))
    told = {row.bundle: row for row in plan.considered.staying}
    names = load.bundles.names

    assert told[names[0]].reason is Reason.PINNED
    assert told[names[1]].reason is Reason.COOL_DOWN
    assert (told[names[2]].reason, told[names[2]].detail) == (Reason.NO_LOAD_DATA, "no rateIn")
    assert {told[names[k]].reason for k in range(4, 8)} <= {Reason.CYCLE_CAP, Reason.NOT_CHOSEN}
    assert plan.moves[0].bundle not in told
    assert math.isclose(told[names[0]].load, 30, rel_tol=0.01), "bundles without data are left out of the sum"


def test_on_a_level_cluster_bundles_stay_because_it_is_balanced() -> None:
    considered = planned(cluster(bundles=3, a=0.5, b=0.5)).considered

    assert not considered.candidates
    assert set(stays(considered).values()) == {Reason.BALANCED}
    assert considered.counts == {"a": 3, "b": 3}


def test_a_broker_that_is_not_trusted_keeps_its_bundles_for_that_reason() -> None:
    load = cluster(bundles=2, untrusted=["x"], a=0.5, b=0.5, c=0.5, x=0.9)
    told = planned(load).considered.staying

    assert {row.reason for row in told if row.broker == "x"} == {Reason.OUT_DATED_DATA}


def test_a_cycle_that_the_guard_refuses_has_examined_no_bundle() -> None:
    assert planned(cluster(bundles=2, lost=["a", "b"], a=0.1, b=0.1, c=0.9)).considered == Considered()


def test_what_is_noted_down_is_bounded() -> None:
    names = {f"b{k:03}": 0.1 + 0.8 * (k % 2) for k in range(60)}
    load = cluster(bundles=200, **names)
    plan = planned(load, MoveLimits(max_moves_per_cycle=1000, max_moves_per_broker=1000, max_moves_per_hour=1000))

    assert len(plan.moves) > MOVES
    assert len(plan.considered.candidates) == MOVES
    assert len(plan.considered.counts) == BROKERS
    assert len(plan.considered.staying) <= BROKERS * BUNDLES
    first = plan.considered.candidates[0]
    assert len(first.rejected) == REJECTED
    assert len(first.rejected) + sum(map(len, first.others.values())) == 60 - 2


def test_noting_down_takes_milliseconds_at_a_hundred_brokers_and_60_000_bundles(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    drawn = np.random.default_rng(5)
    usage = {f"b{k:03}": float(drawn.uniform(0.3, 0.9)) for k in range(100)}
    load = cluster(bundles={name: drawn.random(600).tolist() for name in usage}, **usage)
    spent = [0.0]

    def timed(method: Callable[..., Any]) -> Callable[..., Any]:
        def run(*arguments: Any) -> Any:
            begun = time.thread_time()
            answer = method(*arguments)
            spent[0] += time.thread_time() - begun
            return answer

        return run

    monkeypatch.setattr(DecisionAudit, "move", timed(DecisionAudit.move))
    monkeypatch.setattr(DecisionAudit, "considered", timed(DecisionAudit.considered))
    best = math.inf
    for _ in range(5):
        spent[0] = 0.0
        assert len(planned(load, MoveLimits(max_moves_per_cycle=MOVES)).moves) == MOVES
        best = min(best, spent[0])

    assert best < 0.015, f"{best * 1000:.1f} ms; 3 to 6 ms were measured"
