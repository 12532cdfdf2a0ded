"""A broker that started lately receives fewer bundles per cycle."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, strategies as st

from planned_moves import PAIR, FixedShedder, held, moves, plan
from strategy_testing.clusters import NOW, cluster
from trimtab_strategies.guard import MoveLimits, guard, receivable
from trimtab_strategies.model import BrokerTraits, ClusterLoad, Memory, Reason
from trimtab_strategies.planner.decide import Pair, decide
from trimtab_strategies.planner.drain import Drains
from trimtab_strategies.protocols import Unload

RAMP = 600.0


def started(drawn: ClusterLoad, **ages: float) -> ClusterLoad:
    """`drawn`, where these brokers started so many seconds ago."""
    return replace(drawn, traits={name: BrokerTraits(started=NOW - age) for name, age in ages.items()})


def most(drawn: ClusterLoad, **limits: float) -> list[int]:
    return receivable(drawn, MoveLimits(ramp_up=RAMP, **limits)).tolist()  # type: ignore[arg-type]


@pytest.mark.parametrize(("age", "expected"), [(0, 1), (59, 1), (300, 5), (599, 9), (600, 10), (100000, 10)])
def test_a_new_broker_receives_a_part_that_grows_with_its_age(age: float, expected: int) -> None:
    assert most(started(cluster(a=0.9, b=0.1, c=0.1), a=1e6, b=age, c=1e6)) == [10, expected, 10]


def test_a_broker_whose_start_is_unknown_does_not_ramp_up() -> None:
    assert most(cluster(a=0.9, b=0.1)) == [10, 10]
    assert most(started(cluster(a=0.9, b=0.1), a=1)) == [1, 10]


def test_a_cluster_that_is_new_as_a_whole_does_not_ramp_up() -> None:
    new = started(cluster(a=0.9, b=0.1, c=0.1), a=5, b=5, c=5)

    assert most(new) == [10, 10, 10]
    assert most(replace(new, traits={**new.traits, "c": BrokerTraits(started=NOW - 9e5)})) == [1, 1, 10]


def test_an_old_broker_that_is_not_ready_does_not_make_the_others_new() -> None:
    assert most(started(cluster(a=0.9, b=0.1, lost=("c",), c=0.1), a=5, b=5, c=1e6)) == [10, 10, 10]


def test_without_a_ramp_all_brokers_are_alike() -> None:
    drawn = started(cluster(a=0.9, b=0.1), a=1e6, b=0)

    assert receivable(drawn, MoveLimits()).tolist() == [10, 10]
    assert guard(drawn, MoveLimits(), moved_last_hour=0).held_back == ()


@given(st.lists(st.floats(0, 2 * RAMP), min_size=1, max_size=6), st.integers(1, 50))
def test_a_broker_receives_at_least_one_and_never_less_than_a_younger_one(ages: list[float], cap: int) -> None:
    names = [f"b{row}" for row in range(len(ages))]
    drawn = started(cluster(bundles=1, **dict.fromkeys(names, 0.5)), **dict(zip(names, ages, strict=True)))

    found = most(drawn, max_moves_per_broker=cap)

    assert all(1 <= number <= cap for number in found)
    by_age = [number for _, number in sorted(zip(ages, found, strict=True))]
    assert by_age == sorted(by_age)


def test_a_plan_gives_the_rest_to_older_brokers() -> None:
    drawn = started(cluster(a=0.9, b=0.05, c=0.1, bundles={"a": [1] * 20, "b": [], "c": []}), a=1e6, b=0, c=1e6)

    destinations = [move.destination for move in plan(drawn, ramp_up=RAMP).moves]

    assert destinations.count("b") == 1
    assert destinations.count("c") > 1


def test_a_plan_without_older_brokers_waits() -> None:
    drawn = cluster(a=0.9, b=0.05, bundles={"a": [1] * 20, "b": []})
    cold = started(drawn, a=1e6, b=150)

    assert len(plan(drawn, max_moves_per_broker=8).moves) > 2
    made = plan(cold, max_moves_per_broker=8, ramp_up=RAMP)

    assert len(made.moves) == 2
    assert held(made)[Reason.RAMPING_UP] == "b"
    text = next(entry.detail for entry in made.held_back if entry.reason is Reason.RAMPING_UP)
    assert text == "started 150 s ago: receives at most 2 bundles in this cycle (limits.rampUp)"


def test_trim_waits_for_a_destination_that_ramps_up() -> None:
    """Its moves are judged as a plan: what is left of it waits, and no other plan is made of the same snapshot."""
    drawn = started(cluster(a=0.9, b=0.05, c=0.1, bundles={"a": [1] * 20, "b": [], "c": []}), a=1e6, b=0, c=1e6)
    offers = tuple(
        Unload(0, np.array([row]), Reason.OVERLOADED, destination=1 + row % 2, judged=True) for row in range(8)
    )

    made = plan(drawn, Pair(FixedShedder(offers), PAIR.placement), ramp_up=RAMP)

    assert Counter(move.destination for move in made.moves) == {"b": 1, "c": 4}
    assert held(made)[Reason.BROKER_CAP] == "a"


def test_a_drain_is_not_slowed() -> None:
    drawn = started(cluster(a=0.3, b=0.1, c=0.1, bundles={"a": [1] * 6, "b": [], "c": []}), a=1e6, b=0, c=0)
    limits, drains = MoveLimits(ramp_up=RAMP, max_moves_per_broker=6), Drains(drained=frozenset({"a"}))

    made = decide(drawn, PAIR, limits, Memory(), np.random.default_rng(0), drains=drains).plan

    assert len(moves(made)) == 6
