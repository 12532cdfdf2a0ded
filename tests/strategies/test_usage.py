"""Percent, maximum and average as Pulsar rounds them; and what one bundle is believed to cause."""

from __future__ import annotations

import numpy as np
import pytest

from strategy_testing.clusters import FULL, cluster, with_bundles
from trimtab_strategies.model import CPU, NETWORK_OUT, THROUGHPUT_IN
from trimtab_strategies.usage import (
    MODULAR_COLUMNS,
    Weights,
    attributed,
    mean,
    measured_percent,
    percent,
    smooth,
    weighted_maximum,
    with_moves_in_flight,
)


@pytest.mark.parametrize(
    ("usage", "limit", "expected"),
    [
        (30.0, 100.0, 30.000001907348633),  # rounded to 32 bits at each step
        (60.0, 100.0, 60.000003814697266),
        (1.0, 3.0, 33.333335876464844),
        (250.0, 100.0, 250.0),
        (50.0, 0.0, 0.0),
        (50.0, -1.0, 0.0),
    ],
)
def test_percent_is_rounded_in_32_bits(usage: float, limit: float, expected: float) -> None:
    assert percent(np.array([usage]), np.array([limit])).tolist() == [expected]


def test_unknown_usage_stays_unknown_and_never_wins() -> None:
    percents = percent(np.array([[np.nan, 99.0, 0.0, 40.0, 20.0]]), np.full((1, 5), 100.0))

    assert np.isnan(percents[0, CPU])
    assert weighted_maximum(percents, Weights(), MODULAR_COLUMNS).tolist() == [0.40]


def test_nothing_known_is_no_load_at_all() -> None:
    assert weighted_maximum(np.full((1, 5), np.nan, dtype=np.float32), Weights(), MODULAR_COLUMNS).tolist() == [-np.inf]


def test_what_people_read_of_a_resource_without_limit_or_usage_is_unknown() -> None:
    usage, limit = np.array([[50.0, 0.0, 5.0, np.nan]]), np.array([[100.0, np.nan, 0.0, 100.0]])

    shown = measured_percent(usage, limit)

    assert shown[0, 0] == 50.0
    assert np.isnan(shown).tolist() == [[False, True, True, True]]


def test_first_value_starts_the_average() -> None:
    assert smooth(np.array([np.nan, 1.0]), np.array([0.5, 0.5]), 0.9).tolist() == [0.5, 0.9 + (1 - 0.9) * 0.5]


def test_mean_does_not_depend_on_order() -> None:
    values = np.array([0.1, 0.7, 0.2, 0.3, 1e-9])

    assert len({mean(np.random.default_rng(seed).permutation(values)) for seed in range(20)}) == 1
    assert mean(np.empty(0)) == 0


def test_bundle_causes_its_share_of_its_owner() -> None:
    # a 80 %: three parts and one part
    drawn = cluster(a=0.8, b=0.4, bundles={"a": [3, 1], "b": [1]})

    load = attributed(drawn, np.array([0, 1, 2]))

    assert load[:, CPU] == pytest.approx([0.6, 0.2, 0.4])
    assert load[:, NETWORK_OUT] == pytest.approx(np.array([0.6, 0.2, 0.4]) * FULL * 2 / 3)
    assert load[:, [1, 2]].tolist() == [[0, 0]] * 3, "memory stays with the process"


def test_bundle_without_data_or_owner_causes_nothing_known() -> None:
    drawn = with_bundles(cluster(a=0.8, b=0.4, bundles={"a": [1, 1], "b": [1]}), short={0: np.nan}, owner={2: -1})

    load = attributed(drawn, np.array([0, 1, 2]))

    assert load[:, CPU].tolist() == [0, 0.8, 0]


def test_move_in_flight_counts_as_landed() -> None:
    # a 80 %, b 20 %; a bundle of 20 points has been given to b, and a's metrics still contain three quarters of it
    drawn = with_bundles(cluster(a=0.8, b=0.2, bundles=4), owner={0: 1}, moving_from={0: 0}, moving_share={0: 0.75})
    before = drawn.brokers.usage.copy()

    landed = with_moves_in_flight(drawn)

    part = 0.8 * 0.75 / 3.75  # of the 3.75 bundles that are measured on a
    assert landed.brokers.usage[:, CPU] == pytest.approx([0.8 - part, 0.2 + part])
    assert landed.brokers.traffic[:, THROUGHPUT_IN].sum() == pytest.approx(
        drawn.brokers.traffic[:, THROUGHPUT_IN].sum()
    )
    assert with_moves_in_flight(landed) is landed, "and only once"
    assert (drawn.brokers.usage == before).all()


def test_bundle_that_has_settled_shifts_nothing() -> None:
    drawn = with_bundles(cluster(a=0.8, b=0.2), owner={0: 1}, moving_from={0: 0}, moving_share={0: 0.0})

    assert with_moves_in_flight(drawn) is drawn


def test_move_away_from_an_unknown_broker_does_not_make_its_destination_unknown() -> None:
    drawn = with_bundles(cluster(a=np.nan, b=0.2, bundles=1), owner={0: 1}, moving_from={0: 0}, moving_share={0: 1.0})

    landed = with_moves_in_flight(drawn)

    assert landed.brokers.usage[1, CPU] == 0.2
