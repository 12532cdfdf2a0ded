"""A disruption budget on real brokers: moves stop where the next one would cut too many clients. A drain goes on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import pytest

from real_pulsar.clients import Flow, topics_of
from real_pulsar.exporter import PodLimits
from real_pulsar.settings import LoadManagerKind
from real_pulsar_cluster import BY_RATE, RealPulsarCluster, only
from small_cluster import API, until

BUNDLES = 12
"""Each has one topic with a producer and a consumer, so a move cuts a twelfth of the clients, 8.3 %."""

BOUND = 20.0
"""Percent of the clients that may be cut in an hour: two moves."""


@pytest.fixture
def roomy_stage(own_stage: Callable[..., AbstractContextManager[RealPulsarCluster]]) -> Iterator[RealPulsarCluster]:
    """Two brokers have room for the bundles of the third one."""
    with own_stage(limits=PodLimits(cores=2)) as stage:
        yield stage


def _use(stage: RealPulsarCluster) -> dict[str, Any]:
    """The line of the policy's status about its budget; empty before there is one."""
    return dict(next(iter((stage.status().get("budget") or {}).get("limits", ())), {}))


def _held(stage: RealPulsarCluster) -> int:
    """Number of bundles that the last cycle left where they are, for lack of a budget."""
    last = stage.status().get("lastCycle") or {}
    return int((last.get("heldBack") or {}).get("DisruptionBudget", 0))


@contextmanager
def _drained(stage: RealPulsarCluster, broker: str) -> Iterator[None]:
    """Drain a broker while the block runs."""
    stage.rest.patch(f"{API}/brokers/{broker}", {"spec": {"schedulable": False}})
    try:
        yield
    finally:
        stage.rest.patch(f"{API}/brokers/{broker}", {"spec": {"schedulable": True}})


@only(LoadManagerKind.MODULAR)
def test_moves_stop_at_the_budget_and_a_drain_exceeds_it(roomy_stage: RealPulsarCluster) -> None:
    stage = roomy_stage
    namespace = stage.new_namespace(BUNDLES, "budget")
    bundles = stage.admin.bundles(namespace)
    for bundle in bundles:
        stage.put(bundle, stage.names[0])
    flows = [Flow(topics_of(bundle, 1)[0], 15) for bundle in bundles]
    with stage.witness(namespace) as witness, stage.traffic(flows) as traffic:
        stage.apply_policy(mode="Auto", budget={"connectionsPercentPerHour": BOUND}, **BY_RATE)
        stage.wait_condition("DataTrusted", "True")
        until("the budget is spent", lambda: _held(stage) > 0 and _use(stage).get("spent", 0) > 0, within=90)
        until("every move has landed", stage.settled, within=60)
        stage.wait_cycles(5)

        use, moved = _use(stage), sum(owner != stage.names[0] for owner in stage.truth(namespace).values())
        each = use["spent"] / moved
        assert len(witness.moves()) == moved == 2
        assert use["spent"] <= BOUND < use["spent"] + each, "one more move would have been within the budget"

        with _drained(stage, stage.names[0]):
            until("the broker serves nothing", lambda: stage.names[0] not in stage.truth(namespace).values(), 120)
            until("the status says so", lambda: stage.status()["budget"]["overridden"] >= BUNDLES - moved)
            until("an Event says so", lambda: stage.events("BudgetOverridden"))
        counts = traffic.drain(within=60)

    assert counts.errors == 0, traffic.errors()
    assert counts.acked == counts.sent
