"""The comparison of a shadow with the policy that acts: figures over the same cycles, and a verdict beyond noise."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, strategies as st

from trim_world import World, spread
from trimtab_strategies.counterfactual.comparison import (
    DAYS,
    JUDGED,
    Better,
    Comparison,
    PairSums,
    SideSums,
    as_data,
    cycle_sums,
    from_data,
    seconds_of,
)
from trimtab_strategies.counterfactual.ownership import OwnerChange

DAY = 86400.0
HOUR = 3600.0


def day_of(acting: float, shadow: float, seconds: float = DAY) -> PairSums:
    """A day on which the brokers were so many points apart, with the one and with the other."""
    sides = (SideSums(area=points * seconds) for points in (acting, shadow))
    return PairSums(seconds, seconds, 100 * seconds, seconds, seconds, *sides)


def compared(*days: PairSums, today: PairSums | None = None) -> Comparison:
    """A comparison of these days, and of what there is of today."""
    found = Comparison(0.0, 0.0)
    for number, sums in enumerate(days):
        found = found.after(sums, number * DAY + 12 * HOUR)
    return found.after(today or PairSums(), len(days) * DAY + HOUR)


def test_figures_are_those_of_the_same_cycles() -> None:
    world = World.of(spread(90, 9, 1), spread(30, 3, 2))
    load = world.cluster()
    level = replace(load.brokers, usage=np.array(load.brokers.usage))
    level = replace(level, usage=np.where(np.arange(5) == 0, 6.0, level.usage))
    gone = [OwnerChange(load.bundles.names[0], "broker-0", "broker-1")]

    sums = cycle_sums(load, (load.brokers, []), (level, gone), seconds=60, measured=0.9)

    acting, shadow = sums.figures(sums.acting), sums.figures(sums.shadow)
    assert (acting.moves, shadow.moves) == (0, 1)
    assert acting.range == pytest.approx(60, abs=1)
    assert shadow.range == pytest.approx(0, abs=0.1)
    assert (acting.hot, shadow.hot) == (1.0, 0.0)
    assert (acting.cut, shadow.cut) == (0.0, pytest.approx(100 / 12))


def test_usage_that_is_known_of_one_side_only_counts_for_neither() -> None:
    load = World.of([40], [20]).cluster()
    unknown = replace(load.brokers, usage=np.full_like(load.brokers.usage, np.nan))

    sums = cycle_sums(load, (load.brokers, []), (unknown, []), seconds=60, measured=1.0)

    assert (sums.seconds, sums.known, sums.acting.area) == (60, 0.0, 0.0)
    assert math.isnan(sums.figures(sums.acting).range)


def test_a_gap_counts_for_two_intervals_at_most() -> None:
    assert seconds_of(1000.0, 940.0, 60.0) == 60
    assert seconds_of(9000.0, 1000.0, 60.0) == 120
    assert seconds_of(1000.0, 2000.0, 60.0) == 0


def test_nothing_is_said_before_seven_whole_days() -> None:
    for days in range(DAYS):
        assert compared(*[day_of(30, 10)] * days, today=day_of(30, 10)).verdict().better is Better.UNKNOWN

    found = compared(*[day_of(30, 10)] * DAYS).verdict()

    assert (found.better, found.days, found.saved) == (Better.YES, DAYS, 20)


def test_a_day_of_which_less_than_half_was_measured_is_no_whole_day() -> None:
    short = day_of(30, 10, seconds=11 * HOUR)

    assert compared(*[day_of(30, 10)] * (DAYS - 1), short).verdict().days == DAYS - 1


def test_a_difference_within_noise_is_not_better() -> None:
    noisy = [day_of(20 + step, 20) for step in (5, -4, 6, -5, 4, -3, 2)]

    found = compared(*noisy).verdict()

    assert found.better is Better.NO
    assert found.lowest < 0 < found.highest
    assert compared(*[day_of(20, 20)] * DAYS).verdict().better is Better.NO
    assert compared(*[day_of(10, 30)] * DAYS).verdict().better is Better.NO


def test_a_shadow_that_cuts_many_clients_is_not_better_for_being_level() -> None:
    cutting = [replace(day, shadow=replace(day.shadow, moves=90, clients=30.0)) for day in [day_of(30, 10)] * DAYS]

    found = compared(*cutting).verdict()

    assert found.better is Better.NO
    assert found.saved == pytest.approx(20 - 30)


def test_pure_noise_is_rarely_called_better() -> None:
    """Of 1,000 pairs of equal policies over a week: two standard errors let through one in twenty or so."""
    random = np.random.default_rng(3)
    weeks = ([day_of(20 + step, 20) for step in random.normal(0, 3, DAYS)] for _ in range(1000))

    wrong = sum(compared(*week).verdict().better is Better.YES for week in weeks)

    assert wrong < 60


def test_only_the_last_days_are_judged_and_all_are_counted() -> None:
    moved = replace(day_of(10, 30), acting=SideSums(moves=1, area=10 * DAY), shadow=SideSums(moves=2, area=30 * DAY))
    long = compared(*[moved] * 40, *[day_of(30, 10)] * JUDGED)

    assert long.verdict().better is Better.YES
    assert len(long.days) == JUDGED + 1
    assert (long.total.acting.moves, long.total.shadow.moves) == (40, 80)
    assert long.total.seconds == (40 + JUDGED) * DAY


figures = st.floats(0, 1e12, allow_nan=False).map(lambda value: round(value, 3))
sides = st.builds(SideSums, st.integers(0, 10**6), figures, figures, figures)


@given(sums=st.builds(PairSums, figures, figures, figures, figures, figures, sides, sides))
def test_sums_survive_being_stored(sums: PairSums) -> None:
    assert from_data(as_data(sums)) == sums


@pytest.mark.parametrize("stored", [[], [1.0] * 12, [1.0] * 14])
def test_other_data_is_refused(stored: list[float]) -> None:
    with pytest.raises(ValueError, match="not"):
        from_data(stored)
