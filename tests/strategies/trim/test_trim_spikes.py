"""What is remembered as a spike, and what is not: what plans and other moves cause, and what is too small to matter."""

from __future__ import annotations

import numpy as np
import pytest

from trim_world import Play, World, spread
from trimtab_strategies.shedding.trim.cause import acted, carried_out
from trimtab_strategies.shedding.trim.owners import Owned
from trimtab_strategies.shedding.trim.shedder import TrimParams


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


def lasting(points: float) -> Play:
    """Brokers that Trim has known for 40 minutes, after a spike of half an hour; now the last one is at `points` %."""
    play = grown()
    play.world = World.of(*(spread(45, 20, seed) for seed in range(5)), now=play.world.now)
    play.memory = {**play.memory, "spikes": [[play.world.now, 30.0]], "campaign": 0.0}
    factor = points / 45
    play.world.load = np.where(play.world.owner == 4, factor, 1.0) * play.world.load
    return play


@pytest.mark.parametrize(("points", "waits"), [(75.0, True), (95.0, False)])
def test_a_broker_that_stays_above_85_percent_needs_no_patience(points: float, waits: bool) -> None:  # noqa: FBT001
    assert (lasting(points).first_move(12) is None) is waits


def test_a_plan_that_moves_nothing_begins_no_campaign() -> None:
    """In mode DryRun, or where a limit holds all of it back, the next plan needs as much as this one."""
    made, shown = grown(), grown()
    before = shown.world.owner.copy()
    for play in (made, shown):
        assert play.first_move(12)
    shown.world.owner = before

    for play, begins in ((made, True), (shown, False)):
        seen = play.seen()
        owned = Owned(seen.bundles.names, seen.bundles.owner, len(seen.brokers))
        assert ("campaign" in carried_out(play.memory, seen, owned)) is begins


def level(**params: float) -> Play:
    """Ten level brokers that Trim has known for 40 minutes; it may move nothing."""
    play = Play(World.of(*(spread(40, 20, seed) for seed in range(10))), TrimParams(**params))
    play.sheddable = np.zeros(len(play.world.load), dtype=bool)
    play.minutes(40)
    return play


@pytest.mark.parametrize(("hot", "points", "kept"), [(7.5, 12, 1), (7.5, 6, 0), (20, 12, 0), (4, 6, 1)])
def test_a_surge_is_a_spike_from_the_points_on_that_are_a_cause(hot: float, points: float, kept: int) -> None:
    play, surge = level(hot=hot, apart=4 * hot), np.ones(200)
    surge[:20] += points / 0.9 / 40
    play.minutes(3, surge)
    play.minutes(1)

    assert len(play.memory["spikes"]) == kept


def drained(play: Play) -> None:
    """Give the bundles of the second broker to the first."""
    play.world.owner[play.world.owner == 1] = 0


def test_what_a_broker_carries_until_bundles_return_is_no_spike() -> None:
    play = level()
    before = play.world.owner.copy()
    drained(play)
    play.minutes(5)
    play.world.owner = before
    play.minutes(1)

    assert play.memory["spikes"] == []


def test_load_that_came_with_bundles_and_then_falls_is_no_spike() -> None:
    play = level()
    drained(play)
    play.minutes(5)
    play.world.load[play.world.owner == 0] *= 0.4
    play.minutes(1)

    assert play.memory["spikes"] == []


def test_when_a_broker_leaves_or_starts_the_level_changes_and_no_spike_ends() -> None:
    memory = {"seen": ["gone"], "brokers": {"since": {f"broker-{row}": 0.0 for row in range(10)}}}
    play = Play(World.of(*(spread(40, 20, seed) for seed in range(10))), memory=memory)
    play.minute()

    assert play.memory["departures"]
    assert play.memory["spikes"] == []


def test_a_background_that_begins_as_bundles_arrive_is_no_spike() -> None:
    """Caches are cold, and all clients connect at once."""
    play = level()
    play.world.owner[0] = 9
    play.minutes(1)
    play.world.background[9] = 1.5
    play.minutes(4)
    play.world.background[9] = 0.0
    play.minutes(1)

    assert play.memory["spikes"] == []


def test_programs_on_two_machines_raise_the_level_and_make_no_taker_of_the_others() -> None:
    points = [44.5, 44, *[40] * 7, 35.5]
    play = Play(World.of(*(spread(own, 40, seed) for seed, own in enumerate(points))))
    play.minutes(35)
    play.world.background[:2] = 3.5

    assert play.minutes(6) == 0
    assert sum(play.moves) == 0
