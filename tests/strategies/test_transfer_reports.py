"""What TransferShedder reads: usage, missing and old data, and the heaviest bundles of a broker."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from strategy_testing.clusters import FULL, NOW, cluster, with_bundles
from transfer_decisions import APART, moves, shed, shedder, why
from trimtab_strategies.filters import BrokerSelection, Manager
from trimtab_strategies.model import CPU, MEMORY, ClusterLoad, Reason
from trimtab_strategies.params import Compatibility
from trimtab_strategies.shedding.transfer.reports import SnapshotReports, heaviest


def test_usage_is_smoothed_once_per_snapshot() -> None:
    first = shed(cluster(a=0.9, b=0.1), hit_count=9)
    again = shed(cluster(a=0.5, b=0.5), dict(first.memory), hit_count=9)
    later = shed(replace(cluster(a=0.5, b=0.5), now=NOW + 60), dict(again.memory), hit_count=9)

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


def aged(picture: ClusterLoad, **age: float) -> ClusterLoad:
    """The cluster with data of these ages (seconds)."""
    ages = np.array([age.get(name, 0.0) for name in picture.brokers.names])
    return replace(picture, brokers=replace(picture.brokers, age=ages))


def test_outdated_broker_still_takes_part_but_not_if_corrected() -> None:
    picture = aged(cluster(a=0.9, b=0.1, c=0.5, bundles={name: [1, 1, 1, 1, 1] for name in "abc"}), b=1801)

    assert {unload.destination for unload in shed(picture, target_deviation_percent=10).unloads} == {1}
    corrected = shed(picture, target_deviation_percent=10, compatibility=Compatibility.CORRECTED)
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


def test_broker_without_busy_bundles_reports_none() -> None:
    silent = with_bundles(cluster(**APART), short={row: np.zeros(4) for row in range(4)})

    assert why(shed(silent)) is Reason.NO_LOAD_DATA


def test_only_the_heaviest_bundles_are_considered() -> None:
    picture = cluster(bundles={"a": [1, 2, 3, 4, 5, 6], "b": [1]}, a=0.9, b=0.1)

    assert moves(shed(picture, top_bundles=2, target_deviation_percent=10)) == [(0, [4], 1, [])]


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
