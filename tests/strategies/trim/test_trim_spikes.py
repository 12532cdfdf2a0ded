"""A background that is above the usual one while a plan is made, and soon ends, is no spike: the plan may cause it."""

from __future__ import annotations

import numpy as np
import pytest

from trim_world import Play, World, spread
from trimtab_strategies.shedding.trim.cause import acted


def grown() -> Play:
    """Five level brokers that Trim has known for 40 minutes. Then the load of the last one grows to 80 %."""
    play = Play(World.of(*(spread(45, 20, seed) for seed in range(5))))
    play.minutes(40)
    play.world.load = np.where(play.world.owner == 4, 1.8, 1.0) * play.world.load
    return play


def test_a_plan_answers_a_loud_background_that_keeps_its_beginning() -> None:
    memory = {"brokers": {"loud": {"a": 940.0, "c": 950.0}}}
    after = acted(memory, ("a", "b", "c"), np.array([True, True, False]), 1000.0)["brokers"]

    assert after["loud"] == {"a": 940.0, "c": 950.0}
    assert after["answered"] == {"a": 1000.0}


def test_a_background_that_ends_within_the_campaign_is_no_spike() -> None:
    minute = grown().first_move(12)
    assert minute is not None
    play = grown()
    play.minutes(minute - 1)
    play.world.background[4] = 1.0
    assert play.minute().unloads
    assert list(play.memory["brokers"]["answered"]) == ["broker-4"]
    play.world.background[4] = 0.0
    play.minutes(2)

    assert play.memory["spikes"] == []
    assert not play.memory["brokers"].get("answered")


def test_a_background_that_ends_after_the_campaign_is_a_spike_as_long_as_it_lasted() -> None:
    minute = grown().first_move(12)
    assert minute is not None
    play = grown()
    play.minutes(minute - 1)
    play.world.background[4] = 1.0
    play.minutes(6)
    play.world.background[4] = 0.0
    play.minutes(1)

    assert [minutes for _, minutes in play.memory["spikes"]] == pytest.approx([6])
