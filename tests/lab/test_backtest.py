"""Backtests of histories whose truth is known: what happened, what would have happened, and what a gate says of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from recorded_history import POLICY, RecordedHistory
from trim_world import START, World, spread
from trimtab_lab.backtest.players import policy_replay
from trimtab_lab.backtest.replay import LiveReplay, PolicyReplay, ReplayPhase, play, recorded_cycles
from trimtab_lab.backtest.trace import fidelity
from trimtab_pipeline.history.recording import Recording
from trimtab_strategies.model import CPU

SOURCE = {"source": {"prometheus": {"url": "http://prometheus.monitoring.svc:9090"}}}
STILL: dict[str, Any] = {"shedder": {"type": "OverloadShedder", "overloadShedder": {"overloadThreshold": 100}}}
"""A policy that moves nothing in these worlds."""

TRIM: dict[str, Any] = {}
AVERAGES = {"shedder": {"type": "AvgShedder"}, "placement": {"type": "AvgShedder"}}
THRESHOLD = {"shedder": {"type": "ThresholdShedder"}, "placement": {"type": "LeastLongTermMessageRate"}}


def uneven() -> World:
    """One broker at 70 %, two at 25 %."""
    return World.of(spread(70, 20, 1), spread(25, 20, 2), spread(25, 20, 3), background=np.array([0.5, 1.0, 0.0]))


def policy(name: str, spec: dict[str, Any]) -> PolicyReplay:
    """The replay of a policy with this specification."""
    return policy_replay(name, {"metadata": {"name": name, "namespace": "messaging"}, "spec": {**SOURCE, **spec}}, 1)


def recorded(history: RecordedHistory, world: World, minutes: int, *, moves: dict[int, list[tuple[int, int]]]) -> None:
    """Write `minutes` cycles of `world`; moves: minute -> (bundle, broker), which have landed by that minute."""
    random = np.random.default_rng(5)
    for minute in range(minutes):
        for bundle, broker in moves.get(minute, ()):
            world.owner[bundle] = broker
        history.cycle(world.cluster(random.normal(1, 0.05, len(world.load))))
        world.now += 60


def played(root: Path, *replays: Any, begin: float = START) -> None:
    """Play over the whole history."""
    play(recorded_cycles(Recording(str(root), POLICY).cycles(0, 1e12)), replays, begin)


def test_what_happened_is_what_was_recorded(tmp_path: Path) -> None:
    world, history, live = uneven(), RecordedHistory(tmp_path), LiveReplay()
    recorded(history, world, 10, moves={4: [(0, 1), (1, 2)], 7: [(0, 2)]})

    played(tmp_path, live)

    figures = live.trace.figures()
    assert (figures.moves, figures.again, figures.cycles) == (3, 1, 10)
    assert figures.cut == pytest.approx(100 * 3 / 60)
    assert figures.measured == 1
    assert figures.hours == pytest.approx(10 / 60)
    assert [(change.source, change.destination) for change in live.trace.changes] == [
        ("broker-0", "broker-1"),
        ("broker-0", "broker-2"),
        ("broker-1", "broker-2"),
    ]
    assert live.trace.usage[0] == pytest.approx([75, 35, 25], rel=0.1)


def test_a_policy_that_moves_nothing_keeps_the_owners_and_the_usage_that_they_would_have_caused(tmp_path: Path) -> None:
    """Half of the busy broker's bundles really left. The replay knows what it would have used with them."""
    world, history, still = uneven(), RecordedHistory(tmp_path), policy("still", STILL)
    truth = world.points().copy()
    recorded(history, world, 30, moves={10: [(bundle, 1 + bundle % 2) for bundle in range(10)]})
    assert world.points()[0] < truth[0] - 20

    played(tmp_path, still)

    usage = np.array(still.trace.usage)
    assert usage[-10:].mean(axis=0) == pytest.approx(truth, abs=2)
    assert still.trace.figures().moves == 0
    assert still.trace.figures().measured < 0.9


def test_trim_would_have_levelled_what_nobody_did(tmp_path: Path) -> None:
    world, history = uneven(), RecordedHistory(tmp_path)
    recorded(history, world, 40, moves={})
    trim, live = policy("trim", TRIM), LiveReplay()

    played(tmp_path, trim, live)

    assert live.trace.figures().moves == 0
    assert 0 < trim.trace.figures().moves < 20
    assert trim.trace.ranges()[-5:].mean() < 8
    assert live.trace.ranges()[-5:].mean() > 40
    world.owner[:] = [int(name[-1]) for name in owners_at_the_end(trim, world)]
    assert trim.trace.usage[-1] == pytest.approx(world.points(), abs=3)  # as it would really have been


def owners_at_the_end(replay: PolicyReplay, world: World) -> list[str]:
    """The broker of each bundle after all moves of a replay."""
    owners = [world.brokers[row] for row in world.owner]
    for change in replay.trace.changes:
        owners[world.bundles.index(change.bundle)] = change.destination
    return owners


@pytest.mark.slow
@pytest.mark.parametrize("spec", [TRIM, AVERAGES, THRESHOLD], ids=["Trim", "AvgShedder", "ThresholdShedder"])
def test_the_recorded_policy_makes_the_moves_that_it_made(tmp_path: Path, spec: dict[str, Any]) -> None:
    """The history is that of a cluster under the policy. It saw the same cycles, and its moves landed in a minute."""
    world, history = uneven(), RecordedHistory(tmp_path)
    real, random, measured = policy("real", spec), np.random.default_rng(7), []
    cycles = recorded_cycles(iter(measured.pop, None))
    for _ in range(40):
        cluster = history.averaged(world.cluster(random.normal(1, 0.05, len(world.load))))
        history.cycle(cluster)
        measured.append(cluster)
        cycle = next(cycles)
        before = len(real.trace.changes)
        real.step(cycle, ReplayPhase.COUNTED)
        for change in real.trace.changes[before:]:
            world.owner[world.bundles.index(change.bundle)] = world.brokers.index(change.destination)
        world.now += 60
    again, live = policy("again", spec), LiveReplay()

    played(tmp_path, again, live)

    found = fidelity(again.trace, live.trace)
    assert found.moves > 0
    assert found.reproduced >= 0.9
    assert found.error < 1


def test_bundles_of_a_lost_broker_get_owners_and_are_no_moves(tmp_path: Path) -> None:
    world, history = uneven(), RecordedHistory(tmp_path)
    still, live = policy("still", STILL), LiveReplay()
    recorded(history, world, 5, moves={})
    world.owner[world.owner == 2] = 1
    gone = world.cluster()
    ready = np.array([True, True, False])
    for _ in range(5):
        history.cycle(replace(gone, now=world.now, brokers=replace(gone.brokers, ready=ready)))
        world.now += 60

    played(tmp_path, still, live)

    assert still.trace.figures().moves == live.trace.figures().moves == 0
    assert np.isnan(still.trace.usage[-1]).tolist() == [False, False, True]
    assert still.trace.usage[-1][:2].sum() == pytest.approx(75 + 35 + 25, abs=5)


def test_a_drained_broker_costs_the_replay_moves_as_it_did_in_reality(tmp_path: Path) -> None:
    """The operator emptied it; a policy that would not move anything else must empty it, too."""
    world, history = uneven(), RecordedHistory(tmp_path)
    still, live = policy("still", STILL), LiveReplay()
    recorded(history, world, 5, moves={})
    for minute in range(5):
        world.owner[(world.owner == 2) & (minute > 0)] = 1
        drained = world.cluster()
        schedulable = np.array([True, True, False])
        history.cycle(replace(drained, brokers=replace(drained.brokers, schedulable=schedulable)))
        world.now += 60

    played(tmp_path, still, live)

    assert live.trace.figures().moves == 20
    assert still.trace.figures().moves == 20
    assert {change.source for change in still.trace.changes} == {"broker-2"}
    assert still.trace.usage[-1][:2].sum() == pytest.approx(75 + 35 + 25, abs=5)


WINDOW = {"start": "14:00", "duration": "10m"}
"""The history begins at 13:46:40 (UTC)."""


@pytest.mark.slow
def test_a_policy_moves_within_its_windows_only(tmp_path: Path) -> None:
    world, history = uneven(), RecordedHistory(tmp_path)
    recorded(history, world, 30, moves={})
    always = policy("always", TRIM)
    inside, outside = policy("in", {"windows": [WINDOW]}), policy("out", {"windows": [{**WINDOW, "kind": "Deny"}]})

    played(tmp_path, always, inside, outside)

    opens, closes = START + 800, START + 1400
    early, there, others = ([change.at for change in one.trace.changes] for one in (always, inside, outside))
    assert min(early) < opens
    assert there
    assert all(opens <= at < closes for at in there)
    assert others
    assert not any(opens <= at < closes for at in others)


def test_a_drained_broker_is_emptied_outside_of_the_windows(tmp_path: Path) -> None:
    world, history = uneven(), RecordedHistory(tmp_path)
    for _ in range(8):
        load = world.cluster()
        history.cycle(replace(load, brokers=replace(load.brokers, schedulable=np.array([True, True, False]))))
        world.now += 60
    trim = policy("trim", {"windows": [WINDOW]})

    played(tmp_path, trim)

    assert {change.source for change in trim.trace.changes} == {"broker-2"}


@pytest.mark.slow
def test_pinned_bundles_are_where_they_were(tmp_path: Path) -> None:
    world, history = uneven(), RecordedHistory(tmp_path)
    pins = {("bundle", name): {"owner": world.brokers[0], "pinned": True} for name in world.bundles[:20]}
    history.know(START, pins)
    recorded(history, world, 30, moves={})
    trim = policy("trim", TRIM)

    played(tmp_path, trim)

    assert not {change.bundle for change in trim.trace.changes} & set(world.bundles[:20])


def test_children_of_a_recorded_split_begin_with_the_owner_of_their_parent(tmp_path: Path) -> None:
    world, history = World.of([30, 10], [20]), RecordedHistory(tmp_path)
    whole = world.cluster()
    history.cycle(whole)
    names = ("public/default/0x00000000_0x20000000", "public/default/0x20000000_0x55555555", *world.bundles[1:])
    apart = World.of([15, 15, 10], [20], bundles=names, now=START + 60)
    apart.owner[:2] = 1  # in the real cluster the children moved when they were made
    made = {("bundle", name): {"owner": apart.brokers[1]} for name in names[:2]}
    history.know(START + 60, {("bundle", world.bundles[0]): None, **made})
    history.cycle(apart.cluster())
    still = policy("still", STILL)

    played(tmp_path, still)

    assert still.trace.usage[1] == pytest.approx([40, 20], abs=1)


def test_a_gap_in_the_history_counts_for_nobody(tmp_path: Path) -> None:
    world, history, live = uneven(), RecordedHistory(tmp_path), LiveReplay()
    recorded(history, world, 10, moves={})
    world.now += 7200
    recorded(history, world, 10, moves={})

    played(tmp_path, live)

    assert live.trace.figures().hours == pytest.approx(21 / 60)


def test_the_time_before_the_beginning_warms_up_and_does_not_count(tmp_path: Path) -> None:
    world, history, live = uneven(), RecordedHistory(tmp_path), LiveReplay()
    recorded(history, world, 20, moves={3: [(0, 1)], 15: [(1, 1)]})

    played(tmp_path, live, begin=START + 600)

    assert live.trace.figures().moves == 1
    assert live.trace.figures().cycles == 10


def test_a_policy_that_is_warm_acts_in_the_first_cycle_that_counts(tmp_path: Path) -> None:
    """What it would have done before has left nothing in its memory: no campaign, no prediction that went wrong."""
    world, history = uneven(), RecordedHistory(tmp_path)
    recorded(history, world, 40, moves={})
    trim = policy("trim", TRIM)

    played(tmp_path, trim, begin=START + 1200)

    assert min(change.at for change in trim.trace.changes) == START + 1200
    assert trim.trace.ranges()[3:].max() < 8
    errors = [points for _, points in trim.decider.memory.shedder["scored"]]
    assert errors
    assert max(errors) < 3


def test_a_policy_with_a_longer_interval_decides_less_often(tmp_path: Path) -> None:
    world, history = uneven(), RecordedHistory(tmp_path)
    recorded(history, world, 30, moves={})
    often, seldom = policy("often", TRIM), policy("seldom", {"interval": "300s"})

    played(tmp_path, often, seldom)

    times = {change.at for change in seldom.trace.changes}
    assert times
    assert {(at - START) % 300 for at in times} == {0}


def test_clients_of_a_full_machine_want_more_than_it_serves() -> None:
    """A bundle grows until its broker would need 150 %: what leaves it brings all that its clients want."""
    world = World.of([50, 8, 8, 8, 8, 8], [5], [5])
    before, grown = world.cluster(), np.array([2.2, 1, 1, 1, 1, 1, 1, 1])
    world.now += 60
    full = world.cluster(np.where(world.owner == 0, grown / 1.5, 1.0))
    _, cycle = recorded_cycles([before, full])

    assert full.brokers.usage[0, CPU] == full.brokers.limit[0, CPU]
    assert cycle.wanted == pytest.approx(grown[:, np.newaxis] * before.bundles.newest, rel=1e-6)
