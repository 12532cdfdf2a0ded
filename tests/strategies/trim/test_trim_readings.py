"""Idle CPU: what a broker takes without load, and what is learned once it is known."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from trim_world import Play, World, spread
from trimtab_strategies.model.cluster_load import FloatArray
from trimtab_strategies.shedding.trim.readings import idle_share

IDLE = 0.16


@dataclass
class IdlingWorld(World):
    """Brokers that take `idle` of their cores without load, and less for each bundle the more they carry."""

    idle: float = IDLE

    def cpu(self, load: FloatArray) -> FloatArray:
        """See `World`."""
        used: FloatArray = self.cores * (self.idle + 0.7 * (super().cpu(load) / self.cores) ** 0.9)
        return np.minimum(used, self.cores)


def idling(*points: Sequence[float], idle: float = IDLE) -> World:
    """Equal brokers with these bundles, in points of a broker."""
    plain = World.of(*points)
    return IdlingWorld(**{name: getattr(plain, name) for name in plain.__dataclass_fields__}, idle=idle)


@given(
    share=st.floats(0.04, 0.28),
    slope=st.floats(0.2, 0.7),
    loads=st.lists(st.floats(0.05, 0.4), min_size=2, max_size=30),
)
def test_a_line_through_the_brokers_begins_at_their_idle_cpu(share: float, slope: float, loads: list[float]) -> None:
    load = np.array([1.0, *loads])

    assert idle_share(share + slope * load, load) == pytest.approx(share)


@given(share=st.floats(0.4, 0.7), rise=st.floats(0.3, 0.6), loads=st.lists(st.floats(0.05, 0.2), min_size=2))
def test_a_line_that_rises_clearly_may_begin_high(share: float, rise: float, loads: list[float]) -> None:
    load = np.array([1.0, *loads])

    assert idle_share(share + rise * load, load) == pytest.approx(share)


@given(slope=st.floats(0.1, 1), loads=st.lists(st.floats(0, 0.4), min_size=2, max_size=30))
def test_brokers_whose_cpu_follows_their_load_have_none(slope: float, loads: list[float]) -> None:
    load = np.array([1.0, *loads])

    assert idle_share(slope * load, load) == 0.0


@pytest.mark.parametrize(
    ("busy", "load"),
    [
        ([0.8, 0.2], [1.0, 0.1]),
        ([0.8, 0.2, np.nan], [1.0, 0.1, 0.2]),
        ([0.5, 0.5, 0.5], [1.0, 0.9, 0.8]),
        ([0.8, 0.2, 0.7, 0.3], [1.0, 0.1, 0.2, 0.9]),
        ([0.8, 0.7, 0.7], [1.0, 0.1, 0.1]),
        ([0.2, 0.8, 0.8], [1.0, 0.1, 0.1]),
        ([0.0, 0.0, 0.0], [0.0, 0.0, 0.0]),
        ([], []),
    ],
    ids=["two", "two measured", "alike", "not on a line", "too much", "falls", "no load", "none"],
)
def test_where_brokers_do_not_show_it_nothing_is_said(busy: list[float], load: list[float]) -> None:
    assert np.isnan(idle_share(np.array(busy), np.array(load)))


@settings(max_examples=30)
@given(seed=st.integers(0, 2**32))
def test_one_odd_broker_does_not_change_it(seed: int) -> None:
    rng = np.random.default_rng(seed)
    load = rng.uniform(0.1, 1, 12)
    load[:2] = 0.1, 1
    busy = 0.1 + 0.6 * load
    busy[rng.integers(12)] = 1.0

    assert idle_share(busy, load) == pytest.approx(0.1, abs=0.02)


def test_a_busy_broker_beside_two_idle_ones_is_relieved_in_one_plan() -> None:
    """Without idle CPU in the model, a bundle would seem to cost the idle ones three times as much."""
    play = Play(idling(spread(90, 14, 1), spread(7, 5, 2), spread(6, 5, 3)))

    assert play.first_move(8)
    play.minutes(4)
    assert play.memory["brokers"]["idle"]["broker-0"] == pytest.approx(IDLE, abs=0.05)
    assert np.ptp(play.world.points()) < 10
    assert sum(1 for moves in play.moves if moves) == 1


@pytest.mark.parametrize("idle", [0.3, 0.45, 0.6])
def test_a_broker_at_its_limit_is_relieved_though_the_others_are_half_busy_without_load(idle: float) -> None:
    """Small containers: what the idle ones take is no price of their few bundles."""
    play = Play(idling(spread(70, 14, 1), spread(5, 5, 2), spread(5, 5, 3), idle=idle))

    assert play.first_move(8)
    play.minutes(8)
    assert np.ptp(play.world.points()) < 10
    assert sum(1 for moves in play.moves if moves) <= 2  # what a full broker's clients want shows after the first


def test_idle_cpu_is_kept_once_the_brokers_are_alike() -> None:
    play = Play(idling(spread(90, 14, 1), spread(7, 5, 2), spread(6, 5, 3)))
    play.first_move(8)
    known = play.memory["brokers"]["idle"]
    play.minutes(30)

    assert play.memory["brokers"]["idle"] == known
    assert sum(1 for moves in play.moves if moves) == 1
