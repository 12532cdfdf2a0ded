"""TransferShedder on small clusters: which brokers give, which receive, what is swapped, and when it waits."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from trimtab_strategies.filters import BrokerSelection, Manager
from trimtab_strategies.model import (
    CPU,
    MEMORY,
    THROUGHPUT_OUT,
    BrokerTraits,
    ClusterLoad,
    Isolation,
    NamespacePolicy,
    Reason,
    Topics,
)
from trimtab_strategies.params import Compatibility
from trimtab_strategies.protocols import Shedding
from trimtab_strategies.shedding.transfer.reports import SnapshotReports, heaviest
from trimtab_strategies.shedding.transfer.shedder import TransferShedder, TransferShedderParams
from trimtab_strategies.testing import FULL, NOW, cluster, with_bundles

APART = {"bundles": {"a": [1, 2, 3, 4], "b": [1, 1]}, "a": 0.9, "b": 0.1}
"""One broker far above the other, its bundles a0 < a1 < a2 < a3."""


def shedder(**params: Any) -> TransferShedder:
    """Acts at once unless told otherwise."""
    return TransferShedder(TransferShedderParams(**{"hit_threshold": 0, **params}))


def shed(picture: ClusterLoad, memory: dict[str, Any] | None = None, **params: Any) -> Shedding:
    return shedder(**params).shed(picture, np.ones(len(picture.bundles), dtype=bool), memory or {})


def moves(shedding: Shedding) -> list[tuple[int, list[int], int, list[int]]]:
    """Source, bundles, destination and what comes back of each decision."""
    return [(u.broker, u.bundles.tolist(), u.destination, u.returned.tolist()) for u in shedding.unloads]


def why(shedding: Shedding) -> Reason:
    assert not shedding.unloads
    (held_back,) = shedding.held_back
    return held_back.reason


def test_top_gives_its_lighter_bundles_to_the_lowest_until_they_would_meet() -> None:
    # wanted: 0.9 x (0.9 - 0.1) / 2 / 0.9 = 0.4 of FULL; bundles are 0.09, 0.18, 0.27, 0.36
    shedding = shed(cluster(**APART))

    assert moves(shedding) == [(0, [0], 1, []), (0, [1], 1, [])]
    assert {unload.reason for unload in shedding.unloads} == {Reason.OVERLOADED}


def test_bundle_that_is_too_large_goes_when_the_other_end_can_give_back() -> None:
    # a wants to lose 0.25 of its 0.3 + 0.3 + 0.3; with 0.06 back they end on 0.66 and 0.64
    picture = cluster(bundles={"a": [1, 1, 1], "b": [6, 34]}, a=0.9, b=0.4)

    assert moves(shed(picture, target_deviation=0.1)) == [(0, [0], 1, [3])]


def test_swap_is_not_made_without_transfer_and_the_placement_chooses() -> None:
    picture = cluster(bundles={"a": [1, 1, 1], "b": [6, 34]}, a=0.9, b=0.4)

    assert why(shed(picture, target_deviation=0.1, transfer=False)) is Reason.NO_BUNDLES
    assert moves(shed(cluster(**APART), transfer=False)) == [(0, [0], -1, []), (0, [1], -1, [])]


def test_acts_only_after_more_cycles_than_the_threshold() -> None:
    memory: dict[str, Any] = {}
    acted = []
    for cycle in range(5):
        shedding = shed(replace(cluster(**APART), now=NOW + 60 * cycle), memory, hit_threshold=3, delay=0)
        acted.append(bool(shedding.unloads))
        memory = dict(shedding.memory)

    assert acted == [False, False, False, True, False]


def test_corrected_acts_at_the_threshold() -> None:
    first = shed(cluster(**APART), hit_threshold=2, compatibility=Compatibility.CORRECTED)
    later = replace(cluster(**APART), now=NOW + 60)

    assert why(first) is Reason.HIT_COUNT
    assert shed(later, dict(first.memory), hit_threshold=2, compatibility=Compatibility.CORRECTED).unloads


def test_a_cluster_that_waits_for_hits_says_how_many_and_which_fields_count() -> None:
    (waiting,) = shed(cluster(**APART), hit_threshold=3).held_back
    (level,) = shed(cluster(a=0.5, b=0.5, c=0.5)).held_back

    needed = "cause to act in 1 cycle in a row, 4 are needed (transferShedder.hitThreshold is 3): usage "
    assert waiting.detail.startswith(needed)
    assert level.detail.startswith("close enough: usage 50.0 % on average, deviation 0.0 points, target 25")
    assert level.detail.endswith("(transferShedder.targetDeviation is 0.25)")


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


def test_usage_is_smoothed_once_per_snapshot() -> None:
    first = shed(cluster(a=0.9, b=0.1), hit_threshold=9)
    again = shed(cluster(a=0.5, b=0.5), dict(first.memory), hit_threshold=9)
    later = shed(replace(cluster(a=0.5, b=0.5), now=NOW + 60), dict(again.memory), hit_threshold=9)

    assert first.memory["brokers"]["ema"] == again.memory["brokers"]["ema"]
    assert later.memory["brokers"]["ema"] == pytest.approx({"a": 0.86, "b": 0.14})
    assert later.memory["brokers"]["throughput"]["a"] == pytest.approx(0.86 * FULL)


def test_heap_counts_with_its_weight() -> None:
    picture = cluster(a=0.2, b=0.2)
    usage = picture.brokers.usage.copy()
    usage[0, MEMORY] = FULL
    picture = replace(picture, brokers=replace(picture.brokers, usage=usage))

    assert why(shed(picture)) is Reason.HIT_COUNT
    assert {unload.broker for unload in shed(picture, memory_weight=1).unloads} == {0}


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


def aged(picture: ClusterLoad, **age: float) -> ClusterLoad:
    """The cluster with data of these ages (seconds)."""
    ages = np.array([age.get(name, 0.0) for name in picture.brokers.names])
    return replace(picture, brokers=replace(picture.brokers, age=ages))


def test_outdated_broker_still_takes_part_but_not_if_corrected() -> None:
    picture = aged(cluster(a=0.9, b=0.1, c=0.5, bundles={name: [1, 1, 1, 1, 1] for name in "abc"}), b=1801)

    assert {unload.destination for unload in shed(picture, target_deviation=0.1).unloads} == {1}
    corrected = shed(picture, target_deviation=0.1, compatibility=Compatibility.CORRECTED)
    assert {unload.destination for unload in corrected.unloads} == {2}


def test_nothing_moves_when_all_data_is_outdated() -> None:
    assert why(shed(aged(cluster(**APART), a=1801, b=1801))) is Reason.OUT_DATED_DATA
    assert shed(aged(cluster(**APART), a=1800, b=1800)).unloads


def unmeasured(picture: ClusterLoad, broker: int) -> ClusterLoad:
    usage = picture.brokers.usage.copy()
    usage[broker] = np.nan
    return replace(picture, brokers=replace(picture.brokers, usage=usage))


def test_one_broker_without_data_stops_the_cycle_but_not_if_corrected() -> None:
    picture = unmeasured(cluster(a=0.9, b=0.1, c=0.5), 2)

    assert why(shed(picture)) is Reason.NO_LOAD_DATA
    assert shed(picture, compatibility=Compatibility.CORRECTED).unloads


def test_without_measurements_there_are_no_brokers() -> None:
    assert why(shed(unmeasured(cluster(a=0.9), 0))) is Reason.NO_BROKERS


def test_sole_bundle_stays() -> None:
    assert why(shed(cluster(a=0.9, b=0.1, bundles={"a": [1], "b": [1]}))) is Reason.NO_BUNDLES


def test_broker_without_busy_bundles_reports_none() -> None:
    silent = with_bundles(cluster(**APART), short={row: np.zeros(4) for row in range(4)})

    assert why(shed(silent)) is Reason.NO_LOAD_DATA


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


# Two brokers, two swaps: the second one is judged with or without what came back in the first.
#   a: 10 11 13 of 34, usage 0.77      b: 1 3 9 of 13, usage 0.37
SWAPS: dict[str, Any] = {"bundles": {"a": [10, 11, 13], "b": [1, 3, 9]}, "a": 0.77, "b": 0.37}


def with_throughput(picture: ClusterLoad, amounts: list[float]) -> ClusterLoad:
    """Each bundle with this outbound throughput, MB/s."""
    return with_bundles(picture, short={row: [0, 0, 0, amount * 1e6] for row, amount in enumerate(amounts)})


def with_traffic(picture: ClusterLoad, amounts: list[float]) -> ClusterLoad:
    """Each broker with this outbound throughput, MB/s."""
    traffic = np.zeros_like(picture.brokers.traffic)
    traffic[:, THROUGHPUT_OUT] = np.array(amounts) * 1e6
    return replace(picture, brokers=replace(picture.brokers, traffic=traffic))


def swaps() -> ClusterLoad:
    return with_traffic(with_throughput(cluster(**SWAPS), [10, 11, 13, 1, 3, 9]), [34, 13])


def test_debug_mode_changes_the_decision() -> None:
    assert moves(shed(swaps(), target_deviation=0.1)) == [(0, [0], 1, [3]), (0, [1], 1, [4, 5])]
    assert moves(shed(swaps(), target_deviation=0.1, debug_mode=True)) == [(0, [0], 1, [3])]


def test_corrected_counts_what_came_back() -> None:
    corrected = shed(swaps(), target_deviation=0.1, compatibility=Compatibility.CORRECTED)

    assert moves(corrected)[0] == (0, [0], 1, [3])
    assert moves(corrected) != moves(shed(swaps(), target_deviation=0.1))


class InOrder(SnapshotReports):
    """Reports in the order of the rows: that of Pulsar's reports need not be that of throughput."""

    def of(self, broker: int) -> np.ndarray:
        """All bundles of the broker."""
        return self._cluster.bundles.owned_by(broker)


def in_order(picture: ClusterLoad, sheddable: np.ndarray, _: TransferShedderParams) -> InOrder:
    return InOrder(picture, sheddable, BrokerSelection(Manager.EXTENSIBLE).on(picture), count=10)


@pytest.mark.parametrize(
    ("params", "returned"),
    [({"debug_mode": True}, [[4, 5]]), ({"compatibility": Compatibility.CORRECTED}, [[4, 5], [3]])],
    ids=str,
)
def test_corrected_offers_again_what_an_earlier_swap_left_aside(params: dict[str, Any], returned: list[Any]) -> None:
    """The first swap passes over 71, which would make the giver busier than it was; the second has room for it."""
    picture = with_throughput(cluster(bundles={"a": [1, 1, 1], "b": [1, 1, 1]}, a=0.9, b=0.1), [70, 70, 70, 71, 20, 22])
    picture = with_traffic(picture, [100, 40])
    strategy = TransferShedder(TransferShedderParams(hit_threshold=0, target_deviation=0.0, **params), in_order)

    shedding = strategy.shed(picture, np.ones(6, dtype=bool), {})

    assert [back for _, _, _, back in moves(shedding)] == returned


def test_bundles_that_may_not_move_neither_leave_nor_come_back() -> None:
    picture = swaps()
    shedding = shedder(target_deviation=0.1).shed(picture, np.array([1, 1, 1, 0, 1, 1], dtype=bool), {})

    assert all(3 not in back for _, _, _, back in moves(shedding))


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


def test_only_the_heaviest_bundles_are_considered() -> None:
    picture = cluster(bundles={"a": [1, 2, 3, 4, 5, 6], "b": [1]}, a=0.9, b=0.1)

    assert moves(shed(picture, top_bundles=2, target_deviation=0.1)) == [(0, [4], 1, [])]


@pytest.mark.parametrize(
    ("compatibility", "expected"), [(Compatibility.JAVA, [2, 1]), (Compatibility.CORRECTED, [1, 0])]
)
def test_inbound_outranks_outbound_in_pulsar_s_reports(compatibility: Compatibility, expected: list[int]) -> None:
    short = {0: [0, 0, 0, 9e6], 1: [0, 0, 2e6, 0], 2: [0, 0, 1e6, 0], 3: [0, 0, 0, 1e5]}
    picture = with_bundles(cluster(bundles=4, a=0.5), short=short)
    reports = SnapshotReports(
        picture,
        np.ones(4, dtype=bool),
        BrokerSelection(Manager.EXTENSIBLE).on(picture),
        count=2,
        in_steps=compatibility is Compatibility.JAVA,
    )

    reported = reports.of(0)

    assert reported is not None
    assert reported.tolist() == expected


def test_equal_bundles_are_distinguished_by_name_whatever_their_rows() -> None:
    picture = cluster(bundles=6, a=0.6)
    rows, weight = np.arange(6), np.ones((6, 1))

    assert heaviest(picture, rows, 3, weight).tolist() == [3, 4, 5]
    assert heaviest(picture, rows[::-1].copy(), 3, weight).tolist() == [3, 4, 5]


def test_equal_brokers_are_distinguished_by_name_whatever_their_rows() -> None:
    one = cluster(x=0.9, c=0.1, b=0.1, bundles={"x": [1, 1, 1, 1, 1], "b": [1], "c": [1]})
    other = cluster(b=0.1, c=0.1, x=0.9, bundles={"x": [1, 1, 1, 1, 1], "b": [1], "c": [1]})

    assert {one.brokers.names[unload.destination] for unload in shed(one).unloads} == {"b"}
    assert {other.brokers.names[unload.destination] for unload in shed(other).unloads} == {"b"}


def test_unknown_traffic_of_a_broker_is_that_of_its_bundles() -> None:
    picture = cluster(**APART)
    silent = np.full_like(picture.brokers.traffic, np.nan)

    assert moves(shed(replace(picture, brokers=replace(picture.brokers, traffic=silent)))) == moves(shed(picture))


def test_memory_is_plain_json() -> None:
    memory = shed(cluster(**APART)).memory

    assert json.loads(json.dumps(memory, allow_nan=False)) == memory


def test_negative_variance_is_no_deviation_only_if_corrected() -> None:
    """Equal usages whose squares are rounded down: the deviation is not a number in the original."""
    picture = cluster(**dict.fromkeys("abc", 0.1))
    usage = picture.brokers.usage.copy()
    usage[:, CPU] = 0.1
    even = replace(picture, brokers=replace(picture.brokers, usage=usage))
    outcome = {
        compatibility: shedder(compatibility=compatibility).outcome(even, np.ones(12, dtype=bool), {}).before
        for compatibility in Compatibility
    }

    assert all(spread is not None for spread in outcome.values())
    assert outcome[Compatibility.CORRECTED].deviation >= 0  # type: ignore[union-attr]
