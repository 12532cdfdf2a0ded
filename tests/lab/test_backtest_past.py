"""A replay begins with the past that the history tells of: moves that just happened, and what the policy remembered."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from backtest_parts import policy
from recorded_history import POLICY, RecordedHistory
from trim_world import START, World, spread
from trimtab_lab.backtest.history import opened
from trimtab_lab.backtest.players import Chosen, Players
from trimtab_lab.backtest.replay import LiveReplay, play, recorded_cycles
from trimtab_lab.backtest.trace import fidelity
from trimtab_operator.state.strategy_state import PolicyState
from trimtab_pipeline.history.decisions import DecisionHistories
from trimtab_pipeline.history.recording import Recording
from trimtab_strategies.model import Memory
from trimtab_strategies.protocols import remember

SPEC = {
    "source": {"prometheus": {"url": "http://prometheus.monitoring.svc:9090"}},
    "mode": "Auto",
    "shedder": {"type": "AvgShedder"},
    "placement": {"type": "AvgShedder"},
}
COOL_DOWN = 1800.0


def played(root: Path, *replays: Any, begin: float) -> None:
    """Play over the whole history."""
    play(recorded_cycles(Recording(str(root), POLICY).cycles(0, 1e12)), replays, begin)


def write_late_move(root: Path) -> list[str]:
    """An hour, in which all bundles of the busy broker came there in minute 15; their names."""
    history, world = RecordedHistory(root), World.of(spread(40, 20, 1), spread(5, 5, 2), spread(5, 5, 3))
    world.owner[:20] = 1
    random = np.random.default_rng(5)
    for minute in range(60):
        if minute == 15:
            world.owner[:20] = 0
        history.cycle(world.cluster(random.normal(1, 0.05, len(world.load))))
        world.now += 60
    return list(world.bundles[:20])


@pytest.mark.slow
def test_what_really_moved_just_before_cools_down(tmp_path: Path) -> None:
    moved, trim = write_late_move(tmp_path), policy("trim")

    played(tmp_path, trim, begin=START + 20 * 60)

    again = [change.at for change in trim.trace.changes if change.bundle in moved]
    assert again
    assert min(again) > START + 14 * 60 + COOL_DOWN


@pytest.mark.slow
def test_a_replay_that_begins_later_moves_them(tmp_path: Path) -> None:
    write_late_move(tmp_path)
    trim = policy("trim")

    played(tmp_path, trim, begin=START + 50 * 60)

    assert min(change.at for change in trim.trace.changes) == START + 50 * 60


@pytest.mark.slow
def test_real_moves_of_the_first_cycle_were_decided_before_it(tmp_path: Path) -> None:
    write_late_move(tmp_path)
    still, live = policy("trim"), LiveReplay()

    played(tmp_path, still, live, begin=START + 15 * 60)

    assert live.trace.figures().moves == 20
    assert fidelity(still.trace, live.trace).moves == 0
    assert still.trace.usage[0] == pytest.approx(live.trace.usage[0])  # it begins with the owners of its first cycle


def test_the_usage_of_brokers_follows_a_move_before_the_measurement_does(tmp_path: Path) -> None:
    """The rates of minute 2 were measured before the move, as the history says. The policy saw them corrected."""
    history, world, live = RecordedHistory(tmp_path), World.of([30, 20], [10]), LiveReplay()
    for minute in range(4):
        if minute == 2:
            moving = {"owner": world.brokers[1], "movingFrom": world.brokers[0], "movingShare": 1.0, "inFlight": True}
            history.know(world.now, {("bundle", world.bundles[1]): moving})
        if minute == 3:
            history.know(world.now, {("bundle", world.bundles[1]): {"owner": world.brokers[1]}})
            world.owner[1] = 1
        history.cycle(world.cluster())
        world.now += 60

    played(tmp_path, live, begin=START)

    assert [change.at - START for change in live.trace.changes] == [120]
    assert live.trace.usage[1] == pytest.approx([50, 10], abs=1)
    assert live.trace.usage[2] == pytest.approx([30, 30], abs=1)
    assert live.trace.usage[3] == pytest.approx([30, 30], abs=1)


def recorded(root: Path) -> Players:
    """The players of a backtest of the whole history, played."""
    given = {"history": str(root), "recorded": None, "begin": None, "end": None, "window": None, "days": 1.0}
    window = opened(argparse.Namespace(**given), str(root))
    players = Players.of(window, Chosen([], []), 1)
    assert players.recorded is not None
    played(root, players.recorded, players.live, begin=window.begin)
    return players


@pytest.mark.parametrize(("age", "first"), [(60.0, 0.0), (2 * 3600.0, 60.0)], ids=["fresh", "too old"])
def test_the_recorded_policy_goes_on_from_what_it_remembered(tmp_path: Path, age: float, first: float) -> None:
    """AvgShedder acts after two hits in a row. It had one before the history begins."""
    history, world = RecordedHistory(tmp_path), World.of(spread(70, 20, 1), spread(5, 5, 2))
    hits = remember({}, "hitHigh", list(world.brokers), np.ones(2))
    state = PolicyState(Memory(shedder=hits)).to_json()
    DecisionHistories(str(tmp_path)).keep_policy(POLICY, START - age, SPEC, json.loads(state))
    history.policy(START, SPEC)
    for _ in range(10):
        history.cycle(world.cluster())
        world.now += 60

    players = recorded(tmp_path)

    assert players.recorded is not None
    assert min(change.at for change in players.recorded.trace.changes) == START + first


def test_a_memory_of_another_version_is_left_out(tmp_path: Path) -> None:
    history, world = RecordedHistory(tmp_path), World.of(spread(70, 20, 1), spread(5, 5, 2))
    DecisionHistories(str(tmp_path)).keep_policy(POLICY, START - 60, SPEC, {"version": 99})
    history.policy(START, SPEC)
    for _ in range(10):
        history.cycle(world.cluster())
        world.now += 60

    players = recorded(tmp_path)

    assert players.recorded is not None
    assert min(change.at for change in players.recorded.trace.changes) == START + 60
