"""`Bridge`: keeps a client of the linked Pulsar cluster open, and runs the bridge's parts with it.

The client is opened anew when the policy names another cluster or other credentials, or when a Secret changes. The
parts are made anew with it. `PulsarLink` says whether the cluster answers.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from trimtab_operator.aio import ended
from trimtab_operator.kube.client import ApiError
from trimtab_operator.kube.fence import Fence
from trimtab_operator.pulsar.bridge.cross_check import Statistics
from trimtab_operator.pulsar.bridge.move_cost import Costs
from trimtab_operator.pulsar.bridge.sync.loop import ClusterSync
from trimtab_operator.pulsar.bridge.unload_controller import UnloadController
from trimtab_operator.pulsar.client.api import Admin
from trimtab_operator.pulsar.client.errors import PulsarError
from trimtab_operator.pulsar.client.http import HttpAdmin, connected
from trimtab_operator.pulsar.client.transport import Guards
from trimtab_operator.pulsar.identity import Proof, admitting, read_proof
from trimtab_operator.pulsar.own_balancer.controller import OwnBalancerController
from trimtab_operator.resources.common import seconds
from trimtab_operator.resources.pulsar import PulsarSpec
from trimtab_operator.resources.urls import RefusedUrlError
from trimtab_operator.state.cluster import ClusterState
from trimtab_pipeline.api import SourceMisconfiguredError


def parts(context: ClusterState, admin: Admin) -> Mapping[str, Callable[[], Awaitable[None]]]:
    """By name what runs for ever, and bears what `admin` and the API server refuse."""
    unload_controller, costs = UnloadController(context, admin), Costs(context, admin)
    unload_controller.subscribe(costs.landed)
    return {
        "mirror": ClusterSync(context, admin).run,
        "carrier": unload_controller.run,
        "wheel": OwnBalancerController(context, admin).run,
        "costs": costs.run,
        "statistics": Statistics(context, admin).run,
    }


log = logging.getLogger(__name__)


LOOK_EVERY = 1.0
"""Seconds between two looks at which cluster the policies name."""


PULSE_EVERY = 5.0
"""Seconds between two looks at whether the cluster answers."""


SECRETS_EVERY = 60.0
"""Seconds between two looks at the Secrets: what they hold is changed without a word to us."""


REFUSED_EVERY = 5.0
"""Seconds between two such looks, when brokers do not take what was read."""


BEGIN_AGAIN = 1.0
"""Seconds before a part that ended by a defect is begun again."""


Parts = Callable[[ClusterState, Admin], Mapping[str, Callable[[], Awaitable[None]]]]
"""What works with the cluster for as long as its client is open: by name what runs for ever."""


@dataclass(slots=True)
class Bridge:
    """See the module. parts: makes what runs. fence: what each write must pass.

    admin: the client that is open, None while there is none; whoever else needs it asks for it each time.
    """

    context: ClusterState
    fence: Fence
    parts: Parts
    admin: Admin | None = None
    _refused: asyncio.Event = field(default_factory=asyncio.Event)

    async def run(self) -> None:
        """Forever."""
        while True:
            if (spec := self._wanted()) is None:
                self.context.metrics.unlink()
                await asyncio.sleep(LOOK_EVERY)
                continue
            try:
                await self._linked(spec)
            except (PulsarError, RefusedUrlError, SourceMisconfiguredError, ApiError) as error:
                self._tell(str(error))
                await self._unless_other(spec, asyncio.sleep(PULSE_EVERY))

    def _wanted(self) -> PulsarSpec | None:
        """The cluster that the policies name now."""
        self.context.share_out()  # Kopf gives each policy's loop a copy of the context: its shares, too
        self.context.relink()
        return self.context.link.spec

    async def _linked(self, spec: PulsarSpec) -> None:
        """Work with the cluster that `spec` names until it, or who we are to it, has changed.

        Raises `PulsarError`, `RefusedUrlError`, `SourceMisconfiguredError`, `ApiError`: why that can't be begun.
        """
        metrics = self.context.metrics
        admit = admitting(self.context.urls, self.context.namespace, spec)
        admit(spec.admin_url)  # before any Secret is read
        proof = await self._proof(spec)
        fence, waited = self.fence, metrics.pulsar_budget_wait.inc
        guards = Guards(admit, fence.check, metrics.observe_pulsar, waited, fence.requests())
        opened = connected(
            spec.admin_url,
            timeout=seconds(spec.timeout),
            requests_per_second=spec.requests_per_second,
            guards=guards,
            identity=proof.identity(admit, self._refused.set),
        )
        async with opened as admin:
            await self._work(spec, proof, admin)

    async def _proof(self, spec: PulsarSpec) -> Proof:
        return await read_proof(self.context.api, self.context.namespace, spec.auth)

    async def _work(self, spec: PulsarSpec, proof: Proof, admin: HttpAdmin) -> None:
        parts = self.parts(self.context, admin)
        kept: dict[str, Callable[[], Awaitable[None]]] = {**parts, "pulse": partial(self._pulse, admin)}
        tasks = [asyncio.create_task(_kept_up(name, run), name=f"bridge {name}") for name, run in kept.items()]
        self.admin = admin
        try:
            await self._unless_other(spec, self._until_changed(spec, proof))
        finally:
            self.admin = None
            await ended(*tasks)

    async def _unless_other(self, spec: PulsarSpec, waiting: Coroutine[Any, Any, None]) -> None:
        """Until `waiting` ends, or the policies name another cluster than `spec`, or none."""
        task = asyncio.create_task(waiting)
        try:
            while not task.done() and self._wanted() == spec:
                await asyncio.wait({task}, timeout=LOOK_EVERY)
            if task.done():
                task.result()
        finally:
            await ended(task)

    async def _until_changed(self, spec: PulsarSpec, proof: Proof) -> None:
        """Until the Secrets hold something else than `proof`, or nothing that can be used."""
        while spec.auth is not None:
            self._refused.clear()
            await asyncio.sleep(REFUSED_EVERY)  # each broker that refuses says so: not the Secrets' fault each time
            await asyncio.wait({(waiting := asyncio.ensure_future(self._refused.wait()))}, timeout=SECRETS_EVERY)
            await ended(waiting)
            try:
                if await self._proof(spec) != proof:
                    return
            except SourceMisconfiguredError:
                return
            except ApiError as error:
                log.warning("Pulsar: whether its credentials changed is not known: %s", error)
        await asyncio.Event().wait()

    async def _pulse(self, admin: HttpAdmin) -> None:
        while True:
            try:
                await admin.at_once().brokers()
            except PulsarError as error:
                self._tell(str(error))
            else:
                self._tell("")
            await asyncio.sleep(PULSE_EVERY)

    def _tell(self, problem: str) -> None:
        """Say why the cluster can't be asked, or that it can (empty); in the log, too, when that is news."""
        if problem != self.context.link.problem:
            log.log(logging.WARNING if problem else logging.INFO, "Pulsar: %s", problem or "the cluster answers")
        self.context.link.problem = problem
        self.context.metrics.linked.set(0 if problem else 1)


async def _kept_up(name: str, run: Callable[[], Awaitable[None]]) -> None:
    """Run until cancelled: what ends by a defect is logged, and begun again."""
    while True:
        try:
            await run()
        except Exception:
            log.exception("bridge: %s ended, beginning again", name)
        await asyncio.sleep(BEGIN_AGAIN)
