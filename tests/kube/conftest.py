"""Runs scenarios on replicas that want to lead."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from leader_replicas import Replicas, RunReplicas, Scenario
from trimtab_testbed.servers.kube import ControlPlane


@pytest.fixture
def run_replicas(control_plane: ControlPlane, kube_namespace: str, tmp_path: Path) -> RunReplicas:
    """Runs a scenario with a namespace of its own."""

    async def whole(scenario: Scenario) -> None:
        async with asyncio.timeout(30), AsyncExitStack() as stack:
            await scenario(Replicas(control_plane, kube_namespace, tmp_path, stack))

    return lambda scenario: asyncio.run(whole(scenario))
