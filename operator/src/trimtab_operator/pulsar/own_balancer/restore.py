"""Restores the settings of Pulsar's own balancer in its dynamic configuration when no policy needs it off.

It restores them in the cluster where they were found, even if the policies name another cluster now. A deleted policy
keeps its finalizer until the settings are restored (`release_balancer`), but for a minute at most, because a
namespace must be deletable when its Pulsar cluster is gone. After that minute the settings stay stored, and the leader
tries again. Without an operator, `trimtab restore` restores them.

`found_settings_store` keeps the settings in a ConfigMap without an owner, which outlives the policy and the operator.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from trimtab_operator.kube.client import POLICIES, Api, ApiError
from trimtab_operator.kube.config_map_store import ConfigMapStore, StoredFormat, UnreadableContentError
from trimtab_operator.kube.naming import PULSAR_FOUND
from trimtab_operator.pulsar.client.dynamic_config import ON, ForeignFindingsError, FoundSettings, resets_removed
from trimtab_operator.pulsar.client.errors import PulsarError
from trimtab_operator.pulsar.client.http import Admin, connected
from trimtab_operator.pulsar.client.transport import Guards
from trimtab_operator.pulsar.identity import admitting, read_proof
from trimtab_operator.resources.policy import Mode
from trimtab_operator.resources.pulsar import OwnBalancing, PulsarSpec
from trimtab_operator.resources.urls import AllowedUrls, RefusedUrlError
from trimtab_operator.state.cluster import ClusterState
from trimtab_operator.state.pulsar_link import NOT_ASKED
from trimtab_pipeline.api import SourceMisconfiguredError
from trimtab_strategies.model import some
from trimtab_strategies.params import seconds

_KEY = "found.json"


def found_settings_store(api: Api, namespace: str) -> ConfigMapStore[FoundSettings]:
    """The store of the settings found in the Pulsar cluster of a Kubernetes namespace.

    If it is empty, there is nothing to restore.
    """
    return ConfigMapStore(api, namespace, PULSAR_FOUND, _FORMAT)


def _decoded(texts: Mapping[str, str]) -> FoundSettings:
    try:
        return FoundSettings.from_json(texts.get(_KEY, ""))
    except ForeignFindingsError as error:
        raise UnreadableContentError(str(error)) from error


_FORMAT: StoredFormat[FoundSettings] = StoredFormat(
    encode=lambda found, _: {_KEY: found.to_json()},
    decode=_decoded,
    remedy="set the switches manually, and delete the ConfigMap (docs/migrate.md)",
    guarded=True,
)


log = logging.getLogger(__name__)


CHECK_EVERY = 1.0
"""Seconds between two checks of whether settings must be restored."""

TRY_AGAIN = 10.0
"""Seconds until the next attempt after a failed one."""

RELEASE_WITHIN, CHECK_AGAIN = 60.0, 0.1
"""Maximum seconds that the deletion of a policy waits, and seconds between two checks meanwhile."""


REFUSALS = (PulsarError, ApiError, RefusedUrlError, SourceMisconfiguredError, UnreadableContentError)
"""Errors that can prevent settings from being restored."""


@asynccontextmanager
async def reached(
    spec: PulsarSpec, api: Api, namespace: str, urls: AllowedUrls, fence: Callable[[str], None]
) -> AsyncIterator[Admin]:
    """A client for the cluster of `spec` while the block runs. Secrets are read from `namespace`.

    Raises the errors in `REFUSALS`.
    """
    admit = admitting(urls, namespace, spec)
    admit(spec.admin_url)  # before any Secret is read
    proof = await read_proof(api, namespace, spec.auth)
    identity, guards = proof.identity(admit, lambda: None), Guards(admit=admit, fence=fence)
    limits = {"timeout": seconds(spec.timeout), "requests_per_second": float(spec.requests_per_second)}
    async with connected(spec.admin_url, guards=guards, identity=identity, **limits) as admin:
        yield admin


def may_switch_off(cluster: ClusterState) -> bool:
    """Whether a running policy moves bundles, and allows Pulsar's own balancer to be switched off for that.

    A policy counts only if its `spec.pulsar` is that of the linked cluster.
    """
    spec = cluster.link.spec
    if spec is None or spec.own_balancing is not OwnBalancing.SWITCH_OFF:
        return False
    return any(
        policy.mode is not Mode.DRY_RUN and policy.pulsar == spec for policy in cluster.policies.settings.values()
    )


async def needed(cluster: ClusterState) -> bool:
    """Whether any policy needs the balancer off, including policies whose loop has not started yet.

    Loops start one by one. For a policy without a loop, its object in the API server decides. A policy with a loop
    counts only if `may_switch_off` says so, because it may be refused. Raises `ApiError`.
    """
    async for page in cluster.api.list(POLICIES, cluster.namespace):
        if any(
            has_it_off(policy) and policy["metadata"]["name"] not in cluster.policies.claims for policy in page.items
        ):
            return True
    return may_switch_off(cluster)


@dataclass(slots=True)
class BalancerRelease:
    """Restores settings while their Pulsar cluster is not linked, or the linked cluster does not answer.

    fence: called before each write to Pulsar.
    """

    cluster: ClusterState
    fence: Callable[[str], None]

    async def run(self) -> None:
        """Check repeatedly until cancelled. After an error, log it and check again."""
        while True:
            try:
                await self.check()
            except REFUSALS as error:
                log.warning("Pulsar's own balancing is not restored yet, trying again: %s", error)
                await asyncio.sleep(TRY_AGAIN)
            await asyncio.sleep(CHECK_EVERY)

    async def check(self) -> None:
        """Restore the settings if no policy needs the balancer off. Raises the errors in `REFUSALS`."""
        link = self.cluster.link
        steered = link.linked and not link.elsewhere and link.problem in {"", NOT_ASKED}  # by `OwnBalancerController`
        if steered or link.switched_off is False:
            return
        async with link.steering:
            store = found_settings_store(self.cluster.api, self.cluster.namespace)
            if (found := await store.load() or link.found) is None:
                link.keep(None)
            elif link.elsewhere or not await needed(self.cluster):
                await self._restore_settings(store, found)

    async def _restore_settings(self, store: ConfigMapStore[FoundSettings], found: FoundSettings) -> None:
        cluster = self.cluster
        async with reached(found.pulsar, cluster.api, cluster.namespace, cluster.urls, self.fence) as admin:
            done = await restore_settings(admin, found)
        await store.delete()
        cluster.link.keep(None)
        cluster.metrics.own_balancing_off.set(0)
        log.info("Pulsar's own balancing is restored: %s", "; ".join(done))


def has_it_off(policy: Mapping[str, Any]) -> bool:
    """Whether a BalancingPolicy object (JSON) moves bundles, and allows Pulsar's own balancer to be switched off."""
    moves = (policy.get("spec") or {}).get("mode", Mode.DRY_RUN) != Mode.DRY_RUN
    return moves and allows_switching_off(policy) and not policy["metadata"].get("deletionTimestamp")


def allows_switching_off(policy: Mapping[str, Any]) -> bool:
    """Whether a BalancingPolicy object (JSON) allows Pulsar's own balancer to be switched off, in any mode."""
    pulsar = (policy.get("spec") or {}).get("pulsar")
    return isinstance(pulsar, Mapping) and pulsar.get("ownBalancing") == OwnBalancing.SWITCH_OFF


async def release_balancer(cluster: ClusterState, within: float = RELEASE_WITHIN) -> bool:
    """Wait until the settings are restored, or another policy needs the balancer off; False if that takes too long."""
    end = cluster.clock() + within
    while cluster.link.switched_off is not False and not may_switch_off(cluster):  # None: `BalancerRelease` finds out
        if cluster.clock() >= end:
            log.warning("Pulsar's own balancing is still switched off: run trimtab restore")
            cluster.link.found = None  # the settings stay in the ConfigMap, if it exists
            return False
        await asyncio.sleep(CHECK_AGAIN)
    return True


async def restore_settings(admin: Admin, found: FoundSettings, *, dry_run: bool = False) -> list[str]:
    """Restore the settings of `found`; returns a description of each change. After an error, call it again.

    dry_run: describe the changes only. Raises `PulsarError`.
    """
    overrides = await admin.overrides()
    values, changes = found.to_restore(overrides), list[str]()
    old = await _brokers_that_keep_removed(admin) if None in values.values() else []
    for switch, before in sorted(found.overrides.items()):
        if switch not in values:
            now = overrides.get(switch)
            changes.append(f"{switch} stays as it is ({'no dynamic value' if now is None else now})")
        elif before is None and old:
            if not dry_run:
                await admin.override(switch, ON)
            changes.append(f"{switch} = {ON}, as {some(old, 3)} would keep a removed value until a restart")
        elif before is None:
            if not dry_run:
                await admin.drop_override(switch)
            changes.append(f"{switch}: dynamic value removed, each broker's file applies again")
        else:
            if not dry_run:
                await admin.override(switch, before)
            changes.append(f"{switch} = {before}, as before")
    return changes


async def _brokers_that_keep_removed(admin: Admin) -> list[str]:
    """The brokers that keep a removed dynamic value until a restart, each with its version. Raises `PulsarError`."""
    versions = {broker: await admin.version(broker) for broker in sorted(await admin.brokers())}
    return [f"{broker} ({version or 'old'})" for broker, version in versions.items() if not resets_removed(version)]
