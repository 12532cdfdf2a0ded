"""Draws the arrays of a `World` from a scenario."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from trimtab_lab.simulation import draws
from trimtab_lab.simulation.events import (
    Crowd,
    Failover,
    ForeignLoad,
    HotBundle,
    Joins,
    Leaves,
    Neighbour,
    Restarts,
    last_round,
)
from trimtab_lab.simulation.scenario import Scenario
from trimtab_lab.simulation.scenario_fields import drawn, loads
from trimtab_lab.simulation.tenants import Tenant
from trimtab_lab.simulation.world import CORE, GBIT, Lies, Pieces, World
from trimtab_strategies.hash_ring import default_boundaries
from trimtab_strategies.model import BrokerTraits, Isolation, NamespacePolicy
from trimtab_strategies.model.cluster_load import BoolArray, FloatArray, IntArray

_TOPIC_SKEW = 0.5


def build(scenario: Scenario, rng: np.random.Generator) -> World:
    """The cluster of a scenario. The same generator state gives the same cluster."""
    machines = _Machines.of(scenario)
    usage = np.concatenate([loads(rng, group.usage, group.count) for group in scenario.machines])
    usage[scenario.joining] = 0
    bundles = _bundles(rng, scenario, usage)
    size = _sizes(rng, scenario, machines, bundles, usage)
    real, noise = _load(rng, scenario, bundles, size)
    _surges(scenario, machines, bundles, real)
    lower, upper = _ranges(scenario, bundles.tenant)
    names, present = _broker_names(scenario.count), _present(scenario)
    return World(
        brokers=names,
        cores=machines.cores,
        speed=machines.speed,
        nic=machines.nic,
        foreign=_foreign(rng, scenario, machines.cores),
        present=present,
        namespaces=tuple(tenant.name for tenant in scenario.tenants),
        namespace=bundles.tenant,
        lower=lower,
        upper=upper,
        real=real,
        noise=noise[draws.WARM_UP :],
        before=noise[: draws.WARM_UP],
        message=bundles.message,
        fanout=bundles.fanout,
        sessions=_sessions(rng, scenario, bundles, size),
        owner=bundles.owner,
        pieces=_pieces(rng, scenario, bundles.tenant, lower, upper),
        lies=_lies(rng, scenario),
        metrics=scenario.metrics,
        realism=scenario.realism,
        traits=_traits(scenario, names),
        policies=_policies(scenario, names),
        splitting=scenario.splitting,
        landing=scenario.landing,
        event=scenario.event,
        failovers=frozenset(event.round for event in scenario.events if isinstance(event, Failover)),
        rollouts=_rollouts(scenario, names, present),
    )


def _broker_names(count: int) -> tuple[str, ...]:
    digits = max(2, len(str(count - 1)))
    return tuple(f"broker-{row:0{digits}d}" for row in range(count))


@dataclass(frozen=True)
class _Machines:
    """(n,) each: cores, bytes/s per core, bytes/s of the network."""

    cores: FloatArray
    speed: FloatArray
    nic: FloatArray

    @classmethod
    def of(cls, scenario: Scenario) -> _Machines:
        groups = scenario.machines
        counts = [group.count for group in groups]
        return cls(
            np.repeat([group.cores for group in groups], counts),
            np.repeat([group.speed * CORE for group in groups], counts),
            np.repeat([group.nic * GBIT for group in groups], counts),
        )


@dataclass(frozen=True)
class _Bundles:
    """(m,) each: row of the tenant, row of the first owner, bytes per message, fan-out."""

    tenant: IntArray
    owner: IntArray
    message: FloatArray
    fanout: FloatArray

    def of(self, tenant: int) -> IntArray:
        return np.flatnonzero(self.tenant == tenant)


def _bundles(rng: np.random.Generator, scenario: Scenario, usage: FloatArray) -> _Bundles:
    """The bundles of each tenant on each broker that has load."""
    tenant, owner, message, fanout = [], [], [], []
    for number, given in enumerate(scenario.tenants):
        rows = np.repeat(np.arange(scenario.count), scenario.bundles[number] * (usage > 0))
        owner.append(rows)
        tenant.append(np.full(len(rows), number))
        message.append(drawn(rng, given.message, len(rows)))
        fanout.append(drawn(rng, given.fanout, len(rows)))
    return _Bundles(*map(np.concatenate, (tenant, owner, message, fanout)))


def _sizes(
    rng: np.random.Generator, scenario: Scenario, machines: _Machines, bundles: _Bundles, usage: FloatArray
) -> FloatArray:
    """Bytes/s (m,) such that the busiest resource of each broker is at its `usage`."""
    skew = np.array([tenant.skew for tenant in scenario.tenants])[bundles.tenant]
    raw = rng.lognormal(0.0, skew)
    cost = 1 + scenario.realism.message_price / bundles.message
    share_in = 1 / (1 + bundles.fanout)
    n, owner = scenario.count, bundles.owner
    busiest = np.max(
        [
            np.bincount(owner, raw * cost, n) / (machines.cores * machines.speed),
            np.bincount(owner, raw * share_in, n) / machines.nic,
            np.bincount(owner, raw * (1 - share_in), n) / machines.nic,
        ],
        axis=0,
    )
    scale = np.divide(usage, busiest, out=np.zeros(n), where=busiest > 0)
    sizes: FloatArray = raw * scale[owner]
    return sizes


def _load(
    rng: np.random.Generator, scenario: Scenario, bundles: _Bundles, size: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Bytes/s that clients want without noise (rounds, m), and the noise (warm-up + rounds, m)."""
    real = np.tile(size, (scenario.rounds, 1))
    noise = np.ones((draws.WARM_UP + scenario.rounds, len(size)))
    for number, tenant in enumerate(scenario.tenants):
        rows = bundles.of(number)
        noise[:, rows] = draws.noise(rng, tenant, scenario.rounds, bundles.owner[rows])
        real[:, rows] *= draws.trend(rng, tenant, scenario.rounds, bundles.owner[rows], scenario.count)
    return real, noise


def _surges(scenario: Scenario, machines: _Machines, bundles: _Bundles, real: FloatArray) -> None:
    """Set, in place, the traffic of bundles that an event makes larger."""
    capacity = machines.cores * machines.speed
    cost = 1 + scenario.realism.message_price / bundles.message
    for event in scenario.events:
        if isinstance(event, Crowd):
            wanted = event.size * capacity[event.broker] / cost
            row = _closest(real[0], wanted, bundles.owner == event.broker)
            factors = real[:, row] / real[0, row]
            real[:, row] = wanted[row] * factors
            real[event.round : event.until, row] *= event.factor
        elif isinstance(event, HotBundle):
            wanted = event.usage * capacity[event.broker] / cost
            row = _closest(real[0], np.full(len(wanted), np.median(real[0])), bundles.owner == event.broker)
            real[event.round :, row] = wanted[row]


def _closest(size: FloatArray, wanted: FloatArray, among: BoolArray) -> int:
    """Row of the bundle whose size is closest to the wanted one. among: the bundles to choose from."""
    return int(np.argmin(np.where(among, np.abs(size - wanted), np.inf)))


def _foreign(rng: np.random.Generator, scenario: Scenario, cores: FloatArray) -> FloatArray:
    foreign = np.zeros((scenario.rounds, scenario.count))
    for event in scenario.events:
        if isinstance(event, ForeignLoad):
            rows = scenario.rows(event.brokers)
            foreign[event.round : event.until, rows] += event.usage * cores[rows]
        elif isinstance(event, Neighbour):
            for row in scenario.rows(event.brokers).tolist():
                runs = draws.foreign_runs(rng, scenario.rounds, event.minutes, event.every)
                foreign[:, row] += event.usage * cores[row] * runs
    return foreign


def _present(scenario: Scenario) -> BoolArray:
    present = np.ones((scenario.rounds, scenario.count), dtype=bool)
    for event in scenario.events:
        if isinstance(event, Joins):
            present[: event.round, scenario.rows(event.brokers)] = False
        elif isinstance(event, Leaves):
            present[event.round : event.until, scenario.rows(event.brokers)] = False
        elif isinstance(event, Restarts):
            for number, row in enumerate(scenario.rows(event.brokers).tolist()):
                start = event.round + event.every * number
                present[start : start + event.away, row] = False
    return present


def _rollouts(scenario: Scenario, names: Sequence[str], present: BoolArray) -> dict[int, frozenset[str]]:
    """The rounds of rolling restarts, each with the brokers that are back by then."""
    found = dict[int, frozenset[str]]()
    for event in scenario.events:
        if isinstance(event, Restarts):
            rows = scenario.rows(event.brokers)
            for step in range(event.round, min(last_round(event, len(rows)), len(present))):
                back = rows[(~present[event.round : step, rows]).any(axis=0) & present[step, rows]]
                found[step] = found.get(step, frozenset()) | {names[row] for row in back.tolist()}
    return found


def _sessions(rng: np.random.Generator, scenario: Scenario, bundles: _Bundles, size: FloatArray) -> FloatArray:
    found = np.zeros(len(size))
    for number, tenant in enumerate(scenario.tenants):
        rows = bundles.of(number)
        if not len(rows):
            continue
        found[rows] = draws.clients(rng, size[rows], tenant.sessions)
    return found


def _ranges(scenario: Scenario, tenant: IntArray) -> tuple[IntArray, IntArray]:
    """The ranges of all bundles, equally wide within each namespace."""
    lower, upper = np.zeros(len(tenant), dtype=np.int64), np.zeros(len(tenant), dtype=np.int64)
    for number in range(len(scenario.tenants)):
        rows = np.flatnonzero(tenant == number)
        if len(rows):
            edges = default_boundaries(len(rows))
            lower[rows], upper[rows] = edges[:-1], edges[1:]
    return lower, upper


def _pieces(rng: np.random.Generator, scenario: Scenario, tenant: IntArray, lower: IntArray, upper: IntArray) -> Pieces:
    counts = np.array([given.topics for given in scenario.tenants])[tenant]
    bundle = np.repeat(np.arange(len(tenant)), counts)
    place = np.floor(rng.uniform(lower[bundle], upper[bundle])).astype(np.int64)
    weight = rng.lognormal(0.0, _TOPIC_SKEW, len(bundle))
    share = weight / np.bincount(bundle, weight)[bundle]
    order = np.lexsort((place, bundle))
    return Pieces(bundle, place[order], share[order])


def _lies(rng: np.random.Generator, scenario: Scenario) -> Lies:
    metrics, shape = scenario.metrics, (scenario.rounds, scenario.count)
    return Lies(
        factor=np.maximum(rng.normal(1, metrics.noise, shape), 0),
        full=rng.random(shape) < metrics.spikes,
        missing=rng.random(shape) < metrics.missing,
        stale=rng.random(shape) < metrics.stale,
        late=rng.uniform(0, metrics.scrape / 60, scenario.count),
    )


def _traits(scenario: Scenario, names: tuple[str, ...]) -> dict[str, BrokerTraits]:
    zones = [group.zone for group in scenario.machines for _ in range(group.count)]
    return {name: BrokerTraits(failure_domain=zone) for name, zone in zip(names, zones, strict=True) if zone}


def _policies(scenario: Scenario, names: tuple[str, ...]) -> dict[str, NamespacePolicy]:
    return {
        tenant.name: NamespacePolicy(_isolation(scenario, tenant, names), tenant.anti_affinity)
        for tenant in scenario.tenants
        if tenant.brokers is not None or tenant.anti_affinity
    }


def _isolation(scenario: Scenario, tenant: Tenant, names: tuple[str, ...]) -> Isolation | None:
    if tenant.brokers is None:
        return None
    return Isolation(tuple(re.escape(names[row]) for row in scenario.rows(tenant.brokers).tolist()))
