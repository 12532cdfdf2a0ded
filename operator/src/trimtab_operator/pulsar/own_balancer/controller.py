"""`OwnBalancerController`: keeps Pulsar's own balancer off while Trimtab balances the cluster.

It reads the runtime configuration of each broker, because configuration files may differ between brokers, and a dynamic
value does not show whether a broker has applied it. If the policy allows it, the controller switches Pulsar's own
shedding and automatic split off for the whole cluster. It stores the former settings first, and restores them once no
policy moves bundles. If another client switches shedding or automatic split on again, the controller switches it off
again. If this happens a third time within an hour, Trimtab leaves it on and only shows plans. The controller switches
it off again once this has happened fewer than three times within the last hour.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from trimtab_operator.aio import at_most
from trimtab_operator.kube.client import ApiError
from trimtab_operator.kube.config_map_store import ConfigMapStore, UnreadableContentError
from trimtab_operator.kube.naming import PULSAR_FOUND
from trimtab_operator.pulsar.client.dynamic_config import (
    OFF,
    FoundSettings,
    described,
    switched_on,
)
from trimtab_operator.pulsar.client.errors import PulsarError
from trimtab_operator.pulsar.client.http import Admin
from trimtab_operator.pulsar.own_balancer.restore import found_settings_store, may_switch_off, needed, restore_settings
from trimtab_operator.resources.pulsar import PulsarSpec
from trimtab_operator.state.cluster import ClusterState
from trimtab_operator.state.pulsar_link import OwnBalancerState
from trimtab_strategies.model import Reason, counted, some

log = logging.getLogger(__name__)

CHECK_EVERY = 15.0
"""Seconds between two reads of all brokers. Changed policies are noticed within a second."""
TRIES, TRY_AFTER = 3, 1.0
"""Number of reads after a change, and seconds before each. In measurements, brokers applied a change within 1 s."""
ENOUGH = 3
"""If another client switches the balancer on again this often within an hour, Trimtab only shows plans."""
AT_ONCE = 8
"""Number of brokers that are asked at the same time."""

_REMEDY = (
    "set these to false in each broker's configuration (pulsar-admin brokers update-dynamic-config), or have Trimtab"
    " do that with spec.pulsar.ownBalancing: SwitchOff"
)


@dataclass(frozen=True, slots=True)
class Readings:
    """Runtime configuration of the brokers.

    brokers: ids of all brokers. on: broker -> the switches that are on. unread: broker -> why its configuration could
    not be read.
    """

    brokers: frozenset[str] = frozenset()
    on: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    unread: Mapping[str, str] = field(default_factory=dict)

    @property
    def switches(self) -> tuple[str, ...]:
        """Switches that are on at any broker."""
        return tuple(sorted({switch for switches in self.on.values() for switch in switches}))

    @property
    def switches_on(self) -> str:
        """Text that says which switches are on at which brokers."""
        return described(self.on, len(self.brokers))

    def own_balancer_state(self, remedy: str) -> OwnBalancerState:
        """The state of Pulsar's own balancer. remedy: what to do if it is on."""
        if self.on:
            return OwnBalancerState(disabled=False, text=f"{self.switches_on}: {remedy}")
        if self.unread:
            unread = [f"{broker} ({why})" for broker, why in sorted(self.unread.items())]
            return OwnBalancerState(
                disabled=None, text=f"nothing moves until the configuration of {some(unread, 3)} can be read"
            )
        if not self.brokers:
            return OwnBalancerState(disabled=None, text="Pulsar lists no active broker")
        return OwnBalancerState(
            disabled=True,
            text=f"Pulsar's own shedding and automatic split are off on {counted(len(self.brokers), 'broker')}",
        )


@dataclass(slots=True)
class OwnBalancerController:
    """Controls Pulsar's own balancer in the cluster behind `admin`, for the policies of `cluster`."""

    cluster: ClusterState
    admin: Admin
    _spec: PulsarSpec | None = field(init=False)
    _store: ConfigMapStore[FoundSettings] = field(init=False)

    def __post_init__(self) -> None:
        self._spec = self.cluster.link.spec
        self._store = found_settings_store(self.cluster.api, self.cluster.namespace)

    async def run(self) -> None:
        """Check repeatedly until cancelled. After an error, report it and check again."""
        while True:
            wanted = self._wanted()
            await self._check_safely()
            for _ in range(int(CHECK_EVERY)):
                await asyncio.sleep(1.0)
                if self._wanted() != wanted:
                    break

    def _wanted(self) -> tuple[object, ...]:
        policies = self.cluster.policies.settings.values()
        return self.cluster.link.elsewhere, *sorted((p.name, p.generation, str(p.mode)) for p in policies)

    @property
    def _replaced(self) -> bool:
        """Whether `admin` is about to be replaced, because the policies now name another cluster or URL."""
        link = self.cluster.link
        return link.linked and link.spec != self._spec

    async def _check_safely(self) -> None:
        try:
            await self.check()
        except (PulsarError, ApiError, UnreadableContentError) as error:
            log.warning("Pulsar's own balancing: %s", error)
            self._publish(OwnBalancerState(disabled=None, text=f"it is unknown whether Pulsar balances: {error}"))

    async def check(self) -> None:
        """Check once, and do what the policies allow. Raises `PulsarError`, `ApiError`, `UnreadableContentError`."""
        async with self.cluster.link.steering:
            if self._replaced:
                return
            found, readings = await self._found(), await self._read()
            if found is not None and self._spec is not None and not found.of(self._spec, readings.brokers):
                self._wait_for(found, readings)
            else:
                await self._steer(found, readings)

    async def _steer(self, found: FoundSettings | None, readings: Readings) -> None:
        remedy = _REMEDY
        if found is not None:
            found = await self._refreshed(found, readings)
        if not may_switch_off(self.cluster):
            if found is not None and not await needed(self.cluster):
                await self._give_back(found)
                found, readings = None, await self._read()
        elif readings.on:
            found, readings, remedy = await self._switch_off(found, readings)
        self._note(found)
        self._publish(readings.own_balancer_state(remedy))

    async def _found(self) -> FoundSettings | None:
        """The stored settings. If their ConfigMap was deleted while they are needed, they are stored again."""
        if (found := await self._store.load()) is not None:
            return found
        found = self.cluster.link.found
        if found is not None and may_switch_off(self.cluster):
            await self._store.save(found)
        return found

    async def _refreshed(self, found: FoundSettings, readings: Readings) -> FoundSettings:
        """The stored settings. Once a broker has answered, they are stored with the current `spec.pulsar`."""
        spec, read = self._spec, readings.brokers - readings.unread.keys()
        if spec is None or not read:
            return found
        if (now := replace(found, pulsar=spec, brokers=readings.brokers)) != found:
            await self._store.save(now)
        return now

    def _wait_for(self, found: FoundSettings, readings: Readings) -> None:
        """Leave this cluster as it is until `BalancerRelease` has restored the settings of another cluster."""
        link = self.cluster.link
        self._note(found)
        if readings.brokers:
            link.elsewhere, link.found = True, None  # so if the ConfigMap is deleted, it is not stored again
        state = readings.own_balancer_state("nothing is switched off before that is done")
        self._publish(replace(state, text=f"{_restore_first(found)}; {state.text}"))

    def _note(self, found: FoundSettings | None) -> None:
        """Record whether there are stored settings to restore."""
        self.cluster.link.keep(found)
        self.cluster.metrics.own_balancing_off.set(bool(self.cluster.link.switched_off))

    async def _read(self) -> Readings:
        brokers = sorted(await self.admin.brokers())
        found = await at_most(AT_ONCE, self._of, brokers)
        on, unread = dict[str, tuple[str, ...]](), dict[str, str]()
        for broker, runtime in zip(brokers, found, strict=True):
            switches = switched_on(runtime) if not isinstance(runtime, PulsarError) else ()
            if isinstance(runtime, PulsarError):
                unread[broker] = str(runtime)
            elif switches is None:
                unread[broker] = "it does not name the switches"
            elif switches:
                on[broker] = switches
        return Readings(frozenset(brokers), on, unread)

    async def _of(self, broker: str) -> Mapping[str, str] | PulsarError:
        try:
            return await self.admin.runtime(broker)
        except PulsarError as error:
            return error

    async def _switch_off(
        self, found: FoundSettings | None, readings: Readings
    ) -> tuple[FoundSettings | None, Readings, str]:
        """Switch off the switches that are on.

        Returns the stored settings, the readings after the change, and the remedy for switches that are still on.
        """
        overrides, spec, now = await self.admin.overrides(), self._spec, self.cluster.now()
        kept = found or (FoundSettings(spec, brokers=readings.brokers) if spec is not None else None)
        todo = [switch for switch in readings.switches if overrides.get(switch) != OFF]
        if kept is None or not may_switch_off(self.cluster):
            return found, readings, _REMEDY
        if len(kept.undone_lately(now)) >= ENOUGH:
            return found, readings, _given_in(kept, now)
        if again := [switch for switch in todo if switch in kept.written]:
            kept = kept.undone_again(now)
            if stops := len(kept.undone) >= ENOUGH:
                kept = kept.leaving_on(again)
            await self._store.save(kept)
            await self._report_undone(again, len(kept.undone))
            if stops:
                return kept, readings, _given_in(kept, now)
        if todo:
            kept = kept.noting(todo, overrides)
            await self._store.save(kept)
            self._note(kept)
            for switch in todo:
                await self.admin.override(switch, OFF)
            kept = kept.having_written({**overrides, **dict.fromkeys(todo, OFF)})
            await self._store.save(kept)
            await self._event(
                "Normal", "SwitchedOff", f"{' and '.join(todo)} switched off; before, {readings.switches_on}"
            )
        return kept, await self._settled(readings), "switched off, but the broker has not applied it yet"

    async def _settled(self, readings: Readings) -> Readings:
        """The readings once all brokers have applied the change, or after the last try."""
        for _ in range(TRIES):
            if not readings.on:
                break
            await asyncio.sleep(TRY_AFTER)
            readings = await self._read()
        return readings

    async def _give_back(self, found: FoundSettings) -> None:
        done = await restore_settings(self.admin, found)
        await self._store.delete()
        log.info("Pulsar's own balancing is restored: %s", "; ".join(done))
        await self._event("Normal", "PulsarBalancerRestored", "; ".join(done))

    async def _report_undone(self, switches: list[str], times: int) -> None:
        self.cluster.metrics.own_balancing_undone.inc()
        what = f"{' and '.join(switches)} switched on again by another client, {counted(times, 'time')} within an hour"
        then = "Trimtab leaves them on, and only shows plans" if times >= ENOUGH else "switched off again"
        await self._event("Warning", str(Reason.PULSAR_BALANCER_ACTIVE), f"{what}: {then}")

    def _publish(self, state: OwnBalancerState) -> None:
        if self._replaced:
            return
        before, self.cluster.link.own_balancer = self.cluster.link.own_balancer, state
        if before.disabled != state.disabled:
            log.info("Pulsar's own balancer is disabled: %s: %s", state.disabled, state.text)
            self.cluster.wake()

    async def _event(self, kind: str, reason: str, text: str) -> None:
        log.info("%s: %s", reason, text)
        cluster = self.cluster
        name = cluster.link.policy or next(iter(cluster.policies.settings), "")
        await cluster.post("BalancingPolicy", name, (kind, reason, text), action="Steer")


def _restore_first(found: FoundSettings) -> str:
    what = f"the settings of the cluster at {found.pulsar.admin_url} must be restored first"
    remedy = f"if it no longer answers there, run trimtab restore --admin-url, or delete ConfigMap {PULSAR_FOUND}"
    return f"{what} ({remedy})"


def _given_in(found: FoundSettings, now: float) -> str:
    times = counted(len(found.undone_lately(now)), "time")
    who = "find the client that does it (another operator, a script, a Helm value), or set ownBalancing: Verify"
    return f"it was switched on again {times} within an hour, so Trimtab only shows plans: {who}"
