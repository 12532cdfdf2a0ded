"""When Trim acts: on a difference that lasts, and not on one that comes and goes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from trim_plans import MINUTES as PLAN_MINUTES, seen as observed
from trim_world import POINT, START, Play, World, spread
from trimtab_strategies.model import Reason
from trimtab_strategies.model.cluster_load import FloatArray
from trimtab_strategies.shedding.trim.cause import LOUD, SURGE, Cause, Watch, acted, cause, relief
from trimtab_strategies.shedding.trim.shedder import TrimParams

BUNDLES = 40
"""Bundles of a broker."""


def level_world(n: int = 10, points: float = 40) -> World:
    """Brokers that are level, each with 40 unequal bundles."""
    return World.of(*(spread(points, BUNDLES, seed) for seed in range(n)))


def one_above(points: float, n: int = 10, rest: float = 40) -> World:
    """Brokers that are level but for the last, which is `points` above the level of all."""
    own = rest + points * n / (n - 1)
    return World.of(*(spread(rest, BUNDLES, seed) for seed in range(n - 1)), spread(own, BUNDLES, 99))


def own(n: int, values: FloatArray) -> FloatArray:
    """A factor for each bundle of `level_world(n)` from one for each broker's tenants, wherever they are now."""
    return np.repeat(np.broadcast_to(values, n), BUNDLES)


def test_45_points_act_after_three_minutes_at_the_latest() -> None:
    assert Play(one_above(45)).first_move(10) in {2, 3}


def test_12_points_act_after_eight_minutes() -> None:
    assert Play(one_above(12)).first_move(20) in {7, 8}


def test_more_points_never_wait_longer() -> None:
    waited = [Play(one_above(points)).first_move(20) for points in (12, 16, 20, 30, 45)]

    assert waited == sorted((minutes for minutes in waited if minutes is not None), reverse=True)


def test_5_points_never_act() -> None:
    assert Play(one_above(5)).minutes(60) == 0


def test_a_new_broker_gets_load_at_once() -> None:
    """Its emptiness is as old as the ring."""
    play = Play(level_world(5, 60))
    play.minutes(8)
    more = World.of(*(spread(60, BUNDLES, seed) for seed in range(5)), [])
    more.now = play.world.now
    play.world = more

    assert play.minute().unloads


def test_an_imbalance_is_gone_soon_and_nothing_moves_after_that() -> None:
    play = Play(one_above(45))
    play.minutes(8)
    points = play.world.points()

    assert np.ptp(points) <= 8
    assert play.minutes(60) == 0


@pytest.mark.parametrize("factor", [2.0, 3.0, 10.0])
def test_a_burst_of_one_minute_never_acts(factor: float) -> None:
    """One broker's tenants carry several times as much for a minute, every seven minutes."""
    play = Play(level_world())
    for minute in range(90):
        busy = np.where((np.arange(10) == 0) & (minute % 7 == 6), factor, 1.0)
        play.minute(own(10, busy))

    assert sum(play.moves) == 0


@pytest.mark.parametrize("cores", [3.0, 6.0])
def test_another_program_of_one_minute_never_acts(cores: float) -> None:
    play = Play(level_world())
    for minute in range(90):
        play.world.background[0] = cores if minute % 7 == 6 else 0.0
        play.minute()

    assert sum(play.moves) == 0


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("period", [1, 2, 3, 5, 10])
def test_load_that_goes_on_and_off_moves_nothing_in_two_hours(period: int, seed: int) -> None:
    """Every broker's tenants carry 1.6 and 0.4 times their average for some minutes each, not in step."""
    play = Play(level_world(8, 45))
    phase = np.random.default_rng(seed).integers(0, 2 * period, 8)
    for minute in range(120):
        on = (minute + phase) % (2 * period) < period
        play.minute(own(8, np.where(on, 1.6, 0.4)))

    assert sum(play.moves) == 0


@pytest.mark.parametrize("pause", [3, 5, 10])
@pytest.mark.parametrize("minutes", [3, 5])
def test_another_program_that_comes_and_goes_is_not_answered_twice(minutes: int, pause: int) -> None:
    """35 points for some minutes, again and again: once the first spike is on record, nothing moves.

    The load is never quite constant, so the model can tell slope from background.
    """
    play, rng = Play(level_world()), np.random.default_rng(1)
    for minute in range(-10, 120):
        play.world.background[0] = 3.5 if minute >= 0 and minute % (minutes + pause) < minutes else 0.0
        play.minute(1 + 0.02 * rng.standard_normal(10 * BUNDLES))

    assert sum(play.moves[10 + minutes + pause :]) == 0


def test_another_program_that_stays_is_answered_though_shorter_ones_came_before() -> None:
    play = Play(level_world())
    play.minutes(10)
    for minute in range(20):
        play.world.background[0] = 3.5 if minute % 10 < 3 else 0.0
        play.minute()
    play.world.background[0] = 4.5

    assert play.minutes(12) > 0


def crowd(factor: float, points: float = 4.0, *, age: int = 10) -> tuple[Play, Callable[[int], FloatArray]]:
    """Ten level brokers with a bundle that carries `factor` times as much in its first minutes (by number).

    age: minutes before them.
    """
    world = level_world()
    world.load[0] = points * POINT
    world.long = world.load.copy()
    play = Play(world)
    play.minutes(age)

    def load(minutes: int) -> FloatArray:
        busy = np.ones(len(world.load))
        busy[0] = factor if len(play.moves) - age < minutes else 1.0
        return busy

    return play, load


def test_a_surge_of_ten_minutes_moves_nothing() -> None:
    """A bundle of 4 % of a broker carries ten times as much; its broker stays below 85 %."""
    play, load = crowd(10)
    for _ in range(60):
        play.minute(load(10))

    assert sum(play.moves) == 0


def test_a_surge_that_lasts_is_balanced() -> None:
    play, load = crowd(10)
    for _ in range(20):
        play.minute(load(60))

    assert sum(play.moves[:20]) == 0  # ten minutes before it and ten in it
    assert sum(play.moves) > 0
    assert play.world.points(play.world.load * load(60)).max() < 62  # the giant itself is 40


def test_a_surge_that_fills_a_broker_is_balanced_soon() -> None:
    play, load = crowd(20)
    for _ in range(4):
        play.minute(load(60))

    assert sum(play.moves) > 0


@pytest.mark.parametrize(("age", "minutes"), [(10, SURGE), (40, 4)])
def test_a_surge_must_last_longer_until_trim_can_know_of_spikes(age: int, minutes: float) -> None:
    """In its first half hour twelve minutes, after that as long as any other load."""
    play, load = crowd(10, age=age)

    assert play.first_move(20, load(60)) == minutes


@pytest.mark.parametrize("age", [10, 40])
def test_a_surge_that_fills_its_broker_never_waits(age: int) -> None:
    play, load = crowd(14, age=age)

    assert play.first_move(20, load(60)) == 3


@pytest.mark.parametrize("age", [10, 40])
@pytest.mark.parametrize(("cores", "minutes"), [(3.5, LOUD), (4.4, LOUD), (4.9, 4), (5.8, 5)])
def test_an_unusual_background_must_last_unless_its_broker_is_busy(age: int, cores: float, minutes: float) -> None:
    """40 % and another program of 35 or 44 points: seven minutes. Above 85 % it need not be usual.

    With 58 points the machine is full at once, which is believed in the second minute.
    """
    play = Play(level_world())
    play.minutes(age)
    play.world.background[0] = cores

    assert play.first_move(20) == minutes


def test_the_usual_background_follows_a_higher_one_slowly_and_a_lower_one_at_once() -> None:
    play, calm = Play(level_world()), []
    play.minutes(10)
    for cores in (*[3.0] * 20, 0.0):
        play.world.background[0] = cores
        play.sheddable = np.zeros(len(play.world.load), dtype=bool)
        play.minute()
        calm.append(play.memory["brokers"]["calm"]["broker-0"])

    assert np.diff(calm[:20]) == pytest.approx(np.full(19, 0.1), abs=1e-6)
    assert calm[20] == pytest.approx(0, abs=0.5)


def test_an_idle_cluster_is_left_alone() -> None:
    """Up to the floor of 30 % nothing moves, however skewed it is."""
    play = Play(World.of(*(spread(2, 10, seed) for seed in range(5)), spread(29, 10, 9)))

    assert play.minutes(30) == 0
    assert play.reasons == [Reason.BELOW_MINIMUM]


def test_the_floor_counts_the_busiest_broker() -> None:
    play = Play(World.of(*(spread(2, 10, seed) for seed in range(5)), spread(31, 10, 9)))

    assert play.minutes(30) > 0


def test_within_a_campaign_a_smaller_difference_is_enough() -> None:
    """Two brokers 45 points above need more moves than one plan may make; the next plan follows at once."""
    busy = [spread(88, 120, seed) for seed in (20, 21)]
    play = Play(World.of(*(spread(40, BUNDLES, seed) for seed in range(8)), *busy))
    first = play.first_move(10)
    assert first is not None
    play.minutes(4)
    plans = [minute for minute, moves in enumerate(play.moves) if moves]

    assert len(plans) > 1
    assert plans[1] <= plans[0] + 2


def test_own_relief_is_not_remembered_as_a_spike() -> None:
    play = Play(one_above(45))
    play.minutes(20)

    assert sum(play.moves) > 0
    assert not play.memory.get("spikes")


def test_a_spike_is_remembered_for_an_hour() -> None:
    play = Play(level_world())
    play.minutes(10)
    play.world.background[0] = 3.5
    play.minutes(3)
    play.world.background[0] = 0.0
    play.minutes(1)
    lengths = [minutes for _, minutes in play.memory["spikes"]]
    play.minutes(58)
    kept = [minutes for _, minutes in play.memory["spikes"]]
    play.minutes(3)

    assert lengths == pytest.approx([3, 3])  # of the excess, and of the background
    assert kept == lengths
    assert play.memory["spikes"] == []


def watch(
    *since: float, below: float = np.nan, spike: float = 0.0, campaign: bool = False, young: bool = False
) -> Watch:
    """A watch at 6000 s whose brokers have no background. below: epoch seconds, of the last broker."""
    never = np.full(len(since), np.nan)
    cold = np.append(never[1:], below)
    return Watch(6000.0, np.array(since), cold, np.zeros(len(since)), never, never, spike, campaign, young)


def test_windows_are_as_long_as_the_ring_at_most_and_longest_first() -> None:
    assert watch(np.nan).windows(8) == [8, 6, 5, 4, 3, 2]
    assert watch(np.nan).windows(5) == [5, 4, 3, 2]
    assert watch(np.nan).windows(1) == []


@pytest.mark.parametrize(
    ("spike", "windows"), [(0.5, [8, 6, 5, 4, 3, 2]), (2, [8, 6, 5, 4]), (3, [8, 6]), (4, [8]), (9, [8])]
)
def test_only_what_lasts_one_and_a_half_times_as_long_as_a_spike_counts(spike: float, windows: list[int]) -> None:
    assert watch(np.nan, spike=spike).windows(8) == windows


def test_a_difference_is_expected_to_last_as_long_as_it_has_lasted() -> None:
    assert [watch(np.nan).life(window) for window in (8, 6, 5, 4, 3, 2)] == [60, 6, 5, 4, 3, 2]
    assert [watch(np.nan, campaign=True).life(window) for window in (8, 6, 2)] == [60, 20, 20]


def test_minutes_of_an_excess_count_from_the_first_one() -> None:
    seen = watch(6000.0, 5820.0, np.nan)

    assert seen.lasted(seen.since) == pytest.approx([1, 4, 0])


def shown(points: tuple[list[float], ...], seen: Watch) -> Cause:
    """The cause that a few minutes of a constant load show."""
    replay, _ = observed(World.of(*points))
    return cause(replay, seen, PLAN_MINUTES, hot=7.5, apart=15.0)


@pytest.mark.parametrize(("minutes", "given"), [(0, False), (10, False), (14, False), (15, True), (30, True)])
def test_a_cold_broker_must_be_cold_longer_than_the_spikes_lasted(minutes: float, given: bool) -> None:  # noqa: FBT001
    """After a spike of nine minutes a difference must last 14.5; the third broker is 16 points below its level."""
    below = 6000 - 60 * (minutes - 1) if minutes else np.nan
    seen = watch(np.nan, np.nan, np.nan, below=below, spike=9.0)
    found = shown(([35.0], [35.0], [11.0]), seen)

    assert seen.patience == 14.5
    assert found.given == given
    assert found.hottest == 0
    assert found.range == pytest.approx(16 if given else 0)


@pytest.mark.parametrize(("minutes", "given"), [(0, False), (14, False), (15, True)])
def test_a_hot_broker_must_be_hot_longer_than_the_spikes_lasted(minutes: float, given: bool) -> None:  # noqa: FBT001
    since = 6000 - 60 * (minutes - 1) if minutes else np.nan

    assert shown(([35.0], [35.0], [55.0]), watch(np.nan, np.nan, since, spike=9.0)).given == given


def test_a_cold_broker_needs_no_patience_where_no_spike_was() -> None:
    nothing = watch(np.nan, np.nan, np.nan)

    assert nothing.patience == 0
    assert shown(([35.0], [35.0], [12.0]), nothing).given


def test_a_young_trim_trusts_a_difference_only_as_far_as_it_is_usual() -> None:
    """60 and 20 % now, 20 % each on average; once that has lasted for `SURGE` minutes, it counts."""
    world = World.of([60.0], [20.0])
    world.long = np.array([20.0, 20.0]) * POINT
    replay, _ = observed(world)

    def hottest(minutes: float, *, young: bool = True, campaign: bool = False) -> float:
        since = 6000 - 60 * (minutes - 1)
        seen = watch(since, np.nan, young=young, campaign=campaign)
        return cause(replay, seen, PLAN_MINUTES, hot=7.5, apart=15.0).hottest

    assert hottest(SURGE - 1) == pytest.approx(0, abs=0.01)
    assert hottest(SURGE) == pytest.approx(20)
    assert hottest(2, young=False) == pytest.approx(20)
    assert hottest(2, campaign=True) == pytest.approx(20)


def test_an_excess_and_a_lack_are_remembered_from_their_first_minute() -> None:
    play = Play(World.of([60.0], [40.0], [20.0]), sheddable=np.zeros(3, dtype=bool))
    play.minutes(5)

    assert play.memory["brokers"]["since"] == {"broker-0": START}
    assert play.memory["brokers"]["below"] == {"broker-2": START}


def test_a_plan_ends_the_excess_of_the_brokers_that_it_touches() -> None:
    memory = {"brokers": {"since": {"a": 1.0, "b": 2.0}, "below": {"a": 3.0}}}
    after = acted(memory, ("a", "b"), np.array([True, False]), 100.0)

    assert after["brokers"]["since"] == {"b": 2.0}
    assert after["brokers"].get("below", {}) == {}
    assert after["campaign"] == 100.0
    assert memory == {"brokers": {"since": {"a": 1.0, "b": 2.0}, "below": {"a": 3.0}}}


@pytest.mark.parametrize(
    ("before", "after", "explained", "gained"),
    [
        (70, 60, True, 10),
        (70, 40, True, 20),  # only down to the target of 50
        (40, 45, True, 0),
        (90, 80, True, 10 + 2 * 5),
        (99, 95, True, 4 * 20),
        (99, 95, False, 4),  # a false reading: its bundles do not explain it
        (40, 60, True, -10),
    ],
)
def test_points_of_a_busy_broker_count_more(before: float, after: float, explained: bool, gained: float) -> None:  # noqa: FBT001
    one = relief(np.array([float(before)]), np.array([float(after)]), np.array([50.0]), np.array([explained]))

    assert one == pytest.approx(gained)


def test_a_higher_worth_waits_longer_or_never_acts() -> None:
    patient = Play(one_above(12), TrimParams(worth=4000))

    assert Play(one_above(20), TrimParams(worth=800)).first_move(20) == 8
    assert patient.minutes(30) == 0
    assert "worth it from" in patient.text
