"""A policy's disruption budget in a backtest: it holds back what the operator would hold back."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from recorded_history import POLICY, RecordedHistory
from trim_world import START, World, spread
from trimtab_lab.backtest.players import policy_replay
from trimtab_lab.backtest.replay import PolicyReplay, play, recorded_cycles
from trimtab_lab.simulation.budget import PlayedBudget
from trimtab_lab.simulation.deciders import Orders
from trimtab_operator.state.settings import Settings
from trimtab_pipeline.history.recording import Recording
from trimtab_strategies.counterfactual.ownership import OwnerChange
from trimtab_strategies.model import Move, Reason, Split

SOURCE = {"source": {"prometheus": {"url": "http://prometheus.monitoring.svc:9090"}}}
PULSAR = {"pulsar": {"adminUrl": "http://pulsar-broker.messaging.svc:8080"}}
OF_A_BUNDLE = 100 / 60
"""Percent of all clients that a bundle of `uneven` has."""

MINUTES = 40


def uneven() -> World:
    """One broker at 70 %, two at 25 %; each has 20 bundles with equally many clients."""
    return World.of(spread(70, 20, 1), spread(25, 20, 2), spread(25, 20, 3))


def manifest(budget: dict[str, Any]) -> dict[str, Any]:
    return {"metadata": {"name": "new", "namespace": "messaging"}, "spec": {**SOURCE, **PULSAR, "budget": budget}}


@pytest.fixture(scope="module")
def quiet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A history in which nothing moved."""
    root = tmp_path_factory.mktemp("history")
    record(RecordedHistory(root), uneven())
    return root


def record(history: RecordedHistory, world: World, *, drained: int | None = None) -> None:
    random = np.random.default_rng(5)
    for _ in range(MINUTES):
        load = world.cluster(random.normal(1, 0.05, len(world.load)))
        if drained is not None:
            schedulable = np.arange(3) != drained
            load = replace(load, brokers=replace(load.brokers, schedulable=schedulable))
        history.cycle(load)
        world.now += 60


def played(root: Path, budget: dict[str, Any]) -> PolicyReplay:
    replay = policy_replay("new", manifest(budget), 1)
    play(recorded_cycles(Recording(str(root), POLICY).cycles(0, 1e12)), [replay], START)
    return replay


def test_no_hour_cuts_more_clients_than_the_budget_allows(quiet: Path) -> None:
    """Trim would move six bundles at once. Two fit into an hour, and the history has 40 minutes."""
    free = played(quiet, {"connectionsPercentPerHour": 100})
    assert free.trace.figures().moves > 3

    bounded = played(quiet, {"connectionsPercentPerHour": 2.5 * OF_A_BUNDLE})

    assert bounded.trace.figures().moves == 2
    assert bounded.trace.figures().cut == pytest.approx(2 * OF_A_BUNDLE)
    assert bounded.trace.ranges()[-1] > free.trace.ranges()[-1] + 10


def test_pending_moves_of_a_namespace_are_bounded(quiet: Path) -> None:
    changes = played(quiet, {"movesInFlight": 1}).trace.changes

    assert len(changes) > 3
    assert max(Counter(change.at for change in changes).values()) == 1


def test_a_drain_goes_beyond_the_budget_and_leaves_nothing_of_it(tmp_path: Path) -> None:
    record(RecordedHistory(tmp_path), uneven(), drained=2)

    changes = played(tmp_path, {"connectionsPercentPerHour": 3 * OF_A_BUNDLE}).trace.changes

    assert Counter(change.source for change in changes)["broker-2"] == 20
    assert len(changes) <= 20 + 3


def test_what_is_not_carried_out_while_a_replay_warms_up_is_not_paid_for(tmp_path: Path) -> None:
    """A broker is away for the first minutes: its bundles have no owner there, and nothing is assigned yet."""
    history, world = RecordedHistory(tmp_path), uneven()
    for _ in range(5):
        load = world.cluster()
        brokers = replace(load.brokers, ready=np.array([True, True, False]))
        history.cycle(replace(load, brokers=brokers))
        world.now += 60
    begin = world.now
    record(history, world)
    unlinked = manifest({"connectionsPercentPerHour": 20})
    del unlinked["spec"]["pulsar"]
    replay = policy_replay("new", unlinked, 1)

    play(recorded_cycles(Recording(str(tmp_path), POLICY).cycles(0, 1e12)), [replay], begin)

    assert replay.trace.figures().moves > 3


def test_owners_that_pulsar_gives_cost_nothing() -> None:
    world, budget = uneven(), budget_of(connectionsPercentPerHour=1.5 * OF_A_BUNDLE)
    given = Orders(tuple(Move(name, "", "broker-1", Reason.BROKER_LOST) for name in world.bundles[:20]))

    assert budget.admitted(given, world.cluster()) == given
    assert budget.withheld(world.cluster()).withheld == {}


def budget_of(**bounds: Any) -> PlayedBudget:
    found = PlayedBudget.of(Settings.of(manifest(bounds)))
    assert found is not None
    return found


def move(world: World, bundle: int, destination: str, reason: Reason = Reason.OVERLOADED) -> Move:
    return Move(world.bundles[bundle], world.brokers[world.owner[bundle]], destination, reason)


def test_clients_that_were_not_measured_are_not_cut() -> None:
    world = uneven()
    load = world.cluster()
    load = replace(load, bundles=replace(load.bundles, sessions=np.full(len(world.load), np.nan)))
    budget = budget_of(connectionsPercentPerHour=100)

    assert budget.withheld(load).withheld.keys() == set(world.bundles)
    assert budget.admitted(Orders((move(world, 0, "broker-1"),)), load).moves == ()


def test_an_exchange_is_made_as_a_whole_or_waits() -> None:
    world = uneven()
    load = world.cluster()
    exchange = (move(world, 0, "broker-1"), move(world, 20, "broker-0"))
    single = move(world, 40, "broker-0")

    admitted = budget_of(connectionsPercentPerHour=1.5 * OF_A_BUNDLE).admitted(Orders((*exchange, single)), load)

    assert admitted.moves == (single,)
    assert budget_of(connectionsPercentPerHour=2.5 * OF_A_BUNDLE).admitted(Orders(exchange), load).moves == exchange


def test_a_move_that_must_be_made_passes_beside_one_that_waits() -> None:
    world = uneven()
    forced, other = move(world, 0, "broker-1", Reason.DRAINED), move(world, 20, "broker-0")

    admitted = budget_of(connectionsPercentPerHour=0.1).admitted(Orders((forced, other)), world.cluster())

    assert admitted.moves == (forced,)


def test_a_split_is_paid_for_like_a_move() -> None:
    world, budget = uneven(), budget_of(connectionsPercentPerHour=1.5 * OF_A_BUNDLE)
    split = Split(world.bundles[0], "broker-0", (0x01000000,), Reason.OVERLOADED)
    orders = Orders((), (split,))

    assert budget.admitted(orders, world.cluster()) == orders
    assert budget.admitted(Orders((move(world, 1, "broker-1"),)), world.cluster()).moves == ()


def test_real_moves_of_the_hour_before_count_and_decisions_beside_them_do_not() -> None:
    world, budget = uneven(), budget_of(connectionsPercentPerHour=1.5 * OF_A_BUNDLE)
    load, orders = world.cluster(), Orders((move(world, 0, "broker-1"),))
    assert budget.admitted(orders, load, paid=False).moves == orders.moves
    assert budget.admitted(orders, load, paid=False).moves == orders.moves

    budget.charge([OwnerChange(world.bundles[1], "broker-2", "broker-0")], load, load.now - 60)

    assert budget.admitted(orders, load, paid=False).moves == ()
    assert world.bundles[0] in budget.withheld(load).withheld
    later = replace(load, now=load.now + 3600)
    assert budget.admitted(orders, later).moves == orders.moves
