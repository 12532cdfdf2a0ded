"""Runs scenarios on an unload controller."""

from __future__ import annotations

from typing import Any

import pytest

from plan_clusters import LEVEL_OF_THREE
from policy_environment import PolicyEnvironment, run_scenario
from trimtab_operator.pulsar.bridge import ownership, unload_controller
from trimtab_operator.pulsar.client.http import connected
from trimtab_testbed.servers.kube import ControlPlane
from trimtab_testbed.simulated.pulsar_admin import FakePulsar
from unload_cluster import Carry, Scenario, Unloading


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
