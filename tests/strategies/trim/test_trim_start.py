"""Trim's first plan, with the minutes before the first cycle filled in and without them."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from strategy_testing.clusters import NOW, cluster
from trim_world import Play, World, spread
from trimtab_strategies.model import BrokerTraits, ClusterLoad
from trimtab_strategies.shedding.trim.samples import REPLAYED, CycleSamples, SampleRing
from trimtab_strategies.shedding.trim.shedder import Trim, TrimParams

LEVEL = 0.5


def load_at(minute: int, began: int, apart: float) -> ClusterLoad:
    """Two brokers that are level until `began` (minutes), and then differ by `apart`."""
    half = apart / 2 if minute > began else 0.0
    load = cluster(bundles=20, cold=LEVEL - half, hot=LEVEL + half)
    return replace(load, now=NOW + 60 * minute, bundles=replace(load.bundles, newest=load.bundles.short))


def first_plan(filled: int, began: int, apart: float) -> int:
    """Minutes until the first plan, with so many minutes filled in before the first cycle."""
    ring, memory, mean = SampleRing(), dict[str, Any](), np.zeros(())
    past = (load_at(-ago, began, apart) for ago in range(1, filled + 1))
    ring.fill([CycleSamples.of(one.now, one.brokers, one.bundles.names, one.bundles.newest) for one in past])
    for minute in range(60):
        load = load_at(minute, began, apart)
        mean = mean + (load.bundles.newest - mean) / (minute + 1)
        load = ring.add(replace(load, bundles=replace(load.bundles, long=mean)))
        decided = Trim(TrimParams()).shed(load, np.ones(len(load.bundles), bool), memory)
        if decided.unloads:
            return minute
        memory = dict(decided.memory)
    raise AssertionError("it never moves anything")


@pytest.mark.parametrize("apart", [0.3, 0.6])
@pytest.mark.parametrize("began", [-6, -4, -2, 0, 2])
def test_the_first_plan_is_never_later_than_without_past_minutes(began: int, apart: float) -> None:
    assert first_plan(REPLAYED - 1, began, apart) <= first_plan(0, began, apart)


def test_what_has_lasted_for_eight_minutes_is_moved_at_once() -> None:
    assert [first_plan(REPLAYED - 1, -8, apart) for apart in (0.3, 0.6)] == [0, 0]
    assert [first_plan(0, -8, apart) for apart in (0.3, 0.6)] == [4, 3]


def with_shift(quiet: int) -> Play:
    """Three brokers after `quiet` minutes without load and ten with: then the load of one doubles, of others halves."""
    play = Play(World.of(*(spread(40, 10, seed) for seed in range(3))))
    for _ in range(quiet):
        play.seen(0.0)
        play.world.now += 60
    play.minutes(10)
    play.world.load *= np.where(play.world.owner == 0, 2.0, 0.5)
    return play


def test_where_the_whole_load_has_just_begun_none_of_it_is_unusual() -> None:
    """A load that changes in the first half hour must last for 12 minutes, unless there is nothing usual yet."""
    assert with_shift(quiet=3).first_move(20) <= 3
    assert with_shift(quiet=0).first_move(20) == 12


def first_move_after(quiet: int) -> int | None:
    """Minutes to the first move of three brokers at 55, 35 and 35 % after `quiet` minutes without load."""
    play = Play(World.of(spread(55, 10, 1), spread(35, 10, 2), spread(35, 10, 3)))
    for _ in range(quiet):
        play.seen(0.0)
        play.world.now += 60
    return play.first_move(20)


@pytest.mark.parametrize(("ages", "minutes"), [((60, 60, 60), 2), ((60, 60, 9e5), 5), ((60, 60, math.nan), 5)])
def test_on_a_cluster_of_new_brokers_a_difference_is_how_bundles_were_placed(
    ages: tuple[float, ...], minutes: int
) -> None:
    play = Play(World.of(spread(55, 10, 1), spread(35, 10, 2), spread(35, 10, 3)))
    starts = {
        name: BrokerTraits(started=play.world.now - age) for name, age in zip(play.world.brokers, ages, strict=True)
    }
    seen = play.seen
    play.seen = lambda *how, **more: replace(seen(*how, **more), traits=starts)  # type: ignore[method-assign]

    assert play.first_move(20) == minutes


def test_a_difference_that_came_with_the_whole_load_is_how_bundles_were_placed_and_will_last() -> None:
    assert first_move_after(quiet=3) == 2
    assert first_move_after(quiet=0) == 5
