"""`Bridge`: keeps a client of the linked Pulsar cluster open, and runs the bridge's controllers with it.

The client is opened again when the policy names another cluster or other credentials, or when a Secret changes. The
controllers are created again with it. `PulsarLink.problem` says whether the cluster answers, and its metadata store.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from trimtab_operator.aio import ended, kept_running
from trimtab_operator.kube.client import ApiError
from trimtab_operator.kube.fence import Fence
from trimtab_operator.pulsar.bridge.cross_check import BrokerStatisticsController
from trimtab_operator.pulsar.bridge.move_cost import MoveCostController
from trimtab_operator.pulsar.bridge.sync.loop import ClusterSync
from trimtab_operator.pulsar.bridge.unload_controller import UnloadController
from trimtab_operator.pulsar.client.errors import PulsarError, PulsarRefusedError, PulsarUnavailableError
from trimtab_operator.pulsar.client.http import Admin, connected
from trimtab_operator.pulsar.client.transport import Guards
from trimtab_operator.pulsar.identity import Proof, admitting, read_proof
from trimtab_operator.pulsar.own_balancer.controller import OwnBalancerController
from trimtab_operator.resources.pulsar import PulsarSpec
from trimtab_operator.resources.urls import RefusedUrlError
from trimtab_operator.state.cluster import ClusterState
from trimtab_pipeline.api import SourceMisconfiguredError
from trimtab_strategies.params import seconds


def parts(cluster: ClusterState, admin: Admin) -> Mapping[str, Callable[[], Awaitable[None]]]:
    """The controllers by name. Each runs until cancelled, and survives errors of `admin` and the API server."""
    move_costs = MoveCostController(cluster, admin)
    return {
        "cluster sync": ClusterSync(cluster, admin).run,
        "unload controller": UnloadController(cluster, admin, move_costs.landed).run,
        "own balancer": OwnBalancerController(cluster, admin).run,
        "move costs": move_costs.run,
        "broker statistics": BrokerStatisticsController(cluster, admin).run,
    }


log = logging.getLogger(__name__)


SPEC_INTERVAL = 1.0
"""Seconds between two checks of whether the policies name another cluster."""


PROBE_INTERVAL = 5.0
"""Seconds between two checks of whether the cluster answers."""


STORE_WITHIN = 5.0
"""Seconds within which brokers must read their metadata store."""


STORE_AWAY = (
    "Pulsar's brokers answer, but their metadata store (ZooKeeper) does not: what they read from it fails, or takes "
    f"more than {STORE_WITHIN:g} s; see the store, and the logs of the brokers"
)
"""The problem of a link whose brokers answer from their caches alone."""


SECRETS_INTERVAL = 60.0
"""Seconds between two reads of the Secrets, which change without a notification."""


REFUSED_INTERVAL = 5.0
"""Seconds between two reads of the Secrets when brokers refuse their contents."""


RESTART_AFTER = 1.0
"""Seconds before a controller that failed is started again."""


Parts = Callable[[ClusterState, Admin], Mapping[str, Callable[[], Awaitable[None]]]]
"""Creates the controllers that run as long as the client is open, by name."""


@dataclass(slots=True)
class Bridge:
    """Runs the controllers of the linked cluster. parts: creates the controllers. fence: checked before each write.

    admin: the open client, None while there is none. Other modules read this field again before each use.
    """

    cluster: ClusterState
    fence: Fence
    parts: Parts
    admin: Admin | None = None
    _refused: asyncio.Event = field(default_factory=asyncio.Event)

    async def run(self) -> None:
        """Stay connected until cancelled."""
        while True:
            if (spec := self._wanted()) is None:
                self.cluster.metrics.unlink()
                await asyncio.sleep(SPEC_INTERVAL)
                continue
            try:
                await self._connect(spec)
            except (PulsarError, RefusedUrlError, SourceMisconfiguredError, ApiError) as error:
                self._set_problem(str(error))
                await self._while_current(spec, asyncio.sleep(PROBE_INTERVAL))

    def _wanted(self) -> PulsarSpec | None:
        """The cluster that the policies name now, None for none."""
        self.cluster.share_out()  # policies, brokers or pods may have changed
        self.cluster.relink()
        return self.cluster.link.spec

    async def _connect(self, spec: PulsarSpec) -> None:
        """Run the controllers on the cluster of `spec` until the spec or the credentials change.

        Raises `PulsarError`, `RefusedUrlError`, `SourceMisconfiguredError`, `ApiError` if no client can be opened.
        """
        metrics = self.cluster.metrics
        admit = admitting(self.cluster.urls, self.cluster.namespace, spec)
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
        return await read_proof(self.cluster.api, self.cluster.namespace, spec.auth)

    async def _work(self, spec: PulsarSpec, proof: Proof, admin: Admin) -> None:
        parts = self.parts(self.cluster, admin)
        runs: dict[str, Callable[[], Awaitable[None]]] = {**parts, "probe": partial(self._probe, admin)}
        tasks = [kept_running(f"bridge {name}", run, after=RESTART_AFTER) for name, run in runs.items()]
        self.admin = admin
        try:
            await self._while_current(spec, self._until_changed(spec, proof))
        finally:
            self.admin = None
            await ended(*tasks)

    async def _while_current(self, spec: PulsarSpec, waiting: Coroutine[Any, Any, None]) -> None:
        """Wait until `waiting` ends, or until the policies no longer name `spec`."""
        task = asyncio.create_task(waiting)
        try:
            while not task.done() and self._wanted() == spec:
                await asyncio.wait({task}, timeout=SPEC_INTERVAL)
            if task.done():
                task.result()
        finally:
            await ended(task)

    async def _until_changed(self, spec: PulsarSpec, proof: Proof) -> None:
        """Wait until the Secrets differ from `proof` or are unusable."""
        while spec.auth is not None:
            self._refused.clear()
            await asyncio.sleep(REFUSED_INTERVAL)  # many brokers may refuse at the same time
            await asyncio.wait({(waiting := asyncio.ensure_future(self._refused.wait()))}, timeout=SECRETS_INTERVAL)
            await ended(waiting)
            try:
                if await self._proof(spec) != proof:
                    return
            except SourceMisconfiguredError:
                return
            except ApiError as error:
                log.warning("Pulsar: can't read whether its credentials changed: %s", error)
        await asyncio.Event().wait()

    async def _probe(self, admin: Admin) -> None:
        admin, failures = admin.without_budget(), 0
        while True:
            try:
                await admin.brokers()
                failures = 0 if await _store_answers(admin) else failures + 1
            except PulsarError as error:
                self._set_problem(str(error))
            else:
                self._set_problem(STORE_AWAY if failures > 1 else "")
            await asyncio.sleep(PROBE_INTERVAL)

    def _set_problem(self, problem: str) -> None:
        """Record why the cluster does not answer, empty if it does. A change is logged."""
        if problem != self.cluster.link.problem:
            log.log(logging.WARNING if problem else logging.INFO, "Pulsar: %s", problem or "the cluster answers")
        self.cluster.link.problem = problem
        self.cluster.metrics.linked.set(0 if problem else 1)


async def _store_answers(admin: Admin) -> bool:
    """Whether brokers can read their metadata store. A refusal of the request counts as an answer."""
    try:
        async with asyncio.timeout(STORE_WITHIN):
            await admin.read_store()
    except PulsarRefusedError:
        return True
    except (PulsarUnavailableError, TimeoutError):
        return False
    return True
