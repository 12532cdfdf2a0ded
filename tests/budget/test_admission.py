"""Which moves are let through, by the pending moves."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from manifests import policy
from records import bundle, moving_bundle, topic_namespace
from trimtab_operator.app import new_cluster
from trimtab_operator.budget.admission import MoveRequest, admit
from trimtab_operator.kube.store import Store
from trimtab_operator.state.cluster import ClusterState
from trimtab_operator.state.settings import Settings
from trimtab_operator.telemetry.metrics import Metrics
from trimtab_strategies.budget import DisruptionBudget
from trimtab_strategies.model import HeldBack, Reason

API: Any = object()
"""Budgets without a limit over time ask the API server for nothing."""


@pytest.fixture
def cluster() -> ClusterState:
    """A cluster state with one TopicNamespace, of which no store runs."""
    made = new_cluster(API, "messaging", API, Metrics())
    put(made.stores.topic_namespaces, topic_namespace())
    return made


def put(store: Store[Any], record: Any) -> None:
    """What a list or a watch of the API server would do."""
    store._items[record.name] = record


def settings(**budget: Any) -> Settings:
    made = policy(budget=budget) if budget else policy()
    return Settings.of({**made, "metadata": {"name": "main", "namespace": "messaging"}})


def request(name: str, source: str = "x", to: str = "y", reason: Reason = Reason.OVERLOADED) -> MoveRequest:
    return MoveRequest(bundle(name, source), f"t/n/{name}", source, to, reason)


def held(cluster: ClusterState, by: Settings, *requests: MoveRequest, written: Any = ()) -> list[HeldBack | None]:
    return asyncio.run(admit(cluster, by, requests, written))


def fly(cluster: ClusterState, *names: str, to: str = "y") -> None:
    """These bundles are on their way."""
    for name in names:
        record = moving_bundle(name, "x", to)
        put(cluster.stores.bundles, record)
        cluster.pending_moves.update(record, None, 0.0)


def test_without_a_budget_everything_is_let_through(cluster: ClusterState) -> None:
    fly(cluster, *map(str, range(50)))

    assert held(cluster, settings(), request("a"), request("b")) == [None, None]


def test_pending_moves_of_the_namespace_count(cluster: ClusterState) -> None:
    fly(cluster, "a")

    one, other = held(cluster, settings(movesInFlight=2), request("b"), request("c"))

    assert one is None
    assert other is not None
    assert (other.subject, other.reason) == ("c", Reason.DISRUPTION_BUDGET)
    assert other.detail == "movesInFlight of policy main is 2, and 2 are pending: it waits until one lands"


def test_a_move_that_was_written_counts_before_the_store_shows_it(cluster: ClusterState) -> None:
    put(cluster.stores.bundles, bundle("a"))

    (why,) = held(cluster, settings(movesInFlight=1), request("b"), written=["a"])

    assert why is not None


def test_a_namespaces_budget_counts_where_the_policy_has_none(cluster: ClusterState) -> None:
    put(cluster.stores.topic_namespaces, topic_namespace(budget=DisruptionBudget(in_flight=1)))
    fly(cluster, "a")

    (why,) = held(cluster, settings(), request("b"))

    assert why is not None
    assert "of TopicNamespace t-n is 1" in why.detail


@pytest.mark.parametrize("reason", [Reason.DRAINED, Reason.ROLLING_OUT, Reason.BROKER_LOST, Reason.ADMIN])
def test_what_no_budget_holds_back_is_reported(cluster: ClusterState, reason: Reason) -> None:
    fly(cluster, "a")

    assert held(cluster, settings(movesInFlight=1), request("b", reason=reason)) == [None]

    (override,) = cluster.budget.taken("main")
    assert (override.bundle, override.reason) == ("b", reason)
    assert cluster.budget.taken("main") == []


def test_half_an_exchange_is_not_let_through(cluster: ClusterState) -> None:
    fly(cluster, "a")

    one, other, third = held(
        cluster,
        settings(movesInFlight=3),
        request("b", "x", "z"),
        request("c", "z", "x"),
        request("d"),
    )
    assert (one, other) == (None, None)
    assert third is not None

    one, other, third = held(
        cluster,
        settings(movesInFlight=2),
        request("b", "x", "z"),
        request("c", "z", "x"),
        request("d"),
    )
    assert one is not None
    assert other is not None
    assert third is None
