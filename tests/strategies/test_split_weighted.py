"""WeightedSplitter divides a bundle once, by the load of its topics, and says why it does not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings, strategies as st

from splitting_clusters import large, reasons, with_topics
from trimtab_strategies.guard import MoveCaps, MoveLimits, movable_bundles
from trimtab_strategies.hash_ring import BundleName, bundle_names, default_boundaries, parse_bundle
from trimtab_strategies.model import ClusterLoad, Memory, Reason
from trimtab_strategies.placement.least_resource_usage import (
    LeastResourceUsageWithWeight,
    LeastResourceUsageWithWeightParams,
)
from trimtab_strategies.planner.candidates import DestinationChoice
from trimtab_strategies.planner.prediction import PredictedLoad
from trimtab_strategies.planner.splits import divide
from trimtab_strategies.protocols import Splitting
from trimtab_strategies.splitting.boundaries import children, cut_into, distinct_places
from trimtab_strategies.splitting.limits import Inside
from trimtab_strategies.splitting.weighted import WeightedSplitter, WeightedSplitterParams
from trimtab_strategies.usage import Weights

EVEN = [((k + 0.5) / 20, 10.0) for k in range(20)]
"""Twenty topics, evenly spread over the bundle, of 10 MiB/s each: twice what a bundle may carry."""


def _split(drawn: ClusterLoad, memory: Any = None, **params: Any) -> Splitting:
    splitter = WeightedSplitter(WeightedSplitterParams(**{"hit_count": 1, **params}))
    return splitter.split(drawn, np.ones(len(drawn.bundles), dtype=bool), memory or {})


def _hot(topics: Sequence[tuple[float, float]] = EVEN) -> ClusterLoad:
    return with_topics(large({}), {0: topics})


def test_each_child_carries_its_part_and_is_below_the_target() -> None:
    (split,) = _split(_hot()).proposed

    assert split.reason is Reason.BANDWIDTH
    assert split.shares.tolist() == pytest.approx([0.25] * 4)
    assert split.spread


def test_boundaries_follow_the_load_and_not_the_range() -> None:
    crowded = [(0.9 + 0.005 * k, 10.0) for k in range(20)]

    (split,) = _split(_hot(crowded)).proposed

    _, lower, upper = parse_bundle(large({}).bundles.names[0])
    assert min((boundary - lower) / (upper - lower) for boundary in split.boundaries) > 0.9
    assert split.shares.tolist() == pytest.approx([0.25] * 4)


def test_more_children_are_made_when_the_target_asks_for_it() -> None:
    assert len(_split(_hot(), target_percent=30).proposed[0].shares) == 7
    assert len(_split(_hot(), target_percent=30, max_children=5).proposed[0].shares) == 5


def test_no_more_children_than_the_namespace_has_room_for() -> None:
    assert len(_split(_hot(), max_bundles=6).proposed[0].shares) == 3


def test_nothing_is_split_that_is_not_above_a_limit() -> None:
    splitting = _split(_hot([(k / 10, 10.0) for k in range(10)]))

    assert not splitting.proposed
    assert [(entry.reason, entry.detail) for entry in splitting.held_back] == [
        (
            Reason.BALANCED,
            "no split: no bundle exceeds its limits; closest is public/a/0x00000000_0x40000000 at 100% of Bandwidth",
        )
    ]


def test_one_hot_topic_is_not_split_and_the_advice_is_partitions() -> None:
    splitting = _split(_hot([(0.2, 5.0), (0.5, 150.0), (0.7, 5.0)]))

    assert not splitting.proposed
    (entry,) = splitting.held_back
    assert entry.reason is Reason.HOT_TOPIC
    assert entry.subject == "public/a/0x00000000_0x40000000"
    assert entry.detail == ("persistent://public/a/topic-0-1 is 94% of its Bandwidth: add partitions to that topic")


def test_two_equal_topics_are_parted() -> None:
    (split,) = _split(_hot([(0.2, 100.0), (0.5, 100.0)])).proposed

    assert split.shares.tolist() == [0.5, 0.5]


def test_topics_on_one_place_cannot_be_parted() -> None:
    splitting = _split(_hot([(0.2, 70.0), (0.2, 70.0)]))

    assert reasons(splitting) == [Reason.TOO_FEW_TOPICS]


def test_a_single_topic_of_unknown_load_is_too_few() -> None:
    assert reasons(_split(large({0: {"topics": 1, "throughput": 300}}))) == [Reason.TOO_FEW_TOPICS]


def test_a_bundle_whose_inside_is_unknown_is_left_whole() -> None:
    assert reasons(_split(large({0: {"topics": 9, "throughput": 300}}))) == [Reason.NO_LOAD_DATA]


def test_topics_that_explain_too_little_of_the_load_are_not_enough() -> None:
    drawn = _hot()
    more = drawn.bundles.short.copy()
    more[0] *= 2

    splitting = _split(replace(drawn, bundles=replace(drawn.bundles, short=more)))

    assert [entry.detail for entry in splitting.held_back] == [
        "its known topics make up 50% of its load, 80% are needed"
    ]


def test_a_range_of_one_hash_is_too_narrow() -> None:
    drawn = _hot()
    names = (str(BundleName("public/a", 0, 1)), str(BundleName("public/a", 1, 2**30)), *drawn.bundles.names[1:])
    drawn = replace(drawn, bundles=replace(drawn.bundles, names=names[: len(drawn.bundles)]))

    assert reasons(_split(drawn)) == [Reason.TOO_NARROW]


def test_a_full_namespace_is_not_split() -> None:
    assert reasons(_split(_hot(), max_bundles=4)) == [Reason.MAX_BUNDLES]


def test_the_condition_must_hold_for_some_cycles() -> None:
    memory: Any = {}
    answers = []
    for _ in range(3):
        splitting = _split(_hot(), memory, hit_count=3)
        memory = splitting.memory
        answers.append((len(splitting.proposed), reasons(splitting)))

    assert answers == [(0, [Reason.HIT_COUNT]), (0, [Reason.HIT_COUNT]), (1, [])]
    assert memory["hits"] == {}


def test_a_cool_cycle_forgets_the_hits() -> None:
    memory = _split(_hot(), hit_count=3).memory

    assert _split(large({}), memory, hit_count=3).memory["hits"] == {}


def test_hits_outlive_a_cycle_in_which_the_bundle_may_not_be_split() -> None:
    memory = _split(_hot(), hit_count=3).memory
    splitter = WeightedSplitter(WeightedSplitterParams(hit_count=3))

    after = splitter.split(_hot(), np.zeros(8, dtype=bool), memory).memory

    assert after["hits"] == {"public/a/0x00000000_0x40000000": 1}


def test_the_budget_of_a_namespace_is_spent_and_comes_back() -> None:
    drawn = with_topics(large({}), {0: EVEN, 1: EVEN, 4: EVEN})
    spent = _split(drawn, budget=1, budget_window="100s")
    later, much_later = (
        _split(replace(drawn, now=drawn.now + more), spent.memory, budget=1, budget_window="100s") for more in (99, 100)
    )

    assert [split.bundle for split in spent.proposed] == [0, 4]
    assert reasons(spent) == [Reason.SPLIT_BUDGET]
    assert not later.proposed
    assert "one more in 1 s" in later.held_back[0].detail
    assert [split.bundle for split in much_later.proposed] == [0, 4]


def test_a_split_dated_in_the_future_does_not_block_the_budget() -> None:
    drawn = _hot()

    assert _split(drawn, {"splits": {"public/a": [drawn.now + 1e9]}}, budget=1).proposed


def test_splits_of_a_namespace_count_against_its_room_in_the_same_cycle() -> None:
    drawn = with_topics(large({}), {0: EVEN, 1: EVEN})

    splitting = _split(drawn, max_bundles=7)

    assert [split.bundle for split in splitting.proposed] == [0]
    assert reasons(splitting) == [Reason.MAX_BUNDLES]


def test_the_fullest_bundle_is_split_first() -> None:
    drawn = with_topics(large({}), {0: EVEN, 1: [*EVEN, (0.01, 10.0)]})

    assert [split.bundle for split in _split(drawn).proposed] == [1, 0]


def test_too_many_topics_are_split_by_their_number() -> None:
    drawn = with_topics(large({}), {0: [((k % 30 + k / 60) / 31, 0.001) for k in range(60)]})

    (split,) = _split(drawn, max_topics=50).proposed

    assert split.reason is Reason.TOPICS
    assert split.shares.tolist() == pytest.approx([0.5, 0.5])


def test_no_child_has_less_than_nothing_when_a_topic_s_load_cannot_be() -> None:
    drawn = with_topics(large({}), {0: [(0.1, 50.0), (0.3, 50.0), (0.6, 90.0), (0.9, -90.0)]})

    shares = Inside(drawn).shares(0, np.array([0x20000000, 0x30000000]))

    assert shares.tolist() == pytest.approx([100 / 190, 90 / 190, 0])


def test_many_refusals_are_reported_in_a_few_lines() -> None:
    hot = large({row: {"topics": 9, "throughput": 300} for row in range(40)}, a=0.5, b=0.5, bundles=20)

    splitting = _split(hot)

    assert len(splitting.held_back) == 4
    assert sum(entry.count for entry in splitting.held_back) == 40


def test_a_hot_bundle_ends_on_several_brokers_in_one_plan() -> None:
    """a carries everything in one bundle; after one decision four brokers carry a quarter each."""
    drawn = large({}, a=0.9, b=0.0, c=0.0, d=0.0, bundles={"a": [1], "b": [], "c": [], "d": []})
    drawn = with_topics(drawn, {0: EVEN})
    placement = LeastResourceUsageWithWeight(LeastResourceUsageWithWeightParams(history_percent=0))
    predicted = PredictedLoad(drawn, Weights())

    division = divide(
        drawn,
        WeightedSplitter(WeightedSplitterParams(hit_count=1)),
        DestinationChoice(placement, np.arange(4), None),
        predicted,
        Memory(),
        sheddable=movable_bundles(drawn, MoveLimits()),
        rng=np.random.default_rng(0),
        caps=MoveCaps(4, budget=20, per_broker=10),
        max_splits=1,
    )

    assert sorted(division.splits[0].destinations) == ["a", "b", "c", "d"]
    assert predicted.percent()[:, 0].tolist() == pytest.approx([22.5] * 4, abs=1e-4)


@given(
    topics=st.lists(st.tuples(st.integers(1000, 2000), st.floats(0, 1e9)), min_size=1, max_size=60),
    count=st.integers(2, 12),
)
def test_every_cut_splits_the_range_and_weighs_what_it_says(topics: list[tuple[int, float]], count: int) -> None:
    places, weights = np.array([place for place, _ in topics]), np.array([weight for _, weight in topics])
    distinct, sums = distinct_places(places, weights, 1000, 2000)
    assume(len(distinct) >= 2)
    assume(sums[-1] > 0)

    cut = cut_into(distinct, sums, count)

    ranges = children(1000, 2000, cut.boundaries.tolist())
    held = [weights[(places >= lower) & ((places < upper) | (upper == 2000))].sum() for lower, upper in ranges]
    assert 2 <= len(ranges) <= count
    assert max(held) / weights.sum() == pytest.approx(cut.heaviest, abs=1e-9)
    assert all(((places >= lower) & (places <= upper)).any() for lower, upper in ranges)


def test_boundaries_of_a_whole_ring_can_be_cut_at_its_last_hash() -> None:
    """The last hash can't be parted from the one before it, as no boundary lies between them."""
    distinct, _ = distinct_places(np.array([0xFFFFFFFE, 0xFFFFFFFF]), np.ones(2), 0, 0xFFFFFFFF)

    assert distinct.tolist() == [0xFFFFFFFE]
    assert bundle_names("t/n", default_boundaries(1)) == ("t/n/0x00000000_0xffffffff",)


@settings(max_examples=50, deadline=None)
@given(
    inside=st.lists(
        st.tuples(st.floats(-0.5, 1.5), st.one_of(st.floats(0, 200), st.sampled_from([np.nan, np.inf, -5.0]))),
        max_size=30,
    ),
    fill=st.floats(0.5, 50),
)
def test_odd_topics_never_break_it_and_what_it_splits_it_splits_well(
    inside: list[tuple[float, float]], fill: float
) -> None:
    """Topics outside their bundle, and loads that can't be: refused with a reason, or divided into better ones."""
    drawn = _hot([(place, 1.0) for place, _ in inside] or [(0.5, 1.0)])
    lower, upper = parse_bundle(drawn.bundles.names[0])[1:]
    short, traffic = drawn.bundles.short.copy(), drawn.topics.traffic.copy()
    short[0, 2:] = fill * 50 * 1048576
    for k, (_, load) in enumerate(inside):
        traffic[k] = load * 1048576
    drawn = replace(drawn, bundles=replace(drawn.bundles, short=short), topics=replace(drawn.topics, traffic=traffic))

    splitting = _split(drawn, known_load_percent=0)

    assert splitting.proposed or splitting.held_back
    for split in splitting.proposed:
        assert ((split.boundaries > lower) & (split.boundaries < upper)).all()
        assert split.shares.sum() == pytest.approx(1)
        assert len(split.shares) == len(split.boundaries) + 1 <= 8
