"""Trim's placement: a bundle goes where the busiest resource stays lowest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from trim_world import COST, POINT, World, spread, unmeasured
from trimtab_strategies.model import ClusterLoad
from trimtab_strategies.shedding.trim.place import TrimPlacement, TrimPlacementParams

PLACE = TrimPlacement(TrimPlacementParams())


def best(cluster: ClusterLoad, bundle: int, candidates: Sequence[int] | None = None) -> list[int]:
    rows = np.arange(len(cluster.brokers)) if candidates is None else np.array(candidates)
    return PLACE.best(cluster, bundle, rows, {}).brokers.tolist()


def unowned(world: World, *rows: int) -> World:
    """The world with bundles of no one: they are measured, but on no broker."""
    world.owner[list(rows)] = -1
    return world


def test_the_least_used_broker_gets_a_bundle() -> None:
    world = unowned(World.of([30, 10], [20], [25]), 1)

    assert best(world.cluster(), 1) == [1]


def test_only_candidates_get_a_bundle() -> None:
    world = unowned(World.of([30, 10], [20], [25]), 1)

    assert best(world.cluster(), 1, [0, 2]) == [2]


def test_brokers_that_would_be_as_used_tie() -> None:
    world = unowned(World.of([30, 10], [20], [20], [25]), 1)

    assert best(world.cluster(), 1) == [1, 2]


def test_the_busiest_resource_decides() -> None:
    """The second broker's CPU is idle, but its network is full."""
    nic = np.array([[1e9, 1e9], [1e9, 1.2e8], [1e9, 1e9]])
    world = unowned(World.of([40, 10], [10], [35], nic=nic), 1)

    assert best(world.cluster(), 1) == [2]


def test_a_large_bundle_goes_to_the_larger_machine_though_that_is_more_used() -> None:
    """20 % of ten cores are 5 % of forty: 30 + 5 is less than 20 + 20."""
    world = World.of([20], [30 * 4], [20], cores=np.array([10.0, 40.0, 10.0]))
    world.owner[2] = -1

    assert best(world.cluster(), 2, [0, 1]) == [1]


def test_a_small_bundle_goes_to_the_less_used_machine_whatever_its_size() -> None:
    world = World.of([20], [30 * 4], [1], cores=np.array([10.0, 40.0, 10.0]))
    world.owner[2] = -1

    assert best(world.cluster(), 2, [0, 1]) == [0]


def test_a_bundle_without_data_goes_to_the_least_used_broker() -> None:
    world = unowned(World.of([30, 10], [20], [25]), 1)
    cluster = world.cluster()
    nothing = cluster.bundles.short.copy()
    nothing[1] = np.nan
    cluster = replace(cluster, bundles=replace(cluster.bundles, short=nothing, long=nothing))

    assert best(cluster, 1) == [1]


def test_costs_that_no_one_declares_are_in_what_is_measured() -> None:
    """Ten cores do half as much on the first machine: with equal traffic it is the more used one."""
    world = World.of([20], [20], [10], cost=COST * np.array([2.0, 1.0, 1.0]))
    world.owner[2] = -1

    assert best(world.cluster(), 2, [0, 1]) == [1]


def test_heaviest_first_makes_a_level_cluster() -> None:
    """Forty bundles of no one on five brokers, the heaviest first, each counted where it goes."""
    world = World.of(spread(200, 40, 3, skew=0.5), [], [], [], [])
    world.owner[:] = -1
    for bundle in np.argsort(-world.load).tolist():
        world.owner[bundle] = best(world.cluster(), bundle)[0]

    assert np.ptp(world.points()) < 3


@settings(max_examples=60)
@given(data=st.data())
def test_any_figures_give_a_candidate(data: st.DataObject) -> None:
    n = data.draw(st.integers(1, 5))
    nic = np.array(data.draw(st.lists(st.sampled_from([0.0, 1e8, np.nan]), min_size=2 * n, max_size=2 * n)))
    cores = np.array(data.draw(st.lists(st.sampled_from([0.0, 4.0, 10.0]), min_size=n, max_size=n)))
    world = World.of(*([20.0, 5.0] for _ in range(n)), nic=nic.reshape(n, 2), cores=cores)
    cluster = unmeasured(world.cluster(), *data.draw(st.sets(st.integers(0, n - 1))))
    candidates = sorted(data.draw(st.sets(st.integers(0, n - 1), min_size=1)))
    found = best(cluster, data.draw(st.integers(0, 2 * n - 1)), candidates)

    assert found
    assert set(found) <= set(candidates)


def test_memory_is_handed_back() -> None:
    assert PLACE.best(World.of([10], [20]).cluster(), 0, np.array([0, 1]), {"mine": 1}).memory == {"mine": 1}


def test_load_of_the_world_is_in_points() -> None:
    assert World.of([30, 10], [20]).points() == pytest.approx([40, 20])
    assert World.of([30, 10], [20]).load.sum() == pytest.approx(60 * POINT)
