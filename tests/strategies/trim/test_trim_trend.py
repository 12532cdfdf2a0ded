"""What Trim makes of time: load that grows, differences that stay, figures that tremble, caches that are cold."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from trim_world import CORES, COST, Play, World, spread
from trimtab_strategies.model.cluster_load import FloatArray
from trimtab_strategies.shedding.trim.model import learned
from trimtab_strategies.shedding.trim.plan import AHEAD, MOST_GROWTH, PlannedLoad
from trimtab_strategies.shedding.trim.readings import SETTLES, unsettled
from trimtab_strategies.shedding.trim.replay import WINDOW, Replay, replayed
from trimtab_strategies.shedding.trim.samples import SampleRing

BUNDLES = 20


def replay_of(world: World, factors: list[FloatArray | float], spaces: int = 1) -> Replay:
    """The replay after a minute of each factor; the bundles are dealt to so many namespaces."""
    ring = SampleRing()
    for factor in factors:
        cluster = world.cluster(factor)
        names, namespace = tuple(f"public/{row}" for row in range(spaces)), np.arange(len(world.load)) % spaces
        cluster = replace(cluster, namespaces=names, bundles=replace(cluster.bundles, namespace=namespace))
        cluster = ring.add(cluster)
        world.now += 60
    assert cluster.recent is not None
    model, _ = learned(cluster, cluster.recent.last(WINDOW), {})
    return replayed(cluster, cluster.recent, model)


def even_world(brokers: int = 3) -> World:
    return World.of(*(spread(40, BUNDLES, seed) for seed in range(brokers)))


def test_steady_growth_is_found() -> None:
    """One percent of the middle's load a minute."""
    growth = replay_of(even_world(), [1 + 0.01 * (minute - 11.5) for minute in range(24)]).growth

    assert growth == pytest.approx(0.01, abs=1e-4)


def test_a_bundle_that_grows_beside_its_namespace_is_found() -> None:
    factors = []
    for minute in range(24):
        factor = np.ones(3 * BUNDLES)
        factor[7] += 0.02 * (minute - 11.5)
        factors.append(factor)
    growth = replay_of(even_world(), factors).growth

    assert growth[7] == pytest.approx(0.02, abs=0.003)
    assert np.abs(np.delete(growth, 7)).max() < 0.003


def test_namespaces_grow_apart() -> None:
    alternate = np.where(np.arange(3 * BUNDLES) % 2, -1.0, 1.0)
    factors = [1 + alternate * 0.01 * (minute - 11.5) for minute in range(24)]
    growth = replay_of(even_world(), factors, spaces=2).growth

    assert growth == pytest.approx(0.01 * alternate, abs=1e-4)


@pytest.mark.parametrize("at", [4, 9, 12, 15, 20])
def test_a_step_is_no_growth(at: int) -> None:
    growth = replay_of(even_world(), [1.0 if minute < at else 1.6 for minute in range(24)]).growth

    assert np.abs(growth).max() <= 0.002


def test_noise_is_hardly_ever_growth() -> None:
    rng = np.random.default_rng(4)
    noisy = [np.maximum(0, 1 + 0.3 * rng.standard_normal(3 * BUNDLES)) for _ in range(24)]

    assert (replay_of(even_world(), noisy).growth != 0).mean() < 0.05


def test_few_minutes_show_no_growth() -> None:
    assert not replay_of(even_world(), [1 + 0.05 * minute for minute in range(11)]).growth.any()


def test_a_plan_is_made_for_the_load_in_a_few_minutes() -> None:
    replay = replay_of(even_world(), [1 + 0.01 * (minute - 11.5) for minute in range(24)])
    planned = PlannedLoad.of(replay, 8)
    middle = 100 * np.median(replay.usage[:, :, 0], axis=0)

    assert planned.usage[:, 0] == pytest.approx(middle * (1 + 0.01 * AHEAD), rel=0.01)


def test_what_a_plan_adds_for_growth_is_bounded() -> None:
    replay = replay_of(even_world(), [float(1.25**minute) for minute in range(24)])
    planned = PlannedLoad.of(replay, 8)
    middle = 100 * np.median(replay.usage[:, :, 0], axis=0)

    assert (planned.usage[:, 0] <= (1 + MOST_GROWTH) * middle + 1e-9).all()


def tilted(points: float) -> Play:
    """Ten brokers at 40 %, but the first has so many points more, and the second as many less."""
    unequal = (spread(40 + points, 40, 98), spread(40 - points, 40, 99))
    return Play(World.of(*unequal, *(spread(40, 40, seed) for seed in range(8))))


def test_a_small_difference_that_stays_is_levelled_within_the_hour() -> None:
    """6 points, 12 apart: less than `hot` and `apart`, and no cause in the first half hour."""
    play = tilted(6)

    assert play.minutes(30) == 0
    assert play.minutes(40) > 0
    assert np.ptp(play.world.points()) < 8


@pytest.mark.parametrize("points", [2, 4.5])
def test_a_difference_below_two_thirds_of_a_cause_stays(points: float) -> None:
    assert tilted(points).minutes(180) == 0


def test_a_difference_that_is_interrupted_starts_again() -> None:
    play = tilted(6)
    level = np.ones(400)
    level[:40], level[40:80] = 40 / 46, 40 / 34
    for _ in range(4):
        play.minutes(25)
        play.minutes(3, level)

    assert sum(play.moves) == 0


def test_an_excess_that_trembles_around_the_limit_leaves_no_spike() -> None:
    """Between 7 and 9 points above the target: one excess, not many short ones."""
    play = Play(World.of(spread(40, 40, 0), *(spread(40, 40, seed) for seed in range(1, 10))))
    for minute in range(6):
        background = np.zeros(10)
        background[0] = CORES * (0.10 if minute % 2 else 0.085)
        play.world.background = background
        play.minute()

    assert not play.memory["spikes"]


def cold(world: World, factor: float = 2.0) -> FloatArray:
    """CPU (n,) while what has arrived in the last three minutes costs `factor` times as much."""
    extra = np.where(world.now - world.moved <= 180, factor - 1, 0)
    extra[np.isnan(world.moved)] = 0
    used: FloatArray = world.cpu(world.load) + COST * world.carried(world.load * extra)
    return np.minimum(used, world.cores)


def test_cold_caches_cause_no_moves() -> None:
    """After the plan the receivers look too hot for three minutes."""
    play = Play(World.of(spread(90, 40, 0), *(spread(45, 40, seed) for seed in range(1, 6))))
    for _ in range(40):
        play.minute(cpu=cold(play.world))

    assert sum(play.moves[:12]) > 0
    assert sum(play.moves[12:]) == 0
    assert np.ptp(play.world.points()) < 10


def test_only_arrivals_of_some_size_unsettle_a_broker() -> None:
    world = World.of([20, 20, 0.1], [20, 20], [20, 20])
    world.moved[[2, 3]] = world.now - 60
    cluster = SampleRing().add(world.cluster())
    assert cluster.recent is not None

    assert unsettled(cluster, cluster.recent).tolist() == [[False, True, False]]


@pytest.mark.parametrize(("minutes", "disturbed"), [(1, True), (SETTLES, True), (SETTLES + 1, False)])
def test_a_broker_settles_after_some_minutes(minutes: float, disturbed: bool) -> None:  # noqa: FBT001 - a parameter
    world = World.of([20, 20], [20, 20])
    world.moved[0] = world.now - 60 * minutes
    cluster = SampleRing().add(world.cluster())
    assert cluster.recent is not None

    assert unsettled(cluster, cluster.recent).tolist() == [[disturbed, False]]


def test_a_plan_against_foreign_load_is_not_interrupted() -> None:
    """Its broker was above 85 %, which needs no patience. Below 85 % it goes on, as it has begun."""
    play = Play(World.of(*(spread(45, 60, seed) for seed in range(10))))
    play.minutes(31)
    background = np.zeros(10)
    background[0] = 0.45 * CORES
    play.world.background = background
    first = play.first_move(8)
    assert first is not None
    play.minutes(4)

    assert all(play.moves[-5:-2])
