"""DrainMoves: the bundles that leave a broker because it is drained or restarts next."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from strategy_testing.clusters import NOW, cluster, with_bundles
from trimtab_strategies import registry
from trimtab_strategies.guard import MoveLimits
from trimtab_strategies.model import (
    CPU,
    ClusterLoad,
    Decision,
    HeldBack,
    Isolation,
    Memory,
    NamespacePolicy,
    Plan,
    Reason,
)
from trimtab_strategies.planner.assign import assign, believed
from trimtab_strategies.planner.decide import decide
from trimtab_strategies.planner.drain import Drains

PAIR = registry.pair("ThresholdShedder", {"historyPercent": 0}, "LeastResourceUsageWithWeight", {"historyPercent": 0})
PAUSE = HeldBack("", Reason.ROLLING_OUT, "1 of 3 restarted")


def decided(drawn: ClusterLoad, drains: Drains, memory: Memory = Memory(), **limits: Any) -> Decision:  # noqa: B008
    return decide(drawn, PAIR, MoveLimits(**limits), memory, np.random.default_rng(0), drains=drains)


def drained(drawn: ClusterLoad, *brokers: str, **limits: Any) -> Plan:
    return decided(drawn, Drains(drained=frozenset(brokers)), **limits).plan


def rolling(following: str, *restarted: str) -> Drains:
    return Drains(following=frozenset([following]), restarted=frozenset(restarted), pause=PAUSE)


def held(plan: Plan) -> dict[tuple[str, Reason], int]:
    return {(entry.subject, entry.reason): entry.count for entry in plan.held_back}


def unmeasured(drawn: ClusterLoad, name: str) -> ClusterLoad:
    """As a broker is seen that became ready a moment ago."""
    row, brokers = drawn.brokers.index[name], drawn.brokers
    here = np.arange(len(brokers)) == row
    usage, limit = (np.where(here[:, np.newaxis], np.nan, array) for array in (brokers.usage, brokers.limit))
    age = np.where(here, np.inf, brokers.age)
    return replace(drawn, brokers=replace(brokers, usage=usage, limit=limit, age=age, trusted=brokers.trusted & ~here))


def test_a_drained_broker_gives_all_it_has_by_the_placement() -> None:
    made = drained(cluster(a=0.4, b=0.5, c=0.1, bundles=4), "a")

    assert {(move.source, move.reason) for move in made.moves} == {("a", Reason.DRAINED)}
    assert len({move.bundle for move in made.moves}) == 4
    assert made.after[:, CPU] == pytest.approx([0, 50, 50]), "c is the least used one, time after time"


def test_a_level_cluster_is_drained_all_the_same_and_nothing_else_moves() -> None:
    made = drained(cluster(a=0.3, b=0.3, c=0.3), "b")

    assert {move.source for move in made.moves} == {"b"}
    assert {move.destination for move in made.moves} == {"a", "c"}


def test_without_draining_a_closed_broker_keeps_what_it_has() -> None:
    assert decided(cluster(a=0.3, b=0.3, c=0.3, unschedulable="b"), Drains()).plan.empty


def test_pinned_and_excluded_bundles_stay_and_are_named() -> None:
    drawn = with_bundles(cluster(a=0.3, b=0.3, c=0.3), pinned={0: True})
    excluded = replace(drawn, policies={"public/b": NamespacePolicy(unload=False)})

    made = drained(excluded, "a", "b")

    assert len(made.moves) == 3
    assert held(made)[("a", Reason.PINNED)] == 1
    assert held(made)[("b", Reason.EXCLUDED)] == 4
    assert drawn.bundles.names[0] in next(h.detail for h in made.held_back if h.reason is Reason.PINNED and h.subject)


def test_cool_down_and_a_spent_budget_and_missing_figures_do_not_keep_a_bundle_on_a_drained_broker() -> None:
    drawn = with_bundles(cluster(a=0.3, b=0.3, c=0.3), last_unload={0: NOW - 1})
    short = drawn.bundles.short.copy()
    short[1] = np.nan
    drawn = replace(drawn, bundles=replace(drawn.bundles, short=short))
    withheld = replace(drawn, withheld={drawn.bundles.names[2]: Reason.DISRUPTION_BUDGET})

    assert len(drained(withheld, "a").moves) == 4


def test_what_is_moving_already_is_left_to_land() -> None:
    assert len(drained(with_bundles(cluster(a=0.3, b=0.3, c=0.3), in_flight={0: True}), "a").moves) == 3


@pytest.mark.parametrize(
    ("limits", "moves", "why"),
    [
        ({"max_moves_per_broker": 3}, 3, Reason.BROKER_CAP),
        ({"max_moves_per_cycle": 2}, 2, Reason.CYCLE_CAP),
        ({"max_moves_per_hour": 1}, 1, Reason.HOUR_CAP),
    ],
)
def test_caps_hold_for_a_drained_broker(limits: dict[str, int], moves: int, why: Reason) -> None:
    made = drained(cluster(a=0.4, b=0.4, c=0.2, bundles=6), "a", **limits)

    assert len(made.moves) == moves
    assert held(made)[("a", why)] == 6 - moves


def test_draining_overloads_no_broker() -> None:
    made = drained(cluster(a=0.8, b=0.8, c=0.8, bundles=8), "a", max_moves_per_broker=100)

    assert made.moves == ()
    assert held(made)[("a", Reason.NO_CANDIDATE)] == 8


def test_isolation_holds_for_a_drained_broker() -> None:
    drawn = cluster(a=0.3, b=0.3, c=0.3)
    isolated = replace(drawn, policies={"public/a": NamespacePolicy(Isolation(("a", "c")))})

    assert {move.destination for move in drained(isolated, "a").moves} == {"c"}


def test_an_emptied_broker_does_not_make_the_others_seem_too_full() -> None:
    level = cluster(a=0.0, b=0.45, c=0.45, bundles={"b": [1] * 4, "c": [1] * 4})

    assert drained(level, "a").empty
    assert Reason.BALANCED in {entry.reason for entry in drained(level, "a").held_back}


def test_where_one_broker_is_left_it_takes_all_and_nothing_is_compared() -> None:
    made = drained(cluster(a=0.2, b=0.2), "a")

    assert {move.destination for move in made.moves} == {"b"}
    assert ("", Reason.NO_BROKERS) in held(made)


def test_what_restarts_next_gives_only_to_those_that_have_restarted() -> None:
    made = decided(cluster(a=0.4, b=0.4, c=0.4, d=0.0, bundles={"a": [1] * 4}), rolling("a", "d")).plan

    assert {(move.source, move.destination, move.reason) for move in made.moves} == {("a", "d", Reason.ROLLING_OUT)}
    assert len(made.moves) == 4


def test_no_broker_gives_ahead_while_none_has_restarted() -> None:
    assert decided(cluster(a=0.4, b=0.4, c=0.4), rolling("a")).plan.moves == ()


def test_ahead_of_a_restart_no_broker_gets_more_than_its_fair_share() -> None:
    # 1.2 of load: with one broker missing each of the others carries 0.4
    made = decided(cluster(a=0.4, b=0.4, c=0.2, d=0.2, bundles=8), rolling("a", "d")).plan

    assert made.after[3, CPU] == pytest.approx(40, abs=5.1)
    assert held(made)[("a", Reason.NO_CANDIDATE)] > 0


def test_while_brokers_restart_nothing_is_shed_and_memory_stays() -> None:
    uneven = cluster(a=0.9, b=0.1, c=0.1)
    memory = decided(uneven, Drains()).memory

    paused = decided(uneven, rolling("b"), memory)

    assert paused.plan.empty
    assert paused.memory == memory
    assert paused.plan.held_back[0] == PAUSE


def test_a_broker_that_restarted_a_moment_ago_is_trusted_to_carry_its_bundles() -> None:
    drawn = cluster(a=0.4, b=0.2, c=0.4, bundles=4)

    seen = believed(unmeasured(drawn, "b"), ["b"])

    assert seen.brokers.usage[1, CPU] == pytest.approx(drawn.brokers.usage[1, CPU])
    assert seen.brokers.limit[1, CPU] == drawn.brokers.limit[1, CPU]
    assert seen.brokers.trusted.all()


def test_what_is_measured_is_not_guessed() -> None:
    drawn = cluster(a=0.4, b=0.2)

    assert believed(drawn, ["b"]) is drawn


def homes(drawn: ClusterLoad, restarted: list[str]) -> dict[str, int]:
    """Where the bundles of the first broker go, which is lost."""
    rows, rng = np.flatnonzero(drawn.bundles.owner == 0), np.random.default_rng(0)
    made = assign(drawn, rows, PAIR.placement, MoveLimits(), Memory(), rng, Reason.ROLLING_OUT, restarted=restarted)
    return dict(Counter(move.destination for move in made.plan.moves))


def test_unowned_bundles_go_to_those_that_have_restarted_least_used_first() -> None:
    drawn = cluster(a=0.4, b=0.1, c=0.3, d=0.0, bundles=8, lost="a")

    assert homes(drawn, []).get("b", 0) > 0
    assert homes(drawn, ["d"]) == {"d": 8}
    assert homes(unmeasured(drawn, "d"), ["c", "d"]) == {"c": 1, "d": 7}


def test_unowned_bundles_overload_no_broker_that_has_restarted() -> None:
    drawn = cluster(a=0.8, b=0.1, c=0.6, bundles=8, lost="a")

    assert homes(drawn, ["c"]) == {"c": 3, "b": 5}  # a bundle causes 7.5 % CPU on average: 60 + 3 * 7.5 < 85
