"""Trim plans within isolation policies: a level for each pool of brokers, and only destinations that are allowed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, strategies as st

from trim_plans import planned, seen, worlds
from trim_world import Play, World, spread
from trimtab_strategies.guard import MoveLimits
from trimtab_strategies.model import ClusterLoad, Isolation, Memory, NamespacePolicy
from trimtab_strategies.planner.decide import Pair, decide
from trimtab_strategies.protocols import Destinations
from trimtab_strategies.shedding.trim.place import TrimPlacement, TrimPlacementParams
from trimtab_strategies.shedding.trim.replay import pools
from trimtab_strategies.shedding.trim.shedder import Trim, TrimParams

GOLD = "public/gold"


def isolated(world: World, gold: int, free: int = 0) -> ClusterLoad:
    """The snapshot of a world whose first `gold` brokers serve a namespace of their own.

    free: number of bundles of each of them that may go anywhere.
    """
    cluster = world.cluster()
    owner = cluster.bundles.owner
    namespace = (owner < gold).astype(np.int64)
    for broker in range(gold):
        namespace[np.flatnonzero(owner == broker)[:free]] = 0
    hosts = tuple(cluster.brokers.names[:gold])
    return replace(
        cluster,
        bundles=replace(cluster.bundles, namespace=namespace),
        namespaces=("public/default", GOLD),
        policies={GOLD: NamespacePolicy(isolation=Isolation(primary=hosts))},
    )


def decided(world: World, gold: int, minutes: int = 12, *, free: int = 0) -> list[tuple[int, int]]:
    """All moves (source, destination) of some minutes of `decide`, each landed by the next minute."""
    play = Play(world)
    pair = Pair(Trim(TrimParams()), TrimPlacement(TrimPlacementParams()))
    memory, moves = Memory(), []
    first = isolated(world, gold, free)
    for _ in range(minutes):
        seen = replace(isolated(world, gold), now=world.now)
        seen = replace(seen, bundles=replace(seen.bundles, namespace=first.bundles.namespace))
        cluster = play.ring.add(seen)
        decision = decide(cluster, pair, MoveLimits(), memory, np.random.default_rng(0))
        memory = decision.memory
        assert not [held for held in decision.plan.held_back if "isolation" in held.detail]
        for move in decision.plan.moves:
            row = world.bundles.index(move.bundle)
            source, destination = world.brokers.index(move.source), world.brokers.index(move.destination)
            moves.append((source, destination))
            world.owner[row], world.moved[row] = destination, world.now
        world.now += 60
    return moves


def test_a_hot_pool_is_levelled_although_all_of_it_is_above_the_others() -> None:
    """Gold brokers at 85, 60 and 60 %, the others at 30 %: no gold broker is below the level of all."""
    gold = [spread(points, 30, seed) for seed, points in enumerate((85, 60, 60))]
    world = World.of(*gold, *(spread(30, 30, seed) for seed in (5, 6, 7)))
    moves = decided(world, 3)
    usage = world.points()

    assert moves
    assert all(source < 3 and destination < 3 for source, destination in moves)
    assert np.ptp(usage[:3]) < 10
    assert usage[3:] == pytest.approx(30)


def test_a_hot_broker_gives_to_those_that_it_can_reach_although_a_few_bundles_link_all_of_them() -> None:
    """One level for all six is 47 %: no gold broker is below it. Of 45 bundles of a gold broker one may go anywhere."""
    gold = [spread(points, 45, seed) for seed, points in enumerate((95, 60, 60))]
    world = World.of(*gold, *(spread(30, 45, seed) for seed in (5, 6, 7)))
    decided(world, 3, minutes=20, free=1)

    assert np.ptp(world.points()[:3]) < 12


def test_pools_that_differ_from_each_other_rest() -> None:
    world = World.of(*(spread(70, 30, seed) for seed in range(3)), *(spread(30, 30, seed) for seed in (5, 6, 7)))

    assert decided(world, 3) == []


def test_each_pool_is_levelled_by_itself() -> None:
    world = World.of(spread(90, 30, 0), spread(50, 30, 1), spread(20, 30, 2), spread(70, 30, 3))
    moves = decided(world, 2)

    assert {(source < 2, destination < 2) for source, destination in moves} == {(True, True), (False, False)}
    assert np.ptp(world.points()[:2]) < 10
    assert np.ptp(world.points()[2:]) < 10


def test_brokers_are_one_pool_if_a_bundle_links_them() -> None:
    group, owner = np.array([0, 1, 2]), np.array([0, 2, 3])
    allowed = np.array([[1, 1, 0, 0, 0], [0, 1, 1, 0, 0], [0, 0, 0, 1, 1]], dtype=bool)

    assert pools(owner, 5, Destinations(group, allowed)).tolist() == [0, 0, 0, 3, 3]


def test_groups_without_bundles_link_nothing() -> None:
    allowed = np.array([[1, 0], [0, 1], [1, 1]], dtype=bool)

    assert pools(np.array([0, 1, -1]), 2, Destinations(np.array([0, 1, 2]), allowed)).tolist() == [0, 1]


@pytest.mark.slow
@given(worlds(), st.data())
def test_no_bundle_goes_where_it_may_not(world: World, data: st.DataObject) -> None:
    n, m = len(world.brokers), len(world.load)
    groups = data.draw(st.integers(1, 3))
    draw = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    allowed, group = draw.random((groups, n)) < 0.6, draw.integers(0, groups, m)
    drawn = planned(world, destinations=Destinations(group, allowed))

    assert all(allowed[group[bundle], destination] for bundle, _, destination in drawn.trips())


def test_a_broker_that_no_bundle_may_go_to_is_not_vacant() -> None:
    """The empty third broker is kept for a namespace without bundles; the fourth is free."""
    world = World.of(spread(20, 20, 0), spread(10, 20, 1), [], [])
    allowed = np.array([[True, True, False, True], [False, False, True, False]])
    assert seen(world)[0].vacant.tolist() == [False, False, True, True]

    replay = seen(world, destinations=Destinations(np.zeros(40, dtype=np.int64), allowed))[0]

    assert replay.vacant.tolist() == [False, False, False, True]


def test_a_pool_with_few_bundles_is_not_vacant() -> None:
    world = World.of(*(spread(40, 40, seed) for seed in range(3)), [0.1, 0.1], [0.1, 0.1])
    group = np.repeat([0, 1], [120, 4])
    allowed = np.array([[True, True, True, False, False], [False, False, False, True, True]])
    replay = seen(world, destinations=Destinations(group, allowed))[0]

    assert not replay.vacant.any()
