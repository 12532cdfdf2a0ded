"""What the metrics show: exact unless the scenario asks for lies, and each lie shows and is bounded."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from small_worlds import RNG, Script, cpu, small
from trimtab_lab.simulation import World, run
from trimtab_strategies.model import CPU, NETWORK_IN, NETWORK_OUT, RATE_IN, THROUGHPUT_IN, THROUGHPUT_OUT
from trimtab_strategies.model.cluster_load import FloatArray

Seen = tuple[FloatArray, FloatArray, FloatArray]


def seen(made: World, wanted: dict[int, list[tuple[int, int]]] | None = None) -> Seen:
    """CPU (rounds, n) in cores, traffic (rounds, n) in bytes/s, and age (rounds, n), as shown."""
    script = Script(wanted or {})
    run(made, script, RNG(0))
    cpu = np.array([cluster.brokers.usage[:, CPU] for cluster in script.seen])
    traffic = np.array([cluster.brokers.traffic[:, THROUGHPUT_IN] for cluster in script.seen])
    return cpu, traffic, np.array([cluster.brokers.age for cluster in script.seen])


def level(**metrics: float) -> World:
    """Ten brokers at 50 % of 16 cores, for a hundred rounds."""
    return small(*[0.5] * 10, rounds=100, metrics=metrics)


def test_without_lies_everything_is_exact() -> None:
    script = Script()

    run(small(0.8, 0.2), script, RNG(0))

    cluster = script.seen[7]
    bundles, brokers = cluster.bundles, cluster.brokers
    assert brokers.usage[:, CPU].tolist() == pytest.approx([12.8, 3.2])
    sums = np.stack([bundles.newest[bundles.owner == row].sum(axis=0) for row in range(2)])
    assert brokers.traffic == pytest.approx(sums)
    assert brokers.usage[:, NETWORK_IN] == pytest.approx(sums[:, THROUGHPUT_IN])
    assert brokers.usage[:, NETWORK_OUT] == pytest.approx(sums[:, THROUGHPUT_OUT])
    assert brokers.limit[0].tolist() == [16, 10, 10, 25e9 / 8, 25e9 / 8]
    assert bundles.newest == pytest.approx(bundles.short)
    assert bundles.newest[:, THROUGHPUT_OUT] == pytest.approx(2 * bundles.newest[:, THROUGHPUT_IN])
    assert bundles.newest[:, RATE_IN] == pytest.approx(bundles.newest[:, THROUGHPUT_IN] / 1024)


def test_noise_is_around_the_truth() -> None:
    cpu, traffic, _ = seen(level(noise=0.15))

    assert cpu.mean() == pytest.approx(8, rel=0.02)
    assert cpu.std() == pytest.approx(1.2, rel=0.1)
    assert np.ptp(traffic) == pytest.approx(0)
    assert cpu.min() >= 0
    assert cpu.max() <= 16


def test_spikes_are_readings_of_a_full_machine() -> None:
    cpu, _, _ = seen(level(spikes=0.03))

    assert 10 <= (cpu == 16).sum() <= 60
    assert sorted(set(cpu.ravel().round(9).tolist())) == [8, 16]


def test_missing_readings_are_unknown_and_nothing_else_is() -> None:
    cpu, traffic, age = seen(level(missing=0.05))

    assert 20 <= np.isnan(cpu).sum() <= 90
    assert (cpu[~np.isnan(cpu)] == 8).all()
    assert np.isfinite(traffic).all()
    assert (age == 0).all()


def test_stale_reports_repeat_the_one_before() -> None:
    made = small(0.8, 0.2, 0.2, rounds=100, metrics={"stale": 0.3})

    cpu, traffic, age = seen(made, {step: [(0, step % 3)] for step in range(0, 99, 2)})

    old = age[1:] == 60
    assert 50 <= old.sum() <= 130
    assert (cpu[1:][old] == cpu[:-1][old]).all()
    assert (traffic[1:][old] == traffic[:-1][old]).all()
    assert set(age.ravel().tolist()) == {0, 60}


@pytest.mark.parametrize(("metrics", "shown"), [({"newest": 0.3}, [0.3, 0.51, 0.657]), ({}, [1, 1, 1])])
def test_an_average_follows_slowly(metrics: dict[str, float], shown: list[float]) -> None:
    cpu, traffic, _ = seen(small(0.8, 0.0, metrics=metrics), {0: [(row, 1) for row in range(4)]})

    assert (cpu[1:4, 1] / 12.8).tolist() == pytest.approx(shown)
    assert (traffic[1:4, 1] / traffic[0, 0]).tolist() == pytest.approx(shown)


def test_a_late_window_shows_a_part_of_the_minute_before() -> None:
    made = small(*[0.8, 0.0] * 5, metrics={"scrape": 50})
    moves: dict[int, list[tuple[int, int]]] = {0: [(4 * k + j, 2 * k + 1) for k in range(5) for j in range(4)]}

    cpu, _, _ = seen(made, moves)

    late = 1 - cpu[1, 1::2] / 12.8
    assert late.tolist() == pytest.approx(made.lies.late[1::2].tolist())
    assert 0 <= late.min() < late.max() <= 50 / 60
    assert (cpu[2, 1::2] == 12.8).all()


def test_brokers_that_are_gone_are_not_measured() -> None:
    script = Script()

    run(small(0.4, 0.4, events=[{"event": "leave", "brokers": [1], "round": 2}]), script, RNG(0))

    brokers = script.seen[2].brokers
    assert brokers.ready.tolist() == brokers.trusted.tolist() == [True, False]
    assert np.isnan(brokers.usage[1]).all()
    assert brokers.age.tolist() == [0, np.inf]


def test_only_large_bundles_show_their_topics() -> None:
    script = Script()
    fields: dict[str, Any] = {"tenants": [{"skew": 0, "jitter": 0, "topics": 5}]}

    run(small(0.8, 0.2, **fields), script, RNG(0))

    topics, bundles = script.seen[3].topics, script.seen[3].bundles
    assert set(topics.bundle.tolist()) == {0, 1, 2, 3}  # 20 points each; the others 5
    sums = [topics.traffic[topics.bundle == row].sum(axis=0).tolist() for row in range(4)]
    assert np.array(sums) == pytest.approx(bundles.newest[:4])
    assert bundles.topics.tolist() == [5] * 8


def test_figures_of_bundles_may_be_older_than_those_of_brokers() -> None:
    made = small(1.6, 0.0, metrics={"bundlesLate": 2})
    script = Script({0: [(row, 1) for row in range(2)]})

    run(made, script, RNG(0))

    newest = [cluster.bundles.newest[:, THROUGHPUT_IN].sum() for cluster in script.seen[:5]]
    assert (np.array(newest) / newest[0]).tolist() == pytest.approx([1, 1, 1, 1.6, 1.6])
    assert cpu(script.seen[1]) == [80, 80]


def test_late_figures_of_a_split_bundle_begin_with_the_children() -> None:
    made = small(0.8, 0.2, metrics={"bundlesLate": 3})
    place = made.pieces.place[made.pieces.bundle == 0]
    script = Script(splits={5: (0, [int(place[4])], ())})

    run(made, script, RNG(0))

    sums = [cluster.bundles.newest.sum() for cluster in script.seen]
    assert np.ptp(sums) / sums[0] == pytest.approx(0)
