"""The state that all policies of a cluster share: nothing can be assigned to it."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, fields
from typing import Any

import pytest

from trimtab_operator.app import new_cluster
from trimtab_operator.state.cluster import ClusterState
from trimtab_operator.telemetry.metrics import Metrics

API: Any = object()


@pytest.fixture
def cluster() -> ClusterState:
    """A state of which no store runs."""
    return new_cluster(API, "messaging", API, Metrics())


@pytest.mark.parametrize("name", [f.name for f in fields(ClusterState)])
def test_nothing_can_be_assigned(cluster: ClusterState, name: str) -> None:
    with pytest.raises(FrozenInstanceError):
        setattr(cluster, name, None)


def test_no_new_attribute_can_be_added(cluster: ClusterState) -> None:
    with pytest.raises((AttributeError, TypeError)):
        cluster.extra = 1  # type: ignore[attr-defined]
