"""The minutes that one decision leaves to the next: they change how fast a replay is, and nothing else."""

from __future__ import annotations

import pickle
from copy import deepcopy
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from trim_world import World, spread
from trimtab_strategies.model import ClusterLoad
from trimtab_strategies.shedding.trim.model import learned
from trimtab_strategies.shedding.trim.replay import WINDOW, Replay, replayed
from trimtab_strategies.shedding.trim.replayed_minutes import KnownMinutes
from trimtab_strategies.shedding.trim.samples import SampleRing

EVENTS = ("nothing", "nothing", "a move", "a lost owner", "a gap", "a full broker")


def replay(cluster: ClusterLoad, known: KnownMinutes | None = None) -> Replay:
    assert cluster.recent is not None
    model, _ = learned(cluster, cluster.recent.last(WINDOW), {})
    return replayed(cluster, cluster.recent, model, known=known)


def happen(event: str, world: World, row: int) -> ClusterLoad:
    """The snapshot of the next half minute, in which `event` happens to the bundle `row`, or to its broker."""
    factor = np.linspace(0.8, 1.2, len(world.load)) * (1 + row / 10)
    if event == "a move":
        world.owner[row] = (world.owner[row] + 1) % len(world.cores)
    if event == "a lost owner":
        world.owner[row] = -1
    if event == "a gap":
        factor[row] = np.nan
    load = np.nan_to_num(world.load * factor)
    full = world.cores * (np.arange(len(world.cores)) == max(int(world.owner[row]), 0))
    cpu = np.maximum(world.cpu(load), full) if event == "a full broker" else world.cpu(load)
    cluster = world.cluster(factor, cpu=cpu)
    world.now += 30
    return cluster


@pytest.mark.slow
@settings(max_examples=60)
@given(st.lists(st.tuples(st.sampled_from(EVENTS), st.integers(0, 8)), min_size=1, max_size=24))
def test_a_replay_that_continues_is_the_one_that_begins_anew(events: list[tuple[str, int]]) -> None:
    world, ring, known = World.of(spread(60, 3, 1), spread(30, 3, 2), spread(20, 3, 3)), SampleRing(), KnownMinutes()
    for event, row in events:
        cluster = ring.add(happen(event, world, row))

        continued, anew = replay(cluster, known), replay(cluster)

        np.testing.assert_array_equal(continued.carried, anew.carried)
        np.testing.assert_array_equal(continued.away, anew.away)
        np.testing.assert_array_equal(continued.vacant, anew.vacant)


def test_a_minute_that_is_known_is_not_added_up_again() -> None:
    world, ring, known = World.of(spread(60, 3, 1), spread(20, 3, 2)), SampleRing(), KnownMinutes()
    for _ in range(4):
        cluster = ring.add(world.cluster())
        world.now += 60
    assert replay(cluster, known).carried.any()
    before = {id(minute) for minute in known.minutes}

    assert replay(ring.add(world.cluster()), known).carried.any()

    assert sum(id(minute) in before for minute in known.minutes) == 4
    assert len(known.minutes) == 5


@pytest.mark.parametrize("how", ["deepcopy", "pickle"])
def test_a_copy_begins_anew(how: str) -> None:
    """Tasks are sent to executors with their strategies, and not with the minutes of a cluster."""
    world, known = World.of(spread(60, 3, 1), spread(20, 3, 2)), KnownMinutes()
    assert replay(SampleRing().add(world.cluster()), known).carried.any()

    copied = deepcopy(known) if how == "deepcopy" else pickle.loads(pickle.dumps(known))

    assert known.minutes
    assert (copied.minutes, len(copied.owned.owner)) == ((), 0)


def test_a_replay_with_other_owners_adds_up_for_them() -> None:
    world = World.of(spread(60, 3, 1), spread(20, 3, 2))
    first = replay(SampleRing().add(world.cluster()))
    before = first.carried

    swapped = replace(first, owner=1 - first.owner)

    np.testing.assert_allclose(swapped.carried, before[:, ::-1])
