"""Where bundles are divided: each algorithm, its refusals, and the children that come of it."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, strategies as st

from trimtab_strategies.hash_ring import LAST_HASH
from trimtab_strategies.params import Compatibility
from trimtab_strategies.splitting.boundaries import (
    InvalidBoundaryError,
    can_split,
    checked,
    child_of,
    children,
    flow_or_qps_equally_divide,
    range_equally_divide,
    specified_positions_divide,
    specified_positions_force,
    topic_count_equally_divide,
)


def _found(places: list[int], rates: list[float], **limits: object) -> list[int] | None:
    given_limits = {"max_rate": 100, "max_throughput": 1e9, "difference": 0, **limits}
    found = flow_or_qps_equally_divide(
        np.array(places),
        np.array(rates),
        np.zeros(len(rates)),
        **given_limits,  # type: ignore[arg-type]
    )
    return None if found is None else found.tolist()


def test_range_is_halved() -> None:
    assert range_equally_divide(0, LAST_HASH).tolist() == [0x7FFFFFFF]
    assert range_equally_divide(0, 3).tolist() == [1]


@pytest.mark.parametrize(
    ("places", "expected"),
    [([5], None), ([], None), ([10, 20, 30, 41], [25]), ([100, 1, 50, 2, 75], [26]), ([7, 7], [7])],
)
def test_topic_count_splits_between_the_two_in_the_middle(places: list[int], expected: list[int] | None) -> None:
    found = topic_count_equally_divide(np.array(places, dtype=np.int64))

    assert (None if found is None else found.tolist()) == expected


def test_only_positions_strictly_inside_are_kept() -> None:
    assert specified_positions_divide(0, 25, [30, 10, 25, 0, 20], 2).tolist() == [10, 20]  # type: ignore[union-attr]
    assert specified_positions_divide(0, 25, [0, 25], 2) is None


def test_positions_need_two_topics_unless_forced() -> None:
    assert specified_positions_divide(0, 25, [10], 1) is None
    assert specified_positions_force(0, 25, [10]).tolist() == [10]  # type: ignore[union-attr]


def test_no_position_at_all_is_an_error() -> None:
    with pytest.raises(InvalidBoundaryError, match="no position was given for 0x00000000_0x00000019"):
        specified_positions_force(0, 25, [])


def test_flow_cuts_before_the_topic_that_no_longer_fits() -> None:
    assert _found([100, 200, 300], [60, 60, 30]) == [151]
    assert _found([100, 200, 300], [60, 60, 60]) == [151, 251]


def test_flow_below_the_limit_and_its_difference_splits_nothing() -> None:
    assert _found([100, 200], [50, 59], difference=10) is None
    assert _found([100, 200], [50, 61], difference=10) == [151]


def test_flow_at_the_limit_exactly_finds_no_boundary() -> None:
    assert _found([100, 200], [50, 50]) == []


def test_flow_leaves_idle_topics_out() -> None:
    assert _found([100, 200], [0, 500]) is None


def test_topics_on_one_place_are_one_topic_when_corrected() -> None:
    places, rates = [100, 100, 200, 300], [90.0, 10.0, 50.0, 10.0]

    assert _found(places, rates, compatibility=Compatibility.JAVA) == []
    assert _found(places, rates, compatibility=Compatibility.CORRECTED) == [151]


@pytest.mark.parametrize(("lower", "upper", "possible"), [(0, 1, False), (7, 7, False), (0, 2, True)])
def test_a_range_of_one_hash_cannot_be_split(lower: int, upper: int, possible: bool) -> None:  # noqa: FBT001 - a table
    assert can_split(lower, upper) == possible


def test_boundaries_make_one_child_more_than_they_are() -> None:
    assert children(0, 100, [60, 20]) == [(0, 20), (20, 60), (60, 100)]
    assert checked(0, 100, np.array([60, 20])).tolist() == [20, 60]


def test_a_plain_split_is_equal_and_the_last_child_takes_the_rest() -> None:
    assert children(0, 10, count=3) == [(0, 3), (3, 6), (6, 10)]


@pytest.mark.parametrize(
    ("boundaries", "count", "told"),
    [
        ([0], 2, "boundary 0x00000000 is not strictly inside 0x00000000_0x00000010: leave it out"),
        ([5, 16], 2, "boundary 0x00000010 is not strictly inside"),
        ([5, 5], 2, "boundary 0x00000005 of 0x00000000_0x00000010 is given twice: leave one out"),
        ([], 0, "can't be split into 0: use 2 to 16"),
        ([], 17, "can't be split into 17: use 2 to 16"),
    ],
)
def test_what_makes_no_children_is_refused(boundaries: list[int], count: int, told: str) -> None:
    with pytest.raises(InvalidBoundaryError, match=told):
        children(0, 16, boundaries, count)


def test_a_narrow_bundle_is_refused_whatever_the_boundaries() -> None:
    with pytest.raises(InvalidBoundaryError, match="range 0x00000007_0x00000008 can't be split: it must be wider"):
        children(7, 8)


@given(
    upper=st.integers(3, 1000), inner=st.sets(st.integers(1, 1000), min_size=1, max_size=20), place=st.integers(0, 1000)
)
def test_every_hash_of_a_bundle_is_in_exactly_one_child(upper: int, inner: set[int], place: int) -> None:
    boundaries = sorted(boundary for boundary in inner if boundary < upper) or [1]
    at = place % upper

    holding = [k for k, (left, right) in enumerate(children(0, upper, boundaries)) if left <= at < right]

    assert holding == child_of(np.array(boundaries), np.array([at])).tolist()
