"""A soak: hours of a large cluster with faults, in minutes. The API server, the loop and the brokers' writes are real.

The soak sets the operator's clock. When the brokers have done what they can, the clock jumps by 20 seconds; a cycle
takes three jumps. The load is generated from what brokers really serve. It is written as a history, with the
housekeeping of a history.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import math
import threading
from collections import Counter, deque
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from bulk_environment import BulkEnvironment
from faulty_api import FaultyApi, status
from policy_environment import PolicyEnvironment, eager
from soak_brokers import SoakBrokers
from static_sources import StaticSource
from strategy_testing.clusters import FULL, cluster
from trimtab_operator.kube.client import Api
from trimtab_pipeline.api import Observation, Retention, SourceUnavailableError, Topology
from trimtab_pipeline.history.dataset import HistoryDataset
from trimtab_pipeline.history.housekeeping import Housekeeping
from trimtab_pipeline.history.snapshot_writer import SnapshotWriter
from trimtab_strategies.model import CPU, NETWORK_IN, NETWORK_OUT, ClusterLoad
from trimtab_strategies.model.cluster_load import FloatArray
from trimtab_testbed.servers.kube import ControlPlane

STEP, HOUR = 20.0, 3600.0
"""Seconds of the operator's clock between two reconciles; three of them make a cycle."""
GROWTH, NOISE = 0.03, 16 * 2**20
"""How much memory may grow after the first third of a soak: a ratio of its size, or bytes, whichever is larger."""
MOVED = "cluster.ownership_changes._history"
"""The table of bundles that moved within a day."""
POLICY = "messaging/main"
LIMITS = {
    "coolDown": "2m",
    "maxMovesPerCycle": 200,
    "maxMovesPerBroker": 50,
    "maxMovesPerHour": 100_000,
    "moveTimeout": "5m",
    "lostAfter": "2m",
}


@dataclass(frozen=True, slots=True)
class SoakSample:
    """The process at `minute`. tables: number of entries of each container in memory, by its path."""

    minute: int
    resident: int
    threads: int
    files: int
    tasks: int
    history: int
    tables: Mapping[str, int]


@dataclass
class Soak:
    """The result of a soak. drift: differences between objects, stores and brokers at its end, as text."""

    bundles: int
    samples: list[SoakSample] = field(default_factory=list)
    faults: Counter[str] = field(default_factory=Counter)
    moves: int = 0
    drift: list[str] = field(default_factory=list)

    @property
    def steady(self) -> list[SoakSample]:
        """The samples after the first third."""
        return self.samples[len(self.samples) // 3 :]

    @property
    def growth(self) -> float:
        """Bytes by which memory grew after the first third, by a fitted slope."""
        minutes = [sample.minute for sample in self.steady]
        slope = np.polyfit(minutes, [sample.resident for sample in self.steady], 1)[0]
        return float(slope) * (minutes[-1] - minutes[0])

    def problems(self, retention: Retention) -> list[str]:
        """The failures of the soak; empty if there are none."""
        found, steady, last = list(self.drift), self.steady, self.samples[-1]
        mean = float(np.mean([sample.resident for sample in steady]))
        if self.growth > max(GROWTH * mean, NOISE):
            found.append(f"memory grew by {self.growth / 2**20:.0f} MiB of {mean / 2**20:.0f}")
        for name in ("threads", "files", "tasks"):
            before, after = getattr(steady[0], name), getattr(last, name)
            if after > 1.5 * before + 10:
                found.append(f"{name}: {before} became {after}")
        found += [f"{name} has {size} entries" for name, size in last.tables.items() if size > 2 * self.bundles + 1000]
        if (most := max(sample.history for sample in self.samples)) > retention.bytes:
            found.append(f"the history took {most} bytes, more than {retention.bytes}")
        return found


class DrawnSource(StaticSource):
    """A source that measures what brokers serve, and writes a history. down: whether it gives no answers."""

    def __init__(self, world: SoakWorld, root: Path, retention: Retention) -> None:
        super().__init__(world.load)
        self._world, self.down = world, False
        self._writer = SnapshotWriter(str(root), POLICY)
        self._housekeeping = Housekeeping(HistoryDataset(str(root)).of(POLICY), retention)

    def observe(self, topology: Topology, at: float) -> Future[Observation]:
        """The current load, which is also written to the history."""
        self._measure(at)
        if self.error is None:
            self._writer.cycle(replace(self.load, now=at))
            self._housekeeping.tidy(at)
        return super().observe(topology, at)

    def observe_brokers(self, topology: Topology, at: float) -> Future[Observation]:
        """The current load."""
        self._measure(at)
        return super().observe_brokers(topology, at)

    def _measure(self, at: float) -> None:
        self.error = SourceUnavailableError("http://prometheus refused the connection") if self.down else None
        self.load = self._world.measured(at)


class SoakWorld(BulkEnvironment):
    """`brokers` with `each` bundles. Half of the brokers have twice the load of the others, and all load swings."""

    def __init__(self, plane: ControlPlane, namespace: str, brokers: int, each: int, seed: int = 1) -> None:
        use = {f"b{k:03d}": 0.6 if k % 2 else 0.3 for k in range(brokers)}
        super().__init__(plane, namespace, cluster(bundles=each, **use))
        self.draws = np.random.default_rng(seed)
        self._phase = self.draws.uniform(0, 2 * math.pi, len(self.load.bundles))
        self._row = {name: row for row, name in enumerate(self.load.brokers.names)}
        self._objects = [self.names[full] for full in self.load.bundles.names]
        self.brokers: SoakBrokers | None = None

    def measured(self, at: float) -> ClusterLoad:
        """What metrics would show at `at` (epoch seconds)."""
        assert self.brokers is not None
        serving = self.brokers.serving
        owner = np.array([self._row.get(serving.get(name, ""), -1) for name in self._objects], dtype=np.int64)
        swing = 1 + 0.4 * np.sin(2 * math.pi * at / (2 * HOUR) + self._phase)
        demand: FloatArray = self.load.bundles.short * swing[:, np.newaxis]
        count, served = len(self._row), owner >= 0
        traffic = np.stack([np.bincount(owner[served], column[served], count) for column in demand.T], axis=1)
        usage = np.zeros_like(self.load.brokers.usage)
        usage[:, CPU], usage[:, [NETWORK_IN, NETWORK_OUT]] = traffic[:, 2:].sum(axis=1) / FULL, traffic[:, 2:]
        bundles = replace(self.load.bundles, owner=owner, short=demand, long=demand, newest=demand)
        return replace(self.load, brokers=replace(self.load.brokers, usage=usage, traffic=traffic), bundles=bundles)

    def ready(self, broker: str, *, ready: bool) -> None:
        """Write the readiness of a broker's pod, as discovery would."""
        self.rest.patch(self.path("brokers", broker, "status"), {"status": {"ready": ready}})


def soak(
    plane: ControlPlane, namespace: str, folder: Path, size: tuple[int, int], hours: float, retention: Retention
) -> Soak:
    """Run a soak. size: brokers, and bundles of each. folder: for the history."""
    world = SoakWorld(plane, namespace, *size)
    found = Soak(len(world.load.bundles))

    async def scenario(_: PolicyEnvironment) -> None:
        async with Api.connect(str(plane.kubeconfig), patience=60.0) as api:
            world.brokers = SoakBrokers(api, namespace)
            async with world.brokers.running():
                await _run(world, found, DrawnSource(world, folder / "root", retention), proxy, round(hours * 60))

    async def whole() -> None:
        nonlocal proxy
        async with FaultyApi(plane, folder) as proxy:
            world.kubeconfig = str(proxy.kubeconfig)
            await world.run_policy(scenario, eager(**LIMITS))

    proxy: FaultyApi = None  # type: ignore[assignment]  (`whole` sets it)
    asyncio.run(whole())
    return found


async def _run(world: SoakWorld, found: Soak, source: DrawnSource, proxy: FaultyApi, minutes: int) -> None:
    brokers = world.brokers
    assert brokers is not None
    world.source = source
    for minute in range(minutes):
        _fault(world, source, proxy, found.faults)
        for _ in range(3):
            world.clock += STEP
            await world.loop._reconcile_safely()
            await brokers.quiet()
        proxy.seen.clear()
        if minute % max(1, minutes // 60) == 0:
            found.samples.append(_sample(world, minute, source))
    _mend(world, source, proxy)
    for _ in range(12):  # four minutes for lost brokers and unconfirmed moves
        world.clock += STEP
        await world.loop._reconcile_safely()
        await brokers.quiet()
    world.edit(paused=True)
    for _ in range(30):
        world.clock += STEP
        await world.loop._reconcile_safely()
        await brokers.quiet()
    await world.seen()
    found.samples.append(_sample(world, minutes, source))
    found.moves, found.drift = brokers.confirmed, list(_drift(world, brokers))


def _fault(world: SoakWorld, source: DrawnSource, proxy: FaultyApi, faults: Counter[str]) -> None:
    """Start a fault, end all faults, or change nothing; every fault ends after some minutes."""
    brokers, draws = world.brokers, world.draws
    assert brokers is not None
    names = world.load.brokers.names
    broker, kind = str(draws.choice(names)), int(draws.integers(12))
    if kind == 0 and len(brokers.down) < max(1, len(names) // 10):
        brokers.crash(broker)
        world.ready(broker, ready=False)
        faults["broker crashed"] += 1
    elif kind == 1:
        brokers.deaf.add(broker)
        faults["broker did not follow"] += 1
    elif kind == 2:
        source.down = True
        faults["Prometheus did not answer"] += 1
    elif kind == 3:
        proxy.faults["request"] += [status(500), status(429, **{"Retry-After": "1"}), status(503)]
        faults["API server failed"] += 1
    elif kind == 4:
        proxy.cut()
        faults["watches broke off"] += 1
    elif kind == 5:
        name = str(draws.choice(world._objects))
        world.give(name, broker)
        faults["a person moved a bundle"] += 1
    elif kind in {6, 7, 8}:
        _mend(world, source, proxy)


def _mend(world: SoakWorld, source: DrawnSource, proxy: FaultyApi) -> None:
    assert world.brokers is not None
    for broker in sorted(world.brokers.down):
        world.ready(broker, ready=True)
    world.brokers.hear()
    source.down = False
    proxy.faults["request"].clear()


def _drift(world: SoakWorld, brokers: SoakBrokers) -> Iterator[str]:
    """Where the API server, the operator's stores and the brokers disagree."""
    objects, records = world.bundles(), world.cluster.stores.bundles.items
    if objects.keys() != records.keys() or objects.keys() != brokers.serving.keys():
        yield f"there are {len(objects)} bundles, {len(records)} records, and {len(brokers.serving)} that are served"
    for name, found in objects.items():
        asked, told = found["spec"].get("owner", ""), (found.get("status") or {}).get("owner", "")
        record, really = records.get(name), brokers.serving.get(name, "")
        shown = (record.owner, record.status_owner) if record else ("", "")
        if not asked or len({asked, told, really, *shown}) != 1:
            yield f"{name}: owner {asked}, status {told}, store {shown}, served by {really or 'no broker'}"


def _sample(world: SoakWorld, minute: int, source: DrawnSource) -> SoakSample:
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)  # memory that the C library keeps free for later is no leak
    status_lines = Path("/proc/self/status").read_text().splitlines()
    resident = next(int(line.split()[1]) * 1024 for line in status_lines if line.startswith("VmRSS"))
    files = source._housekeeping._history.all_files()
    return SoakSample(
        minute=minute,
        resident=resident,
        threads=threading.active_count(),
        files=len(list(Path("/proc/self/fd").iterdir())),
        tasks=len(asyncio.all_tasks()),
        history=sum(file.bytes for _, file in files),
        tables=dict(_tables("cluster", world.cluster, 3)) | dict(_tables("loop", world.loop, 3)),
    )


def _tables(name: str, value: Any, depth: int) -> Iterator[tuple[str, int]]:
    """Path and length of every container in our objects below `value`."""
    if isinstance(value, (dict, set, list, deque)):
        yield name, len(value)
    elif depth and type(value).__module__.startswith("trimtab_operator"):
        slots = [slot for kind in type(value).__mro__ for slot in getattr(kind, "__slots__", ())]
        for part in {*slots, *getattr(value, "__dict__", {})} - {"api", "_api", "metrics", "cluster", "_cluster"}:
            yield from _tables(f"{name}.{part}", getattr(value, part, None), depth - 1)
