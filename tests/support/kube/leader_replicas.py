"""Candidates for the Lease of one namespace of a real API server, each with its own clock and connection."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from faulty_api import FaultyApi
from trimtab_operator.kube.client import CONFIG_MAPS, Api
from trimtab_operator.kube.fence import Fence
from trimtab_operator.kube.leader_election import Candidacy, Elector, LeaseLostError
from trimtab_testbed.servers.kube import ControlPlane

DURATION, DEADLINE, RETRY = 1.0, 0.6, 0.1


class Replica:
    """One process: its fence, its elector, and a client behind the fence. It reaches the API server through `proxy`."""

    def __init__(self, proxy: FaultyApi, fenced: Api, elector: Elector) -> None:
        self.proxy, self.api, self.elector, self.fence = proxy, fenced, elector, elector.fence
        self.keeping: asyncio.Task[None] | None = None

    async def lead(self, within: float = 5.0) -> None:
        """Campaign, win, and renew from then on."""
        async with asyncio.timeout(within):
            await self.elector.campaign()
        self.keeping = asyncio.create_task(self.elector.keep())

    async def lost(self, within: float = 5.0) -> str:
        """Wait until the replica no longer leads; returns the reason."""
        assert self.keeping is not None
        with pytest.raises(LeaseLostError) as caught:
            await asyncio.wait_for(asyncio.shield(self.keeping), within)
        return str(caught.value)

    async def leave(self) -> None:
        """Stop as in a crash, without releasing the Lease."""
        if self.keeping is not None:
            self.keeping.cancel()
            await asyncio.gather(self.keeping, return_exceptions=True)


class Replicas:
    """Candidates for the Lease of one namespace."""

    def __init__(self, plane: ControlPlane, namespace: str, folder: Path, stack: AsyncExitStack) -> None:
        self.plane, self.namespace, self._folder, self._stack = plane, namespace, folder, stack
        self.path = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/trimtab"

    async def replica(self, identity: str, clock: Callable[[], float] = time.monotonic, **times: float) -> Replica:
        return await self._stack.enter_async_context(self._replica(identity, clock, times))

    @asynccontextmanager
    async def _replica(self, identity: str, clock: Callable[[], float], times: Any) -> AsyncIterator[Replica]:
        folder = self._folder / f"{identity}-{len(list(self._folder.iterdir()))}"
        folder.mkdir()
        candidacy = Candidacy(
            "trimtab", identity, **{"duration": DURATION, "deadline": DEADLINE, "retry": RETRY, **times}
        )
        fence = Fence(clock)
        async with (
            FaultyApi(self.plane, folder) as proxy,
            Api.connect(str(proxy.kubeconfig), patience=0) as api,
            Api.connect(str(proxy.kubeconfig), patience=0, fence=fence) as fenced,
        ):
            replica = Replica(proxy, fenced, Elector(api, self.namespace, candidacy, fence))
            yield replica
            await replica.leave()

    def lease(self) -> dict[str, Any]:
        spec: dict[str, Any] = self.plane.rest.get(self.path)["spec"]
        return spec

    def written(self) -> list[str]:
        """Names of the ConfigMaps that were written."""
        items = self.plane.rest.get(f"/api/v1/namespaces/{self.namespace}/configmaps")["items"]
        return [item["metadata"]["name"] for item in items if item["metadata"]["name"] != "kube-root-ca.crt"]

    async def write(self, replica: Replica, name: str) -> None:
        body = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}}
        await replica.api.create(CONFIG_MAPS, self.namespace, body)


Scenario = Callable[[Replicas], Awaitable[None]]
RunReplicas = Callable[[Scenario], None]
