"""When what is barred decides, the plan says so, and when that ends: not a threshold of the strategy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from strategy_testing.clusters import cluster
from trim_world import Play, World, skewed, spread
from trimtab_strategies import registry
from trimtab_strategies.guard import MoveLimits
from trimtab_strategies.model import ClusterLoad, Isolation, Memory, NamespacePolicy, Plan, Reason
from trimtab_strategies.planner.decide import decide

PLACEMENT = ("LeastResourceUsageWithWeight", {})
THRESHOLD = registry.pair("ThresholdShedder", {"historyPercent": 0, "minThroughput": 0}, *PLACEMENT)
TRIM = registry.pair("Trim", {}, *PLACEMENT)


def long_skewed() -> ClusterLoad:
    """A cluster with a broker that has been far too busy for ten minutes. Trim would relieve it now."""
    return watched(skewed())


def watched(world: World) -> ClusterLoad:
    """Ten minutes of a world in which nothing may move."""
    play = Play(world, sheddable=np.zeros(len(world.load), dtype=bool))
    play.minutes(10)
    return play.seen()


def planned(load: ClusterLoad, pair: registry.Pair, moved: int = 0) -> Plan:
    limits = MoveLimits(max_moves_per_hour=10)
    return decide(load, pair, limits, Memory(), np.random.default_rng(0), moved_last_hour=moved).plan


def bundles(load: ClusterLoad, **columns: object) -> ClusterLoad:
    return replace(load, bundles=replace(load.bundles, **columns))


def whole(load: ClusterLoad, value: object) -> np.ndarray[tuple[int], np.dtype[np.generic]]:
    return np.full(len(load.bundles), value)


BARS: dict[Reason, tuple[Callable[[ClusterLoad], ClusterLoad], str]] = {
    Reason.COOL_DOWN: (lambda load: bundles(load, last_unload=whole(load, load.now - 60.0)), "moved lately, until "),
    Reason.PINNED: (lambda load: bundles(load, pinned=whole(load, value=True)), "until a person sets spec.pinned"),
    Reason.IN_FLIGHT: (lambda load: bundles(load, in_flight=whole(load, value=True)), "until that move lands"),
    Reason.DISRUPTION_BUDGET: (
        lambda load: replace(load, withheld=dict.fromkeys(load.bundles.names, Reason.DISRUPTION_BUDGET)),
        "until status.budget shows room",
    ),
    Reason.EXCLUDED: (
        lambda load: replace(load, policies=dict.fromkeys(load.namespaces, NamespacePolicy(unload=False))),
        "until its TopicNamespace has balanced: true",
    ),
}
LOADS = {
    "Trim": (TRIM, long_skewed()),
    "ThresholdShedder": (THRESHOLD, cluster(bundles=4, a=0.9, b=0.2, c=0.2)),
}


@pytest.mark.parametrize("shedder", LOADS)
@pytest.mark.parametrize("reason", BARS)
def test_what_bars_all_bundles_is_the_verdict_and_says_when_it_ends(reason: Reason, shedder: str) -> None:
    pair, load = LOADS[shedder]
    assert planned(load, pair).moves, "it would move bundles"
    bar, until = BARS[reason]

    plan = planned(bar(load), pair)

    assert not plan.moves
    assert plan.verdict is not None
    assert plan.verdict.reason is reason
    busiest = load.brokers.names[int(load.brokers.usage[:, 0].argmax())]
    assert plan.verdict.subject == busiest
    assert until in plan.verdict.detail
    assert Reason.BELOW_MINIMUM not in {held.reason for held in plan.held_back}
    assert "trim." not in plan.verdict.detail


def test_all_bars_are_named_with_their_numbers_and_the_end_of_the_cool_downs() -> None:
    load = long_skewed()
    busiest = len(load.brokers) - 1
    rows = load.bundles.owned_by(busiest)
    moved, pinned = np.full(len(load.bundles), np.nan), np.zeros(len(load.bundles), dtype=bool)
    moved[rows[:-2]], pinned[rows[-2:]] = load.now - np.arange(len(rows) - 2), True

    verdict = planned(bundles(load, last_unload=moved, pinned=pinned), TRIM).verdict

    assert verdict is not None
    assert verdict.reason is Reason.COOL_DOWN
    assert verdict.detail.startswith(
        f"{len(rows)} of its {len(rows)} bundles can't move now: {len(rows) - 2} moved lately"
    )
    assert "; 2 pinned, until a person sets spec.pinned: false (Pinned)" in verdict.detail


def test_an_isolation_that_leaves_no_other_broker_is_named() -> None:
    load = long_skewed()
    alone = Isolation((load.brokers.names[-1],), ())
    barred = replace(load, policies=dict.fromkeys(load.namespaces, NamespacePolicy(isolation=alone)))

    verdict = planned(barred, TRIM).verdict

    assert verdict is not None
    assert (verdict.reason, verdict.subject) == (Reason.ISOLATION, load.brokers.names[-1])
    assert "may go to no other broker, by the rules of their namespace (Isolation)" in verdict.detail


def test_the_cap_of_an_hour_is_named() -> None:
    verdict = planned(long_skewed(), TRIM, moved=10).verdict

    assert verdict is not None
    assert verdict.reason is Reason.HOUR_CAP


def test_a_bar_that_changes_nothing_is_not_the_verdict() -> None:
    """A move that is not worth its price stays that, also if a bundle that nobody would move is pinned."""
    load = watched(World.of(*(spread(40, 20, seed) for seed in range(4)), spread(51.5, 20, 9)))
    pair = registry.pair("Trim", {"worth": 40000, "hot": 5}, *PLACEMENT)
    pinned = whole(load, value=False)
    pinned[0] = True

    verdict = planned(bundles(load, pinned=pinned), pair).verdict

    assert verdict is not None
    assert verdict.reason is Reason.BELOW_MINIMUM
