"""Averages that count samples, and the two orders of bundles."""

from __future__ import annotations

import numpy as np
import pytest

from trimtab_strategies.usage import (
    LONG_WINDOW,
    SHORT_WINDOW,
    UNSEEN,
    averaged_steps,
    compared,
    reported_steps,
    with_sample,
)


def averaged(samples: list[float], window: int, start: float = 0.0, count: int = 0) -> float:
    average = np.array(start)
    for sample in samples:
        average, count = with_sample(average, count, np.array(sample), window)
    return float(average)


def test_a_window_that_is_not_full_weighs_all_samples_alike() -> None:
    assert averaged([10, 20, 60], SHORT_WINDOW) == 30


def test_a_full_window_moves_by_its_share() -> None:
    assert averaged([0, 0], SHORT_WINDOW, start=1000, count=SHORT_WINDOW) == 810
    assert averaged([1100], LONG_WINDOW, start=100, count=LONG_WINDOW) == 101


def test_a_bundle_never_seen_starts_at_fifty_messages() -> None:
    average, count = with_sample(UNSEEN, 1, np.zeros(4), SHORT_WINDOW)

    assert count == 2
    assert average.tolist() == [25, 25, 25000, 25000]


def bundle(rate: float = 0, throughput_in: float = 0, throughput_out: float = 0) -> np.ndarray:
    return np.array([[rate, 0, throughput_in, throughput_out]])


@pytest.mark.parametrize(
    ("left", "right", "by_average", "by_report"),
    [
        pytest.param(bundle(0, 149_999), bundle(0, 150_000), 0, -1, id="cut in one order, rounded in the other"),
        pytest.param(bundle(0, 1e5), bundle(0, 0, 99e5), 1, 1, id="inbound outranks outbound"),
        pytest.param(bundle(0, 0, 1e5), bundle(99e5), 1, 1, id="bytes outrank messages"),
        pytest.param(bundle(149), bundle(150), 0, -1, id="messages"),
        pytest.param(bundle(10), bundle(20), 0, 0, id="many tie"),
    ],
)
def test_bundles_are_ordered_in_steps(left: np.ndarray, right: np.ndarray, by_average: int, by_report: int) -> None:
    def reported(traffic: np.ndarray) -> list[int]:
        return reported_steps(traffic, np.zeros(1), np.zeros(1))[0].tolist()  # type: ignore[no-any-return]

    assert compared(averaged_steps(left)[0].tolist(), averaged_steps(right)[0].tolist()) == by_average
    assert compared(reported(left), reported(right)) == by_report


def test_sessions_and_cache_come_last() -> None:
    steps = reported_steps(np.zeros((2, 4)), np.array([499.0, 500.0]), np.array([199_999.0, 100_000.0]))

    assert steps[:, 3:].tolist() == [[0, 1], [1, 1]]
