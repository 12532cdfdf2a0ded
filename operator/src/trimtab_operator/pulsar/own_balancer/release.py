"""Puts Pulsar's own balancer back when no policy is left that switched it off.

It does so in the cluster where it was found, also when the policies name another one now. A policy that is deleted
keeps Kopf's finalizer until that is done (`release_balancer`), or for a minute if Pulsar does not answer: a namespace
must be deletable when its Pulsar cluster is gone. What was found is kept then and tried again while an operator leads.
`trimtab restore` does the rest.

`FoundSettingsStore`: what was found, in one ConfigMap without an owner. It outlives the policy and the operator.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from trimtab_operator.kube.client import CONFIG_MAPS, POLICIES, Api, ApiError, NotFoundError
from trimtab_operator.kube.naming import PULSAR_FOUND
from trimtab_operator.pulsar.client.api import Admin
from trimtab_operator.pulsar.client.dynamic_config import ForeignFindingsError, FoundSettings, restore_settings
from trimtab_operator.pulsar.client.errors import PulsarError
from trimtab_operator.pulsar.client.http import connected
from trimtab_operator.pulsar.client.transport import Guards
from trimtab_operator.pulsar.identity import admitting, read_proof
from trimtab_operator.resources.common import seconds
from trimtab_operator.resources.policy import Mode
from trimtab_operator.resources.pulsar import OwnBalancing, PulsarSpec
from trimtab_operator.resources.urls import AllowedUrls, RefusedUrlError
from trimtab_operator.state.cluster import ClusterState
from trimtab_pipeline.api import SourceMisconfiguredError

_KEY = "found.json"

_REMEDY = "set the switches by hand, and delete the ConfigMap (docs/migrate.md)"


@dataclass(frozen=True, slots=True)
class FoundSettingsStore:
    """The ConfigMap of one Kubernetes namespace, which holds one Pulsar cluster. All methods raise `ApiError`."""

    api: Api
    namespace: str

    async def load(self) -> FoundSettings | None:
        """What is kept; None: nothing is to be put back. Raises `ForeignFindingsError`, which says what to do."""
        try:
            config_map = await self.api.get(CONFIG_MAPS, self.namespace, PULSAR_FOUND)
        except NotFoundError:
            return None
        try:
            return FoundSettings.from_json((config_map.get("data") or {}).get(_KEY, ""))
        except ForeignFindingsError as error:
            raise ForeignFindingsError(f"ConfigMap {PULSAR_FOUND}: {error}: {_REMEDY}") from error

    async def save(self, found: FoundSettings) -> None:
        """Keep it in the place of what was kept."""
        body = {"data": {_KEY: found.to_json()}}
        try:
            await self.api.patch(CONFIG_MAPS, self.namespace, PULSAR_FOUND, body)
        except NotFoundError:
            meta = {"name": PULSAR_FOUND, "labels": {"app.kubernetes.io/managed-by": "trimtab"}}
            manifest = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, **body}
            await self.api.create(CONFIG_MAPS, self.namespace, manifest)

    async def forget(self) -> None:
        """Everything is as it was found."""
        try:
            await self.api.delete(CONFIG_MAPS, self.namespace, PULSAR_FOUND)
        except NotFoundError:
            return


log = logging.getLogger(__name__)


LOOK_EVERY = 1.0
"""Seconds between two looks at whether something is to be put back."""

TRY_AGAIN = 10.0
"""Seconds until it is tried again after it failed."""

LET_GO_WITHIN, LOOK_AGAIN = 60.0, 0.1
"""Seconds for which a policy's deletion waits, and between two looks meanwhile."""


REFUSALS = (PulsarError, ApiError, RefusedUrlError, SourceMisconfiguredError, ForeignFindingsError)
"""What can keep it from being put back."""


@asynccontextmanager
async def reached(
    spec: PulsarSpec, api: Api, namespace: str, urls: AllowedUrls, fence: Callable[[str], None]
) -> AsyncIterator[Admin]:
    """A client for the cluster of `spec`, for a moment; Secrets are those of `namespace`.

    Raises what is in `REFUSALS`.
    """
    admit = admitting(urls, namespace, spec)
    admit(spec.admin_url)  # before any Secret is read
    proof = await read_proof(api, namespace, spec.auth)
    identity, guards = proof.identity(admit, lambda: None), Guards(admit=admit, fence=fence)
    limits = {"timeout": seconds(spec.timeout), "requests_per_second": float(spec.requests_per_second)}
    async with connected(spec.admin_url, guards=guards, identity=identity, **limits) as admin:
        yield admin


def may_switch_off(context: ClusterState) -> bool:
    """Whether a policy that runs moves bundles, and allows Pulsar's own balancing to be switched off for that.

    A policy whose `spec.pulsar` is not that of the link is refused, whatever it allows.
    """
    spec = context.link.spec
    if spec is None or spec.own_balancing is not OwnBalancing.SWITCH_OFF:
        return False
    return any(
        policy.mode is not Mode.DRY_RUN and policy.pulsar == spec for policy in context.policies.settings.values()
    )


async def needed(context: ClusterState) -> bool:
    """Whether a policy has it off, or one whose loop has not begun yet, as the API server says: they begin one by one.

    One that has begun is on the lists of `context`: it may be refused. Raises `ApiError`.
    """
    async for page in context.api.list(POLICIES, context.namespace):
        if any(
            has_it_off(policy) and policy["metadata"]["name"] not in context.policies.claims for policy in page.items
        ):
            return True
    return may_switch_off(context)


@dataclass(slots=True)
class BalancerRelease:
    """Looks after what was found where no Pulsar is linked (any more), or another one is.

    fence: called before each write to Pulsar.
    """

    context: ClusterState
    fence: Callable[[str], None]

    async def run(self) -> None:
        """Forever."""
        while True:
            try:
                await self.look()
            except REFUSALS as error:
                log.warning("Pulsar's own balancing is not put back yet (or use trimtab restore): %s", error)
                await asyncio.sleep(TRY_AGAIN)
            await asyncio.sleep(LOOK_EVERY)

    async def look(self) -> None:
        """Put back what no policy needs off any more. Raises what is in `REFUSALS`."""
        link = self.context.link
        if (link.linked and not link.elsewhere) or link.switched_off is False:
            return
        async with link.steering:
            store = FoundSettingsStore(self.context.api, self.context.namespace)
            if (found := await store.load() or link.found) is None:
                link.keep(None)
            elif link.elsewhere or not await needed(self.context):
                await self._restore_settings(store, found)

    async def _restore_settings(self, store: FoundSettingsStore, found: FoundSettings) -> None:
        context = self.context
        async with reached(found.pulsar, context.api, context.namespace, context.urls, self.fence) as admin:
            done = await restore_settings(admin, found)
        await store.forget()
        context.link.keep(None)
        context.metrics.own_balancing_off.set(0)
        log.info("Pulsar's own balancing is put back: %s", "; ".join(done))


def has_it_off(policy: Mapping[str, Any]) -> bool:
    """Whether a BalancingPolicy object (as JSON) has Pulsar's own balancing off: it moves bundles, and may."""
    spec = policy.get("spec") or {}
    moves = spec.get("mode", Mode.DRY_RUN) != Mode.DRY_RUN
    allowed = (spec.get("pulsar") or {}).get("ownBalancing") == OwnBalancing.SWITCH_OFF
    return moves and allowed and not policy["metadata"].get("deletionTimestamp")


async def release_balancer(context: ClusterState, within: float = LET_GO_WITHIN) -> bool:
    """Wait until what was switched off is put back, or a policy is left that has it off; False: not in time."""
    end = context.clock() + within
    while context.link.switched_off and not may_switch_off(context):
        if context.clock() >= end:
            log.warning("Pulsar's own balancing is still switched off: trimtab restore puts it back")
            context.link.found = None  # left to the ConfigMap, if that is there
            return False
        await asyncio.sleep(LOOK_AGAIN)
    return True
