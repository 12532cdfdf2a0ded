"""Trim's splitter: a bundle that no broker can carry whole is cut once, into as many children as it needs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from strategy_testing.compare import reordered
from trim_world import POINT, World, spread
from trimtab_strategies.hash_ring import parse_bundle
from trimtab_strategies.model import CPU, ClusterLoad, Reason, Topics
from trimtab_strategies.protocols import Splitting
from trimtab_strategies.shedding.trim.samples import SampleRing
from trimtab_strategies.shedding.trim.split import TrimSplitter, TrimSplitterParams

TENANTS = [[5.0] * 6] * 7
"""Seven brokers at 30 %."""


def with_topics(cluster: ClusterLoad, inside: Mapping[int, Sequence[float]]) -> ClusterLoad:
    """The cluster with the topics of some bundles (rows), evenly spread over their range: the percent of each."""
    names, rows, places, traffic = [], [], [], []
    for row, points in inside.items():
        _, lower, upper = parse_bundle(cluster.bundles.names[row])
        for number, value in enumerate(points):
            names.append(f"persistent://public/default/topic-{row}-{number}")
            rows.append(row)
            places.append(lower + int((number + 0.5) / len(points) * (upper - lower)))
            traffic.append([1.0, 2.0, value * POINT / 3, value * POINT * 2 / 3])
    found = Topics(tuple(names), np.array(rows), np.array(places), np.array(traffic, dtype=np.float64))
    return replace(cluster, topics=found)


def measured(world: World, *factors: float, giant: int = 0, ring: SampleRing | None = None) -> ClusterLoad:
    """The snapshot after a minute of each factor of the giant's load; seven minutes of rest are before them."""
    ring = SampleRing() if ring is None else ring
    factor = np.ones(len(world.load))
    for value in (*[0.1] * 7, *factors):
        factor[giant] = value
        cluster = ring.add(world.cluster(factor))
        world.now += 60
    return cluster


def split(cluster: ClusterLoad, **params: Any) -> Splitting:
    splitting = TrimSplitter(TrimSplitterParams(**params)).split(cluster, np.ones(len(cluster.bundles), dtype=bool), {})
    assert json.loads(json.dumps(splitting.memory, allow_nan=False)) == splitting.memory
    return splitting


def giant_world(points: float = 60.0) -> World:
    """A bundle (row 0) of so many points on a broker with 30 % of others, beside seven brokers at 30 %."""
    return World.of([points, *[5.0] * 6], *TENANTS)


def test_a_giant_is_cut_in_one_step_into_children_of_three_tenths_of_the_level() -> None:
    """60 points; the level is 300 / 8 = 37.5 %, so a child may have 11.25."""
    splitting = split(with_topics(measured(giant_world(), 1, 1), {0: [3.75] * 16}))
    (found,) = splitting.proposed

    assert found.bundle == 0
    assert found.spread
    assert len(found.boundaries) + 1 == 6
    assert found.shares == pytest.approx(np.array([3, 2, 3, 3, 2, 3]) / 16)
    assert found.shares.sum() == pytest.approx(1)


def test_the_children_share_the_load_of_the_topics_evenly() -> None:
    topics = spread(60, 40, 5, skew=0.5)
    (found,) = split(with_topics(measured(giant_world(), 1, 1), {0: topics})).proposed

    assert len(found.shares) == 6
    assert found.shares.max() < 2 * found.shares.mean()
    _, lower, upper = parse_bundle(giant_world().bundles[0])
    assert ((found.boundaries > lower) & (found.boundaries < upper)).all()
    assert (np.diff(found.boundaries) > 0).all()


def test_a_burst_of_one_minute_splits_nothing() -> None:
    """A split stays, a burst does not."""
    assert not split(with_topics(measured(giant_world(), 1), {0: [3.75] * 16})).proposed
    assert not split(with_topics(measured(giant_world(), 1, 0.1), {0: [3.75] * 16})).proposed
    assert not split(with_topics(measured(giant_world(), 1, 0.1, 1), {0: [3.75] * 16})).proposed


def test_a_bundle_that_the_coldest_broker_can_carry_stays_whole() -> None:
    """25 points on a broker at 10 % are 35: within 10 points of the level."""
    world = World.of([25.0, *[5.0] * 6], *TENANTS, [10.0])
    splitting = split(with_topics(measured(world, 1, 1), {0: [2.0] * 12}))

    assert not splitting.proposed
    assert [held.reason for held in splitting.held_back] == [Reason.BALANCED]
    assert "25 points" in splitting.held_back[0].detail


def test_a_bundle_that_is_well_where_it_is_stays_whole() -> None:
    """It fills most of its broker, which is the coldest one: a split would move nothing."""
    world = World.of([60.0], *([10.0] * 7 for _ in range(3)))
    splitting = split(with_topics(measured(world, 1, 1), {0: [3.75] * 16}))

    assert not splitting.proposed


def test_a_giant_alone_on_its_broker_is_split_if_that_is_far_above_the_level() -> None:
    world = World.of([80.0], [5.0] * 4, [5.0] * 4)

    assert split(with_topics(measured(world, 1, 1), {0: [5.0] * 16})).proposed


def test_a_cluster_of_one_broker_splits_nothing() -> None:
    """There is nowhere to go."""
    assert not split(with_topics(measured(World.of([50.0, 10.0]), 1, 1), {0: [5.0] * 10})).proposed


def test_only_bundles_that_may_be_split_are() -> None:
    cluster = with_topics(measured(giant_world(), 1, 1), {0: [3.75] * 16})
    splitting = TrimSplitter(TrimSplitterParams()).split(cluster, np.zeros(len(cluster.bundles), dtype=bool), {})

    assert not splitting.proposed
    assert splitting.held_back


def test_a_topic_that_is_most_of_it_is_named() -> None:
    splitting = split(with_topics(measured(giant_world(), 1, 1), {0: [40.0, 10.0, 10.0]}))

    assert not splitting.proposed
    (held,) = splitting.held_back
    assert held.reason is Reason.HOT_TOPIC
    assert "topic-0-0" in held.detail
    assert "67%" in held.detail
    assert "partitions" in held.detail


@pytest.mark.parametrize(
    ("topics", "params", "reason"),
    [
        ({}, {}, Reason.NO_LOAD_DATA),
        ({0: [0.0, 0.0]}, {}, Reason.NO_LOAD_DATA),
        ({0: [60.0]}, {"hot_topic_percent": 100}, Reason.TOO_FEW_TOPICS),
        ({0: [3.75] * 16}, {"max_bundles": 49}, Reason.MAX_BUNDLES),
    ],
)
def test_each_obstacle_has_its_reason(
    topics: Mapping[int, list[float]], params: dict[str, Any], reason: Reason
) -> None:
    cluster = measured(giant_world(), 1, 1)
    splitting = split(with_topics(cluster, topics) if topics else cluster, **params)

    assert len(giant_world().load) == 49
    assert not splitting.proposed
    assert [held.reason for held in splitting.held_back] == [reason]


def test_a_namespace_gets_no_more_bundles_than_it_may_have() -> None:
    cluster = with_topics(measured(giant_world(), 1, 1), {0: [3.75] * 16})
    (found,) = split(cluster, max_bundles=51).proposed

    assert len(cluster.bundles) + len(found.boundaries) == 51


def test_all_splits_of_a_plan_together_keep_to_that() -> None:
    world = World.of([40.0, *[5.0] * 6], [50.0, *[5.0] * 6], *TENANTS)
    cluster = with_topics(measured(world, 1, 1), {0: [2.5] * 16, 7: [3.125] * 16})
    found = split(cluster, max_bundles=len(world.load) + 3)

    assert sum(len(one.boundaries) for one in found.proposed) == 3
    assert split(cluster, max_bundles=len(world.load) + 2).held_back[0].reason is Reason.MAX_BUNDLES


def test_a_broker_that_takes_no_bundles_is_not_the_coldest_one() -> None:
    """Seven brokers at 60 % can't carry 30 points more; the eighth is being drained, and idle."""
    world = World.of([30.0, *[5.0] * 12], *([10.0] * 6 for _ in range(6)), [])
    cluster = with_topics(measured(world, 1, 1), {0: [1.875] * 16})
    draining = replace(cluster, brokers=replace(cluster.brokers, schedulable=np.arange(8) < 7))
    alone = replace(cluster, brokers=replace(cluster.brokers, schedulable=np.arange(8) == 1))

    assert not split(cluster).proposed
    assert split(draining).proposed
    assert [held.reason for held in split(alone).held_back] == [Reason.NO_CANDIDATE]


def test_a_giant_of_the_network_is_split_where_no_broker_has_a_limit_of_cpu() -> None:
    world = giant_world(20.0)
    world.nic = np.tile([1e9, 2.5e8], (8, 1))
    world.load[1:] *= 0.2
    cluster = with_topics(measured(world, 1, 1), {0: [1.25] * 16})
    limit = cluster.brokers.limit.copy()
    limit[:, CPU] = 0.0

    assert split(replace(cluster, brokers=replace(cluster.brokers, limit=limit))).proposed


def test_a_split_has_at_most_so_many_children() -> None:
    (found,) = split(with_topics(measured(giant_world(), 1, 1), {0: [3.75] * 16}), max_children=3).proposed

    assert len(found.boundaries) == 2


def test_two_minutes_must_have_been_measured() -> None:
    ring = SampleRing(averaged=True)
    splitting = split(with_topics(ring.add(giant_world().cluster()), {0: [3.75] * 16}))

    assert not splitting.proposed
    assert [held.reason for held in splitting.held_back] == [Reason.NO_LOAD_DATA]
    assert [held.reason for held in split(giant_world().cluster()).held_back] == [Reason.NO_LOAD_DATA]


def test_a_giant_of_the_network_is_split_though_its_cpu_is_small() -> None:
    world = giant_world(20.0)
    world.nic = np.tile([1e9, 2.5e8], (8, 1))  # its 133 MB/s out are 53 %, the others' 200 MB/s of a broker are 80 %
    world.load[1:] *= 0.2

    assert split(with_topics(measured(world, 1, 1), {0: [1.25] * 16})).proposed


def test_the_largest_comes_first_and_the_order_of_rows_does_not_matter() -> None:
    world = World.of([40.0, *[5.0] * 6], [50.0, *[5.0] * 6], *TENANTS)
    cluster = with_topics(measured(world, 1, 1), {0: [2.5] * 16, 7: [3.125] * 16})
    brokers, bundles = np.arange(9)[::-1], np.arange(len(world.load))[::-1]
    assert cluster.recent is not None
    recent = replace(
        cluster.recent,
        cpu=cluster.recent.cpu[:, brokers],
        traffic=cluster.recent.traffic[:, brokers],
        bundles=[minute[bundles] for minute in cluster.recent.bundles],
    )
    other = replace(reordered(replace(cluster, recent=None), brokers, bundles), recent=recent)

    def in_words(shown: ClusterLoad) -> list[tuple[str, list[int]]]:
        return [(shown.bundles.names[one.bundle], one.boundaries.tolist()) for one in split(shown).proposed]

    assert [name for name, _ in in_words(cluster)] == [world.bundles[7], world.bundles[0]]
    assert in_words(other) == in_words(cluster)


def test_an_empty_cluster_is_fine() -> None:
    for world in (World.of(), World.of([], [])):
        ring = SampleRing()
        ring.add(world.cluster())
        world.now += 60
        splitting = split(ring.add(world.cluster()))

        assert not splitting.proposed
        assert splitting.held_back
