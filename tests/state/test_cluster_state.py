"""The state that Kopf copies for each object: a copy is the same state, and nothing can be assigned to it."""

from __future__ import annotations

import asyncio
from dataclasses import FrozenInstanceError, fields
from typing import Any

import kopf
import pytest
from kopf._core.reactor.inventory import ResourceMemories

from trimtab_operator.app import new_cluster
from trimtab_operator.state.cluster import ClusterState
from trimtab_operator.state.policies import Claim
from trimtab_operator.telemetry.metrics import Metrics

API: Any = object()


@pytest.fixture
def cluster() -> ClusterState:
    """A state of which no store runs."""
    return new_cluster(API, "messaging", API, Metrics())


def copied_by_kopf(cluster: ClusterState, uid: str) -> Any:
    """The memo that Kopf hands to the handlers of one object."""
    body = kopf.RawBody({"metadata": {"uid": uid, "name": uid}})

    async def recall() -> Any:
        return await ResourceMemories().recall_memo(body, memobase=cluster)  # type: ignore[arg-type]

    return asyncio.run(recall())


def test_a_copy_by_kopf_holds_the_same_objects(cluster: ClusterState) -> None:
    copy = copied_by_kopf(cluster, "a")

    assert isinstance(copy, ClusterState)
    assert [f.name for f in fields(copy) if getattr(copy, f.name) is not getattr(cluster, f.name)] == []


def test_what_one_copy_learns_all_copies_know(cluster: ClusterState) -> None:
    one, other = copied_by_kopf(cluster, "a"), copied_by_kopf(cluster, "b")

    one.policies.claims["main"] = Claim("main", "2026-11-21T00:00:00Z")
    one.share_out()
    one.process.epoch = 7

    assert other.policies.shares.standing == cluster.policies.shares.standing == ("main",)
    assert other.process.epoch == cluster.process.epoch == 7


@pytest.mark.parametrize("name", [f.name for f in fields(ClusterState)])
def test_nothing_can_be_assigned(cluster: ClusterState, name: str) -> None:
    with pytest.raises(FrozenInstanceError):
        setattr(copied_by_kopf(cluster, "a"), name, None)


def test_no_new_attribute_can_be_added(cluster: ClusterState) -> None:
    with pytest.raises((AttributeError, TypeError)):
        cluster.extra = 1  # type: ignore[attr-defined]
