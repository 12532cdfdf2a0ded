"""Trim fills brokers that have hardly any bundles: soon, at any usage, and once."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from trim_world import Play, World, spread

BUNDLES = 24


def all_on_one(points: float, brokers: int = 3) -> World:
    """All bundles on the first broker, which they bring to `points`; the others have none."""
    return World.of(spread(points, BUNDLES, 1), *([] for _ in range(brokers - 1)))


@pytest.mark.parametrize("points", [0.3, 3, 12, 29, 45, 90])
def test_everything_on_one_broker_is_shared_out_after_two_minutes(points: float) -> None:
    play = Play(all_on_one(points))

    assert play.first_move(5) == 2


@pytest.mark.parametrize("points", [3, 12, 29, 60])
@pytest.mark.parametrize("brokers", [2, 3, 5])
def test_the_shares_are_even_in_the_end(points: float, brokers: int) -> None:
    play = Play(all_on_one(points, brokers))
    play.minutes(12)
    usage = play.world.points()

    assert usage.max() - usage.min() <= 0.5 * usage.mean()


def test_a_cluster_that_was_filled_rests() -> None:
    play = Play(all_on_one(12))
    play.minutes(12)

    assert play.minutes(120) == 0


def test_a_burst_of_one_minute_fills_nothing() -> None:
    play = Play(all_on_one(12))
    play.minute(0.0)
    play.minute(1.0)

    assert play.minutes(10, 0.0) == 0


def test_a_broker_whose_tenants_sleep_is_not_vacant() -> None:
    """It has as many bundles as the others."""
    world = World.of(spread(20, BUNDLES, 1), spread(20, BUNDLES, 2), spread(20, BUNDLES, 3))
    play = Play(world)
    asleep = np.repeat([1.0, 1.0, 0.0], BUNDLES)
    for minute in range(60):
        play.minute(asleep if minute % 20 < 10 else np.ones(3 * BUNDLES))

    assert sum(play.moves) == 0


def test_a_broker_with_few_heavy_bundles_is_not_vacant() -> None:
    play = Play(World.of(spread(20, BUNDLES, 1), [10.0, 10.0]))

    assert play.minutes(30) == 0


def test_a_vacant_broker_that_takes_no_bundles_changes_nothing() -> None:
    """A draining broker may not receive; the floor holds for the others."""
    play = Play(World.of(spread(20, BUNDLES, 1), spread(5, BUNDLES, 2), []))
    for _ in range(20):
        cluster = play.seen()
        closed = replace(cluster.brokers, schedulable=np.array([True, True, False]))
        play.decided(replace(cluster, brokers=closed))

    assert sum(play.moves) == 0


def test_all_brokers_below_their_level_get_bundles_the_vacant_one_most() -> None:
    play = Play(World.of(spread(20, BUNDLES, 1), spread(5, BUNDLES, 2), []))
    play.minutes(12)
    usage = play.world.points()

    assert usage.max() - usage.min() <= 0.5 * usage.mean()
    assert (play.world.owner == 2).sum() > (play.world.owner == 1).sum() - BUNDLES > 0


def test_predictions_are_in_percent_of_the_real_machine() -> None:
    play = Play(all_on_one(12))
    while not play.minute().unloads:
        pass
    predicted = {name: percent for _, name, percent, _ in play.memory["predictions"]}

    for name, percent in zip(play.world.brokers, play.world.points().tolist(), strict=True):
        assert predicted[name] == pytest.approx(percent, abs=1)
