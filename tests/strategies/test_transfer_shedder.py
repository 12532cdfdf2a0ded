"""TransferShedder on small clusters: which brokers give, which receive, and when it waits."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from strategy_testing.clusters import NOW, cluster
from transfer_decisions import APART, moves, shed, why
from trimtab_strategies.model import BrokerTraits, Isolation, NamespacePolicy, Reason, Topics
from trimtab_strategies.params import Compatibility


def test_top_gives_its_lighter_bundles_to_the_lowest_until_they_would_meet() -> None:
    # wanted: 0.9 x (0.9 - 0.1) / 2 / 0.9 = 0.4 of FULL; bundles are 0.09, 0.18, 0.27, 0.36
    shedding = shed(cluster(**APART))

    assert moves(shedding) == [(0, [0], 1, []), (0, [1], 1, [])]
    assert {unload.reason for unload in shedding.unloads} == {Reason.OVERLOADED}


def test_acts_at_the_hit_count() -> None:
    memory: dict[str, Any] = {}
    acted = []
    for cycle in range(5):
        shedding = shed(replace(cluster(**APART), now=NOW + 60 * cycle), memory, hit_count=4, delay="0s")
        acted.append(bool(shedding.unloads))
        memory = dict(shedding.memory)

    assert acted == [False, False, False, True, False]


@pytest.mark.parametrize("compatibility", Compatibility)
def test_both_forms_count_alike(compatibility: Compatibility) -> None:
    first = shed(cluster(**APART), hit_count=2, compatibility=compatibility)
    later = replace(cluster(**APART), now=NOW + 60)

    assert why(first) is Reason.HIT_COUNT
    assert shed(later, dict(first.memory), hit_count=2, compatibility=compatibility).unloads


def test_a_cluster_that_waits_for_hits_says_how_many_and_which_fields_count() -> None:
    (waiting,) = shed(cluster(**APART), hit_count=4).held_back
    (level,) = shed(cluster(a=0.5, b=0.5, c=0.5)).held_back

    needed = "cause to act in 1 cycle in a row, 4 are needed (transferShedder.hitCount): usage "
    assert waiting.detail.startswith(needed)
    assert level.detail.startswith("close enough: usage 50.0 % on average, deviation 0.0 points, target 25")
    assert level.detail.endswith("(transferShedder.targetDeviationPercent)")


def test_even_cluster_is_reported_as_hit_count_or_as_balanced() -> None:
    even = cluster(a=0.5, b=0.5, c=0.5)

    assert why(shed(even)) is Reason.HIT_COUNT
    assert why(shed(even, compatibility=Compatibility.CORRECTED)) is Reason.BALANCED


def test_idle_broker_takes_load_though_the_deviation_is_small() -> None:
    picture = cluster(a=0.3, b=0.3, c=0.3, d=0.01, bundles={"a": [1, 1, 1], "b": [1, 1], "c": [1, 1], "d": [1]})

    (unload,) = shed(picture).unloads

    assert (unload.broker, unload.destination, unload.reason) == (2, 3, Reason.UNDERLOADED)


def test_broker_far_above_the_limit_sheds_though_the_deviation_is_small() -> None:
    others = {f"b{k}": 0.5 for k in range(30)}
    sizes = {"a": [1.0] * 10, **{name: [1.0, 1.0] for name in others}}
    picture = cluster(**{"bundles": sizes, "a": 0.9, **others})

    assert {unload.reason for unload in shed(picture).unloads} == {Reason.OVERLOADED}
    assert why(shed(picture, overload_threshold=95)) is Reason.HIT_COUNT


def test_one_resting_broker_holds_back_the_cluster_but_corrected_only_itself() -> None:
    picture = cluster(a=0.9, b=0.1, c=0.8, d=0.2, bundles={name: [1, 1, 1, 1, 1] for name in "abcd"})
    memory = {"brokers": {"unloaded": {"a": NOW - 179}}}

    assert why(shed(picture, memory)) is Reason.COOL_DOWN
    corrected = shed(picture, memory, compatibility=Compatibility.CORRECTED)
    assert {unload.broker for unload in corrected.unloads} == {2}


def test_rest_ends_after_exactly_the_delay() -> None:
    memory = {"brokers": {"unloaded": {"a": NOW - 180}}}

    shedding = shed(cluster(**APART), memory)

    assert shedding.unloads
    assert shedding.memory["brokers"]["unloaded"] == {"a": NOW}


@pytest.mark.parametrize("compatibility", Compatibility)
def test_rest_that_a_wrong_clock_set_far_ahead_is_forgotten(compatibility: Compatibility) -> None:
    memory = {"brokers": {"unloaded": {"a": NOW + 86400, "b": NOW + 86400}}}

    shedding = shed(cluster(**APART), memory, compatibility=compatibility)

    assert {unload.broker for unload in shedding.unloads} == {0}
    assert shedding.memory["brokers"]["unloaded"]["a"] == NOW


def test_corrected_lets_the_receiver_rest_as_well() -> None:
    shedding = shed(cluster(**APART), compatibility=Compatibility.CORRECTED)

    assert shedding.memory["brokers"]["unloaded"] == {"a": NOW, "b": NOW}


def test_sole_bundle_stays() -> None:
    assert why(shed(cluster(a=0.9, b=0.1, bundles={"a": [1], "b": [1]}))) is Reason.NO_BUNDLES


def test_unused_top_broker_keeps_its_bundles_only_if_corrected() -> None:
    """The wanted amount is 0 / 0 in the original: whatever is compared with it fits."""
    picture = cluster(a=0.9, b=0.0, bundles={"a": [1, 2, 3], "b": []})
    usage = np.zeros_like(picture.brokers.usage)
    picture = replace(picture, brokers=replace(picture.brokers, usage=usage))

    assert moves(shed(picture)) == []  # b comes last by name, and has nothing
    swapped = cluster(a=0.0, b=0.9, bundles={"a": [], "b": [1, 2, 3]})
    swapped = replace(swapped, brokers=replace(swapped.brokers, usage=usage))
    assert moves(shed(swapped)) == [(1, [0], 0, []), (1, [1], 0, [])]
    assert not shed(swapped, compatibility=Compatibility.CORRECTED).unloads


def test_broker_that_takes_no_bundles_is_passed_over_at_the_low_end() -> None:
    picture = cluster(a=0.9, b=0.1, c=0.2, unschedulable=["b"], bundles={"a": [1, 1, 1, 1, 1], "b": [1], "c": [1]})

    assert {unload.destination for unload in shed(picture).unloads} == {2}


def test_isolated_bundles_move_only_if_asked_and_only_where_they_may() -> None:
    bound = {"public/a": NamespacePolicy(Isolation(("a", "c")))}
    picture = cluster(a=0.9, b=0.1, c=0.2, bundles={name: [1, 1, 1, 1, 1] for name in "abc"})
    picture = replace(picture, policies=bound)

    assert all(unload.broker != 0 for unload in shed(picture).unloads)
    ends = [(unload.broker, unload.destination) for unload in shed(picture, policy_bundles=True).unloads]
    assert (0, 1) not in ends
    without_b = replace(picture, brokers=replace(picture.brokers, schedulable=np.array([True, False, True])))
    assert {unload.destination for unload in shed(without_b, policy_bundles=True).unloads} == {2}


def test_bundle_with_non_persistent_topics_goes_only_to_a_broker_that_serves_them() -> None:
    """Whatever holds for other bundles of its namespace."""
    drawn = cluster(**APART)
    topics = Topics(("non-persistent://public/a/t",), np.array([1]), np.array([0]), np.ones((1, 4)))
    picture = replace(drawn, topics=topics, traits={"b": BrokerTraits(non_persistent=False)})

    left, moved = moves(shed(picture)), moves(shed(drawn))

    assert [bundles for _, bundles, *_ in moved][:2] == [[0], [1]]
    assert [bundles for _, bundles, *_ in left][:1] == [[0]]
    assert [1] not in [bundles for _, bundles, *_ in left]


def test_excluded_namespaces_stay() -> None:
    assert not shed(cluster(**APART), excluded_namespaces=("public/a",)).unloads


def test_equal_brokers_are_distinguished_by_name_whatever_their_rows() -> None:
    one = cluster(x=0.9, c=0.1, b=0.1, bundles={"x": [1, 1, 1, 1, 1], "b": [1], "c": [1]})
    other = cluster(b=0.1, c=0.1, x=0.9, bundles={"x": [1, 1, 1, 1, 1], "b": [1], "c": [1]})

    assert {one.brokers.names[unload.destination] for unload in shed(one).unloads} == {"b"}
    assert {other.brokers.names[unload.destination] for unload in shed(other).unloads} == {"b"}
