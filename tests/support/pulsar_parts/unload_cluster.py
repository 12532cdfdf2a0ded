"""An unload controller between the objects of a small cluster and a fake Pulsar."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

from faulty_api import until
from plan_clusters import LEVEL_OF_THREE
from policy_environment import PolicyEnvironment, refit
from pulsar_admin import FakePulsar
from trimtab_operator.aio import ended
from trimtab_operator.kube.naming import parse_pulsar_bundle
from trimtab_operator.pulsar.bridge.unload_controller import UnloadController
from trimtab_operator.pulsar.bridge.unload_request import Landing
from trimtab_operator.pulsar.client.http import Admin
from trimtab_operator.resources.pulsar import PulsarSpec


class Unloading:
    """An unload controller between an environment with brokers a, b and c, and a fake cluster of three brokers."""

    def __init__(self, env: PolicyEnvironment, fake: FakePulsar, admin: Admin, unloads: int) -> None:
        self.env, self.fake, self.admin = env, fake, admin
        self.ids = dict(zip("abc", fake.ids, strict=True))
        self.landings: list[Landing] = []
        self._task: asyncio.Task[None] | None = None
        context = env.cluster
        refit(context, clock=time.monotonic, now=time.time)
        context.link.lead_to(PulsarSpec(admin_url=fake.url, max_unloads=unloads), "main")
        context.link.ids, context.link.problem = dict(self.ids), ""
        self.full = {name: full for full, name in env.names.items()}
        for full, owner in zip(LEVEL_OF_THREE.bundles.names, LEVEL_OF_THREE.bundles.owner.tolist(), strict=True):
            fake.owners[full] = fake.ids[owner]
        for full in LEVEL_OF_THREE.bundles.names:
            tenant, name, *edges = parse_pulsar_bundle(full)
            known = fake.spaces.get(f"{tenant}/{name}", ())
            fake.spaces[f"{tenant}/{name}"] = tuple(sorted({*known, *(int(edge, 16) for edge in edges)}))

    def begin(self) -> None:
        unload_controller = UnloadController(self.env.cluster, self.admin, self.landings.append)
        self._task = asyncio.create_task(unload_controller.run())

    async def crash(self) -> None:
        if self._task is not None:
            await ended(self._task)

    def of(self, broker: str) -> list[str]:
        """Bundles that `broker` serves, as the objects say."""
        return sorted(name for name, owner in self.env.owners().items() if owner == broker)

    async def settled(self, name: str) -> dict[str, Any]:
        """Wait until the move of a bundle is no longer pending; returns its status."""

        def closed() -> bool:
            found = self.env.bundles()[name]
            return bool(found["status"].get("observedGeneration") == found["metadata"]["generation"])

        await until(f"the move of {name} is complete", closed)
        status: dict[str, Any] = self.env.bundles()[name]["status"]
        return status

    def result(self, word: str) -> float:
        registry = self.env.cluster.metrics.registry
        return registry.get_sample_value("trimtab_pulsar_unloads_total", {"result": word}) or 0


Scenario = Callable[[Unloading], Awaitable[None]]
Carry = Callable[..., None]
