"""Runs scenarios on an unload controller, and of splits that Pulsar carries out."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from plan_clusters import LEVEL_OF_THREE
from policy_environment import PolicyEnvironment, run_scenario
from pulsar_admin import FakePulsar
from pulsar_splits import PulsarSplitOperator, link
from strategy_testing.clusters import cluster
from trimtab_operator.pulsar.bridge import ownership, unload_controller
from trimtab_operator.pulsar.client.http import connected
from trimtab_operator.splits import pulsar as split_by_pulsar
from trimtab_testbed.servers.kube import ControlPlane
from unload_cluster import Carry, Scenario, Unloading

TWO_NAMESPACES = cluster(bundles={"a": [1] * 4, "b": [1]}, a=0.5, b=0.5, c=0.1)
SplitScenario = Callable[[PolicyEnvironment, PulsarSplitOperator], Awaitable[None]]


@pytest.fixture
def carry(trimtab_crds: ControlPlane, kube_namespace: str, monkeypatch: pytest.MonkeyPatch) -> Carry:
    """Runs a scenario with a controller that runs unless `begin` is False; further options are the fake cluster's.

    noted: seconds that the controller waits until a policy's loop has noted a person's desired owner.
    """
    monkeypatch.setattr(ownership, "LOOKUP_AFTER", 0.3)
    monkeypatch.setattr(ownership, "OTHERS_AFTER", 0.1)
    monkeypatch.setattr(ownership, "SOURCE_AFTER", 0.2)

    def run(scenario: Scenario, *, begin: bool = True, unloads: int = 4, noted: float = 0.0, **fake: Any) -> None:
        monkeypatch.setattr(unload_controller, "NOTE_GRACE", noted)

        async def whole(env: PolicyEnvironment) -> None:
            async with FakePulsar(**fake) as pulsar, connected(pulsar.url) as admin:
                carrying = Unloading(env, pulsar, admin, unloads)
                if begin:
                    carrying.begin()
                try:
                    await scenario(carrying)
                finally:
                    await carrying.crash()

        run_scenario(trimtab_crds, kube_namespace, LEVEL_OF_THREE, whole)

    return run


@pytest.fixture
def divide(trimtab_crds: ControlPlane, kube_namespace: str, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Runs a scenario on a cluster whose first bundle has topics at these ratios of its range."""
    monkeypatch.setattr(split_by_pulsar, "READ_AGAIN", (0.0, 0.0, 0.0))

    def run(
        scenario: SplitScenario, *, extensible: bool = False, topics: tuple[float, ...] = (0.1, 0.4, 0.6, 0.9)
    ) -> None:
        async def whole(env: PolicyEnvironment) -> None:
            await scenario(env, PulsarSplitOperator(env, link(env, extensible=extensible, topics=topics)))

        run_scenario(trimtab_crds, kube_namespace, TWO_NAMESPACES, whole)

    return run
