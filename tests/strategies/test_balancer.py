"""The balancer: what a pair's answers become, and what is held back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from planned_moves import PAIR, FixedPlacement, held, moves, plan
from strategy_testing.clusters import cluster, with_bundles
from trimtab_strategies.guard import MoveLimits
from trimtab_strategies.model import CPU, ClusterLoad, Memory, Reason
from trimtab_strategies.model.cluster_load import BoolArray
from trimtab_strategies.planner.decide import Pair, decide
from trimtab_strategies.protocols import Shedding, Unload


@dataclass(frozen=True)
class Sheds:
    """A shedder that says the same every time: broker row to bundle rows."""

    unloads: Mapping[int, list[int]]

    def shed(self, cluster: ClusterLoad, sheddable: BoolArray, memory: Mapping[str, Any]) -> Shedding:  # noqa: ARG002
        rows = ((broker, np.array(bundles)) for broker, bundles in self.unloads.items())
        return Shedding(tuple(Unload(broker, bundles, Reason.OVERLOADED) for broker, bundles in rows))


def test_hot_broker_gives_to_the_cold_ones() -> None:
    # a 80 %, b and c 20 %, average 40: 35 of a's 100 parts should go, four bundles of eight points
    made = plan(cluster(a=0.8, b=0.2, c=0.2, bundles=10))

    assert {(move.source, move.reason) for move in made.moves} == {("a", Reason.OVERLOADED)}
    assert {move.destination for move in made.moves} == {"b", "c"}
    assert [move.load for move in made.moves] == pytest.approx([8] * 4)
    assert made.before[:, CPU] == pytest.approx([80, 20, 20])
    assert made.after[:, CPU].sum() == pytest.approx(120)
    assert made.after[0, CPU] == pytest.approx(48)
    assert str(made.moves[0]).startswith("public/a/0x00000000_0x19999999: a -> ")


def test_level_cluster_says_that_it_is_level() -> None:
    made = plan(cluster(a=0.5, b=0.5))

    assert made.empty
    assert held(made) == {Reason.BALANCED: ""}


def test_each_placement_sees_the_ones_before() -> None:
    # Everything a sheds would fit on any of the three cold brokers; it is spread because each one warms up.
    made = plan(cluster(a=1.0, b=0.0, c=0.0, d=0.0, bundles=20))

    counts = Counter(move.destination for move in made.moves)
    assert counts.keys() == {"b", "c", "d"}
    assert np.ptp(made.after[1:, CPU]) < 25


def test_move_that_would_only_swap_the_roles_is_not_made() -> None:
    # each of a's two bundles would take b to 90 %, where a is now
    made = plan(cluster(a=0.9, b=0.45, bundles={"a": [1, 1], "b": [1]}))

    assert made.empty
    assert held(made) == {Reason.NO_CANDIDATE: "a"}
    assert "2 bundles, first public/a/0x00000000_0x80000000" in made.held_back[0].detail


def test_huge_bundle_that_fits_nowhere_does_not_keep_the_small_ones() -> None:
    # a's big bundle would take b above a's 90 %; the two small ones fit
    made = plan(cluster(a=0.9, b=0.2, bundles={"a": [1, 16, 1], "b": [1]}))

    assert [move.bundle for move in made.moves] == [
        "public/a/0x00000000_0x55555555",
        "public/a/0xaaaaaaaa_0xffffffff",
    ]
    assert held(made) == {Reason.NO_CANDIDATE: "a"}
    assert "1 bundle, first public/a/0x55555555_0xaaaaaaaa" in made.held_back[0].detail


def test_memory_that_stays_behind_does_not_count_against_a_destination() -> None:
    drawn = cluster(a=0.8, b=0.2, bundles=10)
    usage = drawn.brokers.usage.copy()
    usage[:, 1] = drawn.brokers.limit[:, 1] * 0.95  # full heaps everywhere

    assert plan(replace(drawn, brokers=replace(drawn.brokers, usage=usage))).moves


def test_broker_that_should_give_is_given_nothing() -> None:
    # a's bundle would fit on b, which is to be relieved as well, and b's on c; else they go round in a ring
    drawn = cluster(a=0.9, b=0.6, c=0.3, bundles=10)

    made = plan(drawn, Pair(Sheds({0: [0], 1: [10]}), FixedPlacement((1, 2))))

    assert moves(made) == [("a/0x00000000_0x19999999", "a", "c"), ("b/0x00000000_0x19999999", "b", "c")]


def test_source_is_never_its_own_destination() -> None:
    made = plan(cluster(a=0.9, b=0.1), Pair(Sheds({0: [0]}), FixedPlacement((0,))))

    assert held(made) == {Reason.SAME_BROKER: "a"}
    assert made.empty


def test_bundle_is_moved_once_however_often_it_is_named() -> None:
    made = plan(cluster(a=0.9, b=0.1), Pair(Sheds({0: [0, 0, 1]}), FixedPlacement((1,))))

    assert [move.bundle for move in made.moves] == [
        "public/a/0x00000000_0x40000000",
        "public/a/0x40000000_0x80000000",
    ]


def test_what_may_not_leave_is_not_moved_whatever_the_shedder_says() -> None:
    drawn = with_bundles(cluster(a=0.9, b=0.1), pinned={0: True}, in_flight={1: True})

    made = plan(drawn, Pair(Sheds({0: [0, 1, 4]}), FixedPlacement((1,))))  # bundle 4 is b's

    assert made.empty
    assert held(made) == {Reason.PINNED: "", Reason.IN_FLIGHT: ""}


def test_caps_hold_and_say_what_waits() -> None:
    drawn = cluster(a=1.0, b=1.0, c=0.0, d=0.0, bundles=20)

    per_cycle, per_broker, per_hour = (
        plan(drawn, max_moves_per_cycle=3),
        plan(drawn, max_moves_per_broker=2),
        plan(drawn, moved_last_hour=199),
    )

    assert len(per_cycle.moves) == 3
    assert held(per_cycle).keys() == {Reason.CYCLE_CAP}
    assert len(per_broker.moves) == 4
    assert held(per_broker).keys() == {Reason.BROKER_CAP}
    assert len(per_hour.moves) == 1
    assert held(per_hour).keys() == {Reason.HOUR_CAP}


def test_a_cap_hits_all_hot_brokers_alike() -> None:
    made = plan(cluster(a=0.9, b=1.0, c=0.0, d=0.0, bundles=20), max_moves_per_cycle=4)

    assert [move.source for move in made.moves] == ["b", "a", "b", "a"]


def test_full_destination_makes_room_for_the_next_best() -> None:
    made = plan(cluster(a=1.0, b=1.0, c=0.0, d=0.6, bundles=20), max_moves_per_broker=3)

    assert Counter(move.destination for move in made.moves) == {"c": 3, "d": 3}
    assert [move.destination for move in made.moves][:3] == ["c"] * 3


def test_load_already_on_its_way_is_not_moved_again() -> None:
    # a still measures 80 %, but three of its ten bundles are on their way to b and c
    drawn = cluster(a=0.8, b=0.2, c=0.2, bundles=10)
    on_their_way = with_bundles(
        drawn,
        owner={0: 1, 1: 1, 2: 2, 3: 2},
        in_flight=dict.fromkeys(range(4), True),
        moving_from=dict.fromkeys(range(4), 0),
        moving_share=dict.fromkeys(range(4), 1.0),
    )

    made = plan(on_their_way)

    assert plan(drawn).moves
    assert made.empty
    assert held(made) == {Reason.BALANCED: "", Reason.IN_FLIGHT: ""}
    assert made.before[:, CPU] == pytest.approx([80, 20, 20])
    assert made.after[:, CPU] == pytest.approx([48, 36, 36])


def test_doubtful_broker_neither_gives_nor_takes_nor_shifts_the_average() -> None:
    # e reports 0 %, which is not trusted; the others are level
    made = plan(cluster(a=0.5, b=0.5, c=0.5, d=0.5, e=0.0, untrusted="e"))

    assert made.empty
    assert held(made) == {Reason.BALANCED: "", Reason.OUT_DATED_DATA: "e"}


def test_brokers_after_a_lost_one_are_not_mixed_up() -> None:
    made = plan(cluster(x=0.0, a=0.8, b=0.2, c=0.2, lost="x", bundles=10))

    assert {move.source for move in made.moves} == {"a"}
    assert {move.destination for move in made.moves} == {"b", "c"}


def test_closed_broker_is_relieved_and_given_nothing() -> None:
    made = plan(cluster(a=0.9, b=0.1, c=0.1, unschedulable="ab"))

    assert {(move.source, move.destination) for move in made.moves} == {("a", "c")}


def test_refused_cycle_moves_nothing_and_remembers_nothing() -> None:
    memory = Memory(shedder={"brokers": {"ema": {"a": 0.5}}})
    drawn = cluster(a=0.9, b=0.1, c=0.1, untrusted="bc")

    decision = decide(drawn, PAIR, MoveLimits(), memory, np.random.default_rng(0))

    assert decision.plan.empty
    assert decision.plan.held_back[0].reason is Reason.OUT_DATED_DATA
    assert decision.memory is memory


def test_broker_that_left_is_forgotten_and_one_in_doubt_is_not() -> None:
    history = {"brokers": {"ema": dict.fromkeys("abcde" + "z", 0.5)}}
    drawn = cluster(a=0.5, b=0.5, c=0.5, d=0.5, e=0.1, untrusted="e")

    memory = decide(drawn, PAIR, MoveLimits(), Memory(shedder=history), np.random.default_rng(0)).memory

    assert memory.shedder["brokers"]["ema"].keys() == set("abcde")


def test_same_seed_makes_the_same_plan() -> None:
    drawn = cluster(a=0.9, b=0.1, c=0.1, d=0.1, bundles=30)

    assert plan(drawn).moves == plan(drawn).moves


def test_repeated_decisions_end_level_and_stay_there() -> None:
    """Six brokers, one hot; each plan is carried out at once. In the end nothing moves any more."""
    drawn = cluster(a=1.0, b=0.2, c=0.2, d=0.2, e=0.2, f=0.2, bundles=16)
    for _ in range(10):
        made = plan(drawn, cool_down=1)
        if made.empty:
            break
        owners = {drawn.bundles.index[m.bundle]: drawn.brokers.index[m.destination] for m in made.moves}
        usage = drawn.brokers.usage.copy()
        usage[:, CPU] = made.after[:, CPU] / 100
        moved = with_bundles(drawn, owner=owners)
        traffic = np.stack([moved.bundles.short[moved.bundles.owner == row].sum(axis=0) for row in range(6)])
        drawn = replace(moved, brokers=replace(drawn.brokers, usage=usage, traffic=traffic))

    assert made.empty
    assert held(made) == {Reason.BALANCED: ""}
    assert np.ptp(made.before[:, CPU]) < 25
