"""WeightedBalancer: what leaves which broker for which other one, what stays and why, and what it remembers."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings

from cluster_strategies import clusters
from conformance.hermes_model import Rules, balance
from strategy_testing.clusters import NOW, cluster, with_bundles
from trimtab_strategies.guard import measured
from trimtab_strategies.model import CPU, BrokerTraits, ClusterLoad, Reason
from trimtab_strategies.params import Compatibility
from trimtab_strategies.protocols import Shedding
from trimtab_strategies.shedding.weighted.bundle_work import Measure, Weighing
from trimtab_strategies.shedding.weighted.nodes import Constraints, Profile, Workload
from trimtab_strategies.shedding.weighted.orders import Iteration
from trimtab_strategies.shedding.weighted.shedder import WeightedBalancer, WeightedBalancerParams
from trimtab_strategies.shedding.weighted.target_weights import Law, TargetRule

AVERAGE: dict[str, Any] = {"target_weights": Law.AVERAGE, "network_in_weight": 0, "network_out_weight": 0}


def shed(drawn: ClusterLoad, memory: Mapping[str, Any] | None = None, **params: Any) -> Shedding:
    return WeightedBalancer(WeightedBalancerParams(**params)).shed(drawn, measured(drawn), memory or {})


def told(drawn: ClusterLoad, shedding: Shedding) -> list[tuple[str, list[int], str, list[int]]]:
    """Source, bundles, destination and what comes back, of each unload."""
    names = drawn.brokers.names
    return [(names[u.broker], u.bundles.tolist(), names[u.destination], u.returned.tolist()) for u in shedding.unloads]


def later(drawn: ClusterLoad, seconds: float) -> ClusterLoad:
    return replace(drawn, now=drawn.now + seconds)


def after(drawn: ClusterLoad, shedding: Shedding) -> ClusterLoad:
    """The cluster with everything moved at once."""
    owner = drawn.bundles.owner.copy()
    for unload in shedding.unloads:
        owner[unload.bundles], owner[unload.returned] = unload.destination, unload.broker
    moved = np.where(owner != drawn.bundles.owner, drawn.now, drawn.bundles.last_unload)
    return replace(drawn, bundles=replace(drawn.bundles, owner=owner, last_unload=moved))


def test_brokers_used_alike_are_left_alone_whatever_their_bundles_weigh() -> None:
    drawn = cluster(a=0.5, b=0.49, bundles={"a": [9, 1, 1], "b": [1]})

    shedding = shed(drawn)

    assert not shedding.unloads
    assert [(held.subject, held.reason) for held in shedding.held_back] == [("", Reason.BALANCED)]
    assert "5 points" in shedding.held_back[0].detail


def test_a_broker_that_has_everything_is_not_called_balanced_while_its_error_is_averaged() -> None:
    """Usage is 30, 0 and 0 %: a stands 20 points above the mean from the first cycle on."""
    drawn = cluster(a=0.3, b=0.0, c=0.0, bundles={"a": [1] * 9, "b": [], "c": []})
    memory: Mapping[str, Any] = {}
    details = []
    for minute in range(5):
        shedding = shed(later(drawn, 60 * minute), memory)
        memory = shedding.memory
        assert [(held.subject, held.reason) for held in shedding.held_back] == [("", Reason.AVERAGING)], minute
        details.append(shedding.held_back[0].detail)

    assert "a is 20.0 points above the mean usage now, 0.0 on average over 15m: more than 5 are needed" in details[0]
    assert "20.0 points above the mean usage now, 4.7 on average" in details[-1]
    left = [
        re.findall(r"needed \(weightedBalancer.deadBand\), in (\d+) minutes? if it lasts", text) for text in details
    ]
    assert left == [["5"], ["4"], ["3"], ["2"], ["1"]]
    assert {source for source, *_ in told(drawn, shed(later(drawn, 300), memory))} == {"a"}


def test_a_target_weight_that_still_falls_is_not_called_balanced() -> None:
    """The average error is large enough by now, but a's target has not fallen by 5 % of what it carries yet."""
    drawn = cluster(a=0.9, b=0.3, bundles=20)
    first = shed(drawn, gain=0.1).memory

    shedding = shed(later(drawn, 300), first, gain=0.1)

    assert not shedding.unloads
    (held,) = shedding.held_back
    assert held.reason is Reason.AVERAGING
    assert "a is 30.0 points above the mean usage now, and 0.7 % above its target weight" in held.detail


def test_the_original_is_not_called_balanced_either_while_its_targets_follow() -> None:
    drawn = cluster(a=0.9, b=0.3, bundles=20)
    memory: Mapping[str, Any] = {}
    for minute in range(3):
        shedding = shed(later(drawn, 60 * minute), memory, compatibility="Java", gain=0.1, min_change=60)
        memory = shedding.memory

    assert [held.reason for held in shedding.held_back] == [Reason.AVERAGING]
    assert "a is 30.0 points above the mean usage now, and " in shedding.held_back[0].detail


def test_usage_that_is_even_again_is_balanced_whatever_the_average_says() -> None:
    drawn = cluster(a=0.5, b=0.5, bundles=20)
    apart = cluster(a=0.9, b=0.1, bundles=20)
    memory = shed(later(apart, 60), shed(apart).memory).memory

    shedding = shed(later(drawn, 120), memory)

    assert [held.reason for held in shedding.held_back] == [Reason.BALANCED]


def test_first_targets_are_what_brokers_carry() -> None:
    drawn = cluster(a=0.9, b=0.3)

    shedding = shed(drawn)

    carried = drawn.bundles.short[:, 2:].sum(axis=1)
    assert not shedding.unloads
    assert shedding.target_weights == pytest.approx({"a": carried[:4].sum(), "b": carried[4:].sum()})
    assert shedding.memory["brokers"]["score"] == pytest.approx({"a": 0.75, "b": 0.25})


def test_target_of_the_busier_broker_falls_until_bundles_leave_it() -> None:
    drawn = cluster(a=0.9, b=0.3, bundles=20)
    memory = shed(drawn).memory

    shedding = shed(later(drawn, 300), memory)

    assert shedding.target_weights["a"] < 0.95 * shed(drawn).target_weights["a"]
    assert {(source, destination) for source, _, destination, _ in told(drawn, shedding)} == {("a", "b")}
    assert all(unload.reason is Reason.OVERLOADED for unload in shedding.unloads)


def test_original_corrects_in_its_first_cycle() -> None:
    drawn = cluster(a=0.9, b=0.3, bundles=4)

    shedding = shed(drawn, compatibility=Compatibility.JAVA, gain=0.5)

    # shares .75 and .25, errors -.3 and .3: scores .6 and .4
    assert shedding.target_weights["a"] == pytest.approx(0.6 * drawn.bundles.short[:, 2:].sum())
    assert {(source, destination) for source, _, destination, _ in told(drawn, shedding)} == {("a", "b")}
    assert set(shedding.memory["brokers"]) == {"score", "scored"}


def test_a_hardly_used_broker_is_filled_by_others_that_are_only_a_little_above() -> None:
    """Nine brokers stand two points above the mean, which moves nothing, and one 18 below it."""
    drawn = cluster(bundles=40, z=0.3, **dict.fromkeys("abcdefghi", 0.5))
    carried = drawn.bundles.owner != drawn.brokers.index["z"]
    short = np.where(carried[:, np.newaxis], drawn.bundles.short, drawn.bundles.short * 5 / 3)
    drawn = replace(drawn, bundles=replace(drawn.bundles, short=short))  # it carries what the others do
    memory = shed(drawn).memory

    shedding = shed(later(drawn, 600), memory)

    assert {destination for _, _, destination, _ in told(drawn, shedding)} == {"z"}
    assert len({source for source, *_ in told(drawn, shedding)}) >= 5
    assert {unload.reason for unload in shedding.unloads} == {Reason.UNDERLOADED}, "none of them is overloaded"
    books = np.bincount(after(drawn, shedding).bundles.owner, weights=drawn.bundles.short[:, 2:].sum(axis=1))
    targets = np.array([shedding.target_weights[name] for name in drawn.brokers.names])
    z = drawn.brokers.index["z"]
    assert 0.95 * targets[z] < books[z] <= targets[z]
    assert (books[np.arange(10) != z] > 0.97 * np.delete(targets, z)).all()


def test_noise_moves_nothing() -> None:
    """Traffic and usage of ten brokers jitter by up to 30 percent, each for itself, for two hours."""
    rng = np.random.default_rng(5)
    level = cluster(bundles=40, **dict.fromkeys("abcdefghij", 0.5))
    memory: Mapping[str, Any] = {}
    for minute in range(120):
        jitter = 1 + rng.uniform(-0.3, 0.3, 10)
        brokers = replace(level.brokers, usage=level.brokers.usage * jitter[:, np.newaxis])
        bundles = replace(level.bundles, short=level.bundles.short * jitter[level.bundles.owner, np.newaxis])
        shedding = shed(replace(later(level, 60 * minute), brokers=brokers, bundles=bundles), memory)
        memory = shedding.memory

        assert not shedding.unloads, minute


def test_fixed_weight_counts_also_where_usage_is_even() -> None:
    drawn = cluster(a=0.5, b=0.5, c=0.5, bundles=10)
    drawn = replace(drawn, traits={"a": BrokerTraits(weight=0.0)})

    assert {source for source, *_ in told(drawn, shed(drawn))} == {"a"}


def test_brokers_of_different_strength_end_equally_used() -> None:
    """Every second broker needs 1.5 times as much cpu for the same traffic; all start with the same bundles."""
    drawn = cluster(a=0.4, b=0.6, c=0.4, d=0.6, bundles=60)
    cost = np.array([1.0, 1.5, 1.0, 1.5])
    drawn = replace(drawn, bundles=replace(drawn.bundles, short=np.tile(drawn.bundles.short[:60], (4, 1))))
    weight = drawn.bundles.short[:, 2:].sum(axis=1)
    memory: Mapping[str, Any] = {}
    moves = []
    for _ in range(240):
        carried = np.bincount(drawn.bundles.owner, weights=weight)
        usage = drawn.brokers.usage.copy()
        usage[:, CPU] = 0.5 * cost * carried / (cost * carried).mean()
        drawn = replace(later(drawn, 60), brokers=replace(drawn.brokers, usage=usage))
        shedding = shed(drawn, memory, network_in_weight=0, network_out_weight=0)
        memory = shedding.memory
        moves.append(sum(len(unload.bundles) + len(unload.returned) for unload in shedding.unloads))
        drawn = after(drawn, shedding)

    assert np.ptp(drawn.brokers.usage[:, CPU]) <= 0.1
    assert 0 < sum(moves) <= 60
    assert sum(moves[120:]) == 0


def test_heaviest_bundles_that_fit_move_to_the_broker_with_most_room() -> None:
    drawn = cluster(a=0.8, b=0.3, c=0.1, bundles={"a": [4, 3, 2, 1, 1, 1], "b": [1] * 5, "c": [1] * 5})

    # a is 0.4 above the average of 0.4, c 0.3 below it, b 0.1: 0.267 fits c; then 0.067 is what is left to b
    moves, swaps = told(drawn, shed(drawn, **AVERAGE))[:2], told(drawn, shed(drawn, **AVERAGE))[2:]
    assert moves == [("a", [0], "c", []), ("a", [3], "b", [])]
    assert swaps == [("a", [4], "b", [10])]  # nothing fits alone any more


def test_numbers_kept_even_make_swaps() -> None:
    drawn = cluster(a=0.8, b=0.2, bundles={"a": [4, 2, 1, 1], "b": [1, 1, 1, 1]})

    shedding = shed(drawn, **AVERAGE, spread_percent=0)

    assert told(drawn, shedding) == [("a", [1], "b", [7])]
    assert np.bincount(after(drawn, shedding).bundles.owner).tolist() == [4, 4]


def test_original_also_evens_out_the_numbers_and_never_swaps_what_is_insignificant() -> None:
    drawn = cluster(a=0.55, b=0.45, bundles=100)
    java = {**AVERAGE, "compatibility": Compatibility.JAVA}

    assert not shed(drawn, **java).unloads
    assert shed(drawn, **AVERAGE).unloads


def test_a_fixed_weight_is_the_target() -> None:
    drawn = cluster(a=0.5, b=0.5, c=0.5, bundles=10)
    drawn = replace(drawn, traits={"a": BrokerTraits(weight=0.0), "b": BrokerTraits(), "gone": BrokerTraits(weight=1)})

    shedding = shed(drawn, **AVERAGE, spread_percent=100)

    assert shedding.target_weights["a"] == 0
    assert np.bincount(after(drawn, shedding).bundles.owner).tolist() == [0, 15, 15]


def test_a_broker_whose_usage_is_unknown_takes_no_part() -> None:
    drawn = cluster(a=0.9, b=0.2, c=0.2, bundles=20)
    usage = drawn.brokers.usage.copy()
    usage[2] = np.nan
    drawn = replace(drawn, brokers=replace(drawn.brokers, usage=usage))

    shedding = shed(later(drawn, 300), shed(drawn).memory)

    assert set(shedding.target_weights) == {"a", "b"}
    assert {destination for _, _, destination, _ in told(drawn, shedding)} == {"b"}


def test_a_broker_that_may_not_receive_gets_nothing_back() -> None:
    drawn = cluster(a=0.8, b=0.2, c=0.0, bundles={"a": [4, 2, 1, 1], "b": [1] * 2, "c": [1]}, unschedulable=["a", "c"])

    shedding = shed(drawn, **AVERAGE)

    assert {destination for _, _, destination, _ in told(drawn, shedding)} == {"b"}
    assert not any(back for *_, back in told(drawn, shedding))


@pytest.mark.parametrize(
    ("changes", "cpu", "bundles", "reason"),
    [
        ({"last_unload": dict.fromkeys(range(2), NOW - 60)}, 0.9, {"a": [1, 1], "b": [1]}, Reason.COOL_DOWN),
        ({"short": dict.fromkeys(range(2), np.inf)}, 0.9, {"a": [1, 1], "b": [1]}, Reason.NO_BUNDLES),
        ({}, 0.9, {"a": [1], "b": [1]}, Reason.SOLE_BUNDLE),
        ({}, 0.6, {"a": [1, 1], "b": [1]}, Reason.BELOW_MINIMUM),
    ],
)
def test_a_broker_that_is_not_relieved_has_a_reason(
    changes: dict[str, Any], cpu: float, bundles: dict[str, list[float]], reason: Reason
) -> None:
    drawn = with_bundles(cluster(a=cpu, b=1 - cpu, bundles=bundles), **changes)

    shedding = shed(drawn, **AVERAGE)

    assert not shedding.unloads
    assert [(held.subject, held.reason) for held in shedding.held_back] == [("a", reason)]


def test_bundles_that_may_not_leave_are_named_as_the_cause() -> None:
    drawn = cluster(a=0.9, b=0.1)
    balancer = WeightedBalancer(WeightedBalancerParams(**AVERAGE))

    shedding = balancer.shed(drawn, np.zeros(len(drawn.bundles), dtype=bool), {})

    assert [(held.subject, held.reason) for held in shedding.held_back] == [("a", Reason.NO_BUNDLES)]
    assert "80 % above its target weight" in shedding.held_back[0].detail


@pytest.mark.parametrize("drawn", [cluster(), cluster(a=0.9)])
def test_fewer_than_two_brokers_have_nothing_to_balance(drawn: ClusterLoad) -> None:
    memory = {"brokers": {"score": {"a": 0.5}}}

    shedding = shed(drawn, memory)

    assert [held.reason for held in shedding.held_back] == [Reason.NO_BROKERS]
    assert shedding.memory == memory


def test_weight_is_what_the_parameters_say() -> None:
    drawn = cluster(a=0.5, b=0.5, bundles=2)
    short, long = drawn.bundles.short.copy(), drawn.bundles.long.copy()
    short[0, :2] *= 9
    long[2] *= 9
    drawn = replace(drawn, bundles=replace(drawn.bundles, short=short, long=long))

    def above(**params: Any) -> set[str]:
        weights = shed(drawn, **AVERAGE, **params)
        return {drawn.brokers.names[u.broker] for u in weights.unloads} | {h.subject for h in weights.held_back}

    assert above() == {""}
    assert above(measure=Measure.MESSAGE_RATE) == {"a"}
    assert above(weighing=Weighing.LONG) == {"b"}


def test_memory_is_four_numbers_a_broker_however_many_bundles() -> None:
    drawn = cluster(bundles=600, **{f"broker-{k}": 0.3 + 0.005 * k for k in range(100)})

    memory = shed(later(drawn, 60), shed(drawn).memory).memory

    assert set(memory) == {"brokers"}
    assert set(memory["brokers"]) == {"score", "scored", "error", "side"}
    assert len(json.dumps(memory)) < 10_000


def test_a_restart_changes_nothing() -> None:
    drawn = cluster(a=0.9, b=0.3, bundles=20)
    memory = shed(drawn).memory

    restored = json.loads(json.dumps(memory))

    assert told(drawn, shed(later(drawn, 600), memory)) == told(drawn, shed(later(drawn, 600), restored))


@pytest.mark.parametrize(("compatibility", "iteration"), [(c, i) for c in Compatibility for i in Iteration])
@settings(max_examples=25, deadline=None)
@given(drawn=clusters())
def test_bundles_are_balanced_as_work_of_one_consumer_each(
    compatibility: Compatibility, iteration: Iteration, drawn: ClusterLoad
) -> None:
    """The shedder's moves end where the same rules over consumers and subscriptions end."""
    known = np.isfinite(drawn.bundles.short).all(axis=1)
    owned = np.flatnonzero((drawn.bundles.owner >= 0) & known)
    everyone = np.ones(len(drawn.brokers), dtype=bool)
    drawn = replace(
        drawn,
        brokers=replace(drawn.brokers, ready=everyone, schedulable=everyone),
        bundles=replace(
            drawn.bundles,
            owner=np.where(known, drawn.bundles.owner, -1),
            short=np.round(drawn.bundles.short),  # so that sums are exact, in whatever order they are made
        ),
    )
    called = {row: drawn.bundles.names[row].replace("/", ".", 1).replace("/", "$", 1) for row in owned.tolist()}
    names = drawn.brokers.names
    moved = np.where(np.isnan(drawn.bundles.last_unload), -np.inf, drawn.bundles.last_unload * 1000)
    weight = drawn.bundles.short[:, 2:].sum(axis=1)
    work = Workload(
        now=drawn.now * 1000,
        subscriptions=sorted(called.values()),
        consumers=sorted(names),
        constraints=Constraints(len(names), 1, 10**6),
        holders={name: [names[drawn.bundles.owner[row]]] for row, name in called.items()},
        profiles={name: Profile(float(weight[row]), float(moved[row])) for row, name in called.items()},
    )
    rule = TargetRule(compatibility=compatibility, iteration=iteration)
    expected = balance(work, Rules(targets=rule, compatibility=compatibility, iteration=iteration))
    balancer = WeightedBalancer(
        WeightedBalancerParams(**AVERAGE, compatibility=compatibility, iteration=iteration, spread_percent=0)
    )

    shedding = balancer.shed(drawn, known, {})

    carried = list(expected.before.values())
    above = any((one - np.mean(carried)) * 100 >= 5 * np.mean(carried) for one in carried)
    if compatibility is Compatibility.CORRECTED and not above:
        assert shedding.unloads == (), "the rules even out the numbers of bundles, the shedder only above its bound"
        return
    owners = after(drawn, shedding).bundles.owner
    assert {name: (names[owners[row]],) for row, name in called.items()} == expected.assignments or len(names) <= 1
