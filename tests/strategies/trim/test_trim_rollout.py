"""Brokers that leave within minutes of each other: Trim waits until the rollout is over."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from trim_world import Play, World, skewed
from trimtab_strategies.model import DataQuality, Doubt, Reason
from trimtab_strategies.shedding.trim.shedder import rollout


def departing(*minutes: tuple[float, tuple[str, ...]]) -> list[bool]:
    """Whether each snapshot, a time in minutes and the brokers then, pauses balancing."""
    memory: Mapping[str, Any] = {}
    found = []
    for minute, names in minutes:
        world = World.of(*([10.0] for _ in names), brokers=names)
        world.now = 60 * minute
        memory, pause = rollout(world.cluster(), json.loads(json.dumps(memory)))
        found.append(pause is not None)
    return found


ALL = ("a", "b", "c", "d")


def test_one_broker_that_leaves_pauses_nothing() -> None:
    assert departing((0, ALL), (1, ("a", "b", "c")), (2, ("a", "b", "c")), (3, ALL)) == [False] * 4


def test_two_brokers_that_leave_within_15_minutes_pause_balancing() -> None:
    """One every four minutes: it waits for 1.5 times four minutes and one more."""
    first = [(0, ALL), (1, ("b", "c", "d")), (2, ALL), (5, ("a", "c", "d"))]

    assert departing(*first) == [False, False, False, True]
    assert departing(*first, (11.9, ALL))[-1]
    assert not departing(*first, (12.1, ALL))[-1]


def test_a_third_one_makes_the_pause_begin_again() -> None:
    gone = [(0, ALL), (1, ("b", "c", "d")), (5, ("a", "c", "d")), (10, ("a", "b", "d"))]

    assert departing(*gone, (18.4, ALL))[-1]
    assert not departing(*gone, (18.6, ALL))[-1]


def test_departures_far_apart_are_no_rollout() -> None:
    assert not any(departing((0, ALL), (1, ("b", "c", "d")), (2, ALL), (17, ("a", "c", "d")), (18, ALL)))


def test_two_that_leave_at_once_pause_for_minutes_only() -> None:
    gone = [(0, ALL), (1, ("a", "b"))]

    assert departing(*gone)[-1]
    assert departing(*gone, (3, ("a", "b")))[-1]
    assert not departing(*gone, (3.6, ("a", "b")))[-1]


def test_a_broker_that_is_only_not_trusted_has_not_left() -> None:
    world = World.of([10.0], [10.0], brokers=("a", "b"))
    doubts = {name: Doubt(Reason.UNTRUSTED, "") for name in ("c", "d")}
    memory, _ = rollout(World.of(*([10.0] for _ in ALL), brokers=ALL).cluster(), {})
    _, pause = rollout(replace(world.cluster(), quality=DataQuality(doubts=doubts)), memory)

    assert pause is None


def test_nothing_moves_during_a_rollout_and_balancing_goes_on_after_it() -> None:
    world = skewed()
    play = Play(world)
    play.memory = {"seen": [*world.brokers, "gone-1", "gone-2"]}
    moves = [bool(play.minute().unloads) for _ in range(6)]

    assert moves[:2] == [False, False]
    assert any(moves)
    play = Play(skewed())
    play.memory = {"seen": [*world.brokers, "gone-1", "gone-2"]}
    play.minute()
    assert play.reasons == [Reason.ROLLING_OUT]
    assert "2 brokers left within 15 minutes" in play.text
