"""A cluster for tests of Trim, with a known cost of a byte on each broker, and of each broker's other programs."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from trimtab_strategies.hash_ring import bundle_names, default_boundaries
from trimtab_strategies.model import CPU, NETWORK_IN, NETWORK_OUT, Brokers, Bundles, ClusterLoad, Reason
from trimtab_strategies.model.cluster_load import BoolArray, FloatArray, IntArray
from trimtab_strategies.protocols import Shedding
from trimtab_strategies.shedding.trim.samples import CycleSamples, SampleRing
from trimtab_strategies.shedding.trim.shedder import Trim, TrimParams

START = 1_000_000.0
"""Time (epoch seconds) of the first minute."""

COST = 1e-8
"""Cores that one byte/s costs on a broker of speed 1: 100 MB/s is a core."""

CORES = 10.0
"""Cores of a broker unless a test says otherwise. 10 MB/s are then a percentage point."""

POINT = CORES / COST / 100
"""Bytes/s that are one percentage point of such a broker."""


@dataclass
class World:
    """n brokers, m bundles.

    load: (m,) bytes/s in and out together, a third of it in. owner: (m,) row, -1 none. cores: (n,) declared.
    cost: (n,) cores per byte/s. background: (n,) cores of other programs. nic: (n, 2) bytes/s, 0 not measured.
    clients: (m,). size: (m,) bytes of a message. message: bytes that cost as much as one message. long: (m,) bytes/s.
    moved: (m,) epoch seconds of the last move.
    """

    load: FloatArray
    owner: IntArray
    cores: FloatArray
    cost: FloatArray
    background: FloatArray
    nic: FloatArray
    clients: FloatArray
    size: FloatArray
    moved: FloatArray
    long: FloatArray
    message: float = 0.0
    brokers: tuple[str, ...] = ()
    bundles: tuple[str, ...] = ()
    now: float = START
    incoming: FloatArray = field(default_factory=lambda: np.full(1, 1 / 3))

    @classmethod
    def of(cls, *points: Sequence[float], **given: Any) -> World:
        """A world of equal brokers. points: for each broker, the load of each of its bundles, in percent of its CPU."""
        n = len(points)
        load = np.array([value for own in points for value in own], dtype=np.float64) * POINT
        owner = np.array([row for row, own in enumerate(points) for _ in own], dtype=np.int64)
        m = len(load)
        columns: dict[str, Any] = {
            "cores": np.full(n, CORES),
            "cost": np.full(n, COST),
            "background": np.zeros(n),
            "nic": np.zeros((n, 2)),
            "clients": np.full(m, 20.0),
            "size": np.full(m, 1000.0),
            "moved": np.full(m, np.nan),
            "long": load.copy(),
            "brokers": tuple(f"broker-{row}" for row in range(n)),
            "bundles": tuple(bundle_names("public/default", default_boundaries(m))) if m else (),
        }
        return cls(load=load, owner=owner, **{**columns, **given})

    def traffic(self, load: FloatArray) -> FloatArray:
        """Columns `TRAFFIC` (m, 4) of bundles that carry `load` (m,) bytes/s."""
        into, rate = load * self.incoming, load / self.size
        return np.stack([rate / 3, rate * 2 / 3, into, load - into], axis=1)

    def cpu(self, load: FloatArray) -> FloatArray:
        """Cores (n,) that the brokers really use."""
        work = load * (1 + self.message / self.size)
        used: FloatArray = self.background + self.cost * self.carried(work)
        return np.minimum(used, self.cores)

    def carried(self, load: FloatArray) -> FloatArray:
        """Sum (n,) of `load` (m,) by owner."""
        n = len(self.cores)
        total: FloatArray = np.bincount(self.owner + 1, weights=load, minlength=n + 1)[1:].astype(np.float64)
        return total

    def points(self, load: FloatArray | None = None) -> FloatArray:
        """Percent (n,) of CPU that the brokers use."""
        used: FloatArray = 100 * self.cpu(self.load if load is None else load) / self.cores
        return used

    def cluster(self, factor: FloatArray | float = 1.0, *, cpu: FloatArray | None = None) -> ClusterLoad:
        """The current snapshot; the bundles carry `factor` times their load. cpu: (n,) cores that metrics show."""
        n, m = len(self.cores), len(self.load)
        load = self.load * factor
        newest = self.traffic(load)
        traffic = np.stack([self.carried(newest[:, column]) for column in range(4)], axis=1)
        usage, limit = np.zeros((n, 5)), np.zeros((n, 5))
        usage[:, CPU], limit[:, CPU] = self.cpu(load) if cpu is None else cpu, self.cores
        usage[:, [NETWORK_IN, NETWORK_OUT]] = traffic[:, 2:]
        limit[:, [NETWORK_IN, NETWORK_OUT]] = self.nic
        average = self.traffic(self.long)
        return ClusterLoad(
            brokers=Brokers(
                names=self.brokers,
                usage=usage,
                limit=limit,
                traffic=traffic,
                age=np.zeros(n),
                ready=np.ones(n, dtype=bool),
                schedulable=np.ones(n, dtype=bool),
                trusted=np.ones(n, dtype=bool),
            ),
            bundles=Bundles(
                names=self.bundles,
                namespace=np.zeros(m, dtype=np.int64),
                owner=self.owner.copy(),
                short=average,
                long=average,
                topics=np.ones(m),
                sessions=self.clients,
                last_unload=self.moved.copy(),
                pinned=np.zeros(m, dtype=bool),
                in_flight=np.zeros(m, dtype=bool),
                moving_from=np.full(m, -1, dtype=np.int64),
                moving_share=np.zeros(m),
                newest=newest,
            ),
            namespaces=("public/default",),
            now=self.now,
        )

    def land(self, shedding: Shedding) -> int:
        """Make the moves; returns their number."""
        count = 0
        for unload in shedding.unloads:
            self.owner[unload.bundles] = unload.destination
            self.owner[unload.returned] = unload.broker
            rows = [*unload.bundles.tolist(), *unload.returned.tolist()]
            self.moved[rows] = self.now
            count += len(rows)
        return count


@dataclass
class Play:
    """Trim on a world, minute by minute; each plan has landed by the next minute.

    moves: number of moves in each minute. last: the latest answer. memory: the memory, read back from JSON.
    """

    world: World
    params: TrimParams = field(default_factory=TrimParams)
    ring: SampleRing = field(default_factory=SampleRing)
    memory: Mapping[str, Any] = field(default_factory=dict)
    moves: list[int] = field(default_factory=list)
    last: Shedding = field(default_factory=Shedding)
    sheddable: BoolArray | None = None

    def seen(self, factor: FloatArray | float = 1.0, *, cpu: FloatArray | None = None) -> ClusterLoad:
        """The snapshot of this minute, with the recent samples in `ring`."""
        return self.ring.add(self.world.cluster(factor, cpu=cpu))

    def minute(self, factor: FloatArray | float = 1.0, *, cpu: FloatArray | None = None) -> Shedding:
        """Measure, decide and land the plan; one minute passes."""
        return self.decided(self.seen(factor, cpu=cpu))

    def decided(self, cluster: ClusterLoad) -> Shedding:
        """Decide on `cluster` and land the plan; a minute passes."""
        movable = np.ones(len(self.world.load), dtype=bool) if self.sheddable is None else self.sheddable
        self.last = Trim(self.params).shed(cluster, movable, self.memory)
        self.memory = json.loads(json.dumps(self.last.memory, allow_nan=False))
        self.moves.append(self.world.land(self.last))
        self.world.now += 60
        return self.last

    def minutes(self, count: int, factor: FloatArray | float = 1.0) -> int:
        """Run `count` minutes of the same load; returns the number of moves in them."""
        for _ in range(count):
            self.minute(factor)
        return sum(self.moves[-count:])

    def first_move(self, within: int, factor: FloatArray | float = 1.0) -> int | None:
        """Run minutes until the first plan, at most `within`; returns their number, or None without a plan."""
        for minute in range(1, within + 1):
            if self.minute(factor).unloads:
                return minute
        return None

    @property
    def reasons(self) -> list[Reason]:
        """Why the latest answer moves nothing."""
        return [held.reason for held in self.last.held_back]

    @property
    def text(self) -> str:
        """The explanation in the latest answer."""
        return "; ".join(held.detail for held in self.last.held_back)


def spread(total: float, count: int, seed: int = 0, skew: float = 0.8) -> list[float]:
    """`count` unequal loads that sum to `total`."""
    drawn = np.random.default_rng(seed).lognormal(0, skew, count)
    found: list[float] = (total * drawn / drawn.sum()).tolist()
    return found


def unmeasured(cluster: ClusterLoad, *rows: int) -> ClusterLoad:
    """The cluster with brokers whose CPU was not measured."""
    usage = cluster.brokers.usage.copy()
    usage[list(rows), CPU] = np.nan
    return replace(cluster, brokers=replace(cluster.brokers, usage=usage))


def skewed(points: float = 85, bundles: int = 20) -> World:
    """Four brokers at 40 % and one at `points`."""
    return World.of(*(spread(40, bundles, seed) for seed in range(4)), spread(points, bundles, 9))


def cycle_samples(cluster: ClusterLoad) -> CycleSamples:
    """The samples that a cycle keeps of this snapshot."""
    return CycleSamples.of(cluster.now, cluster.brokers, cluster.bundles.names, cluster.bundles.newest)
