"""A simulated cluster: brokers on machines, bundles with traffic, and load of other programs, seen as `ClusterLoad`.

Usage follows from ownership. A broker needs CPU in proportion to the traffic of its bundles, on top of the load of
other programs. A full machine serves only a part: a saturated broker shows 100 % CPU and less traffic than its clients
want.

Sizes are in bytes/s. Noise is a factor for each round and bundle, (rounds, m), with a mean of about 1. Random numbers
come from the generator that is passed in.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from trimtab_strategies.hash_ring import bundle_names, default_boundaries
from trimtab_strategies.model import CPU, MEMORY, NETWORK_IN, NETWORK_OUT, Brokers, Bundles, ClusterLoad
from trimtab_strategies.model.cluster_load import BoolArray, FloatArray, IntArray
from trimtab_strategies.usage import LONG_WINDOW, SHORT_WINDOW, sum_by_broker, with_sample

CORE = 64 * 2.0**20
"""Bytes/s that one ordinary core serves."""


@dataclass(frozen=True)
class World:
    """The input of a simulation: n brokers, m bundles, `rounds` rounds of a minute.

    cores:    (n,) of each machine.
    speed:    (n,) bytes/s that one of its cores serves.
    foreign:  (rounds, n) cores that other programs on it use.
    present:  (rounds, n) whether the broker exists.
    size:     (m,) bytes/s that a bundle's clients want on average.
    noise:    (rounds, m) factor on the size.
    before:   (k, m) factor on the size in the k minutes before the first round, in which bundles were already measured.
    message:  (m,) bytes per message.
    owner:    (m,) row of the first owner.
    delay:    rounds from a decision until its moves have landed; 1: by the next snapshot.
    """

    cores: FloatArray
    speed: FloatArray
    foreign: FloatArray
    present: BoolArray
    size: FloatArray
    noise: FloatArray
    before: FloatArray
    message: FloatArray
    owner: IntArray
    delay: int = 1

    @property
    def rounds(self) -> int:
        """Number of rounds."""
        return len(self.present)

    @property
    def brokers(self) -> tuple[str, ...]:
        """Names of the brokers."""
        return tuple(f"broker-{row:02d}" for row in range(len(self.cores)))

    def wanted(self, step: int) -> FloatArray:
        """Bytes/s (m,) that the bundles' clients want in a round."""
        load: FloatArray = self.size * self.noise[step]
        return load

    def needed(self, owner: IntArray, load: FloatArray) -> FloatArray:
        """Cores (n,) that the brokers need for their bundles, each carrying `load` (m,) bytes/s."""
        carried = np.bincount(owner + 1, weights=load, minlength=len(self.cores) + 1)[1:]
        cores: FloatArray = carried / self.speed
        return cores

    def served(self, step: int, owner: IntArray) -> FloatArray:
        """Bytes/s (m,) that are served: less than wanted on a full machine, 0 without an owner."""
        return self._through(self.wanted(step), self.foreign[step], owner)

    def served_before(self, minute: int, owner: IntArray) -> FloatArray:
        """The same for a minute before the first round, with the other programs of the first round."""
        return self._through(self.size * self.before[minute], self.foreign[0], owner)

    def _through(self, load: FloatArray, foreign: FloatArray, owner: IntArray) -> FloatArray:
        need = self.needed(owner, load)
        free = np.maximum(self.cores - foreign, 0)
        part = np.minimum(1.0, np.divide(free, need, out=np.ones_like(need), where=need > 0))
        return np.where(owner >= 0, load * part[owner], 0.0)

    def pressure(self, step: int, owner: IntArray) -> FloatArray:
        """Usage (n,) as ratio that serving everything would need, without noise; above 1 on a full machine."""
        usage: FloatArray = (self.needed(owner, self.size) + self.foreign[step]) / self.cores
        return usage

    def level(self, step: int) -> FloatArray:
        """`pressure` (n,) if load could be divided freely, with the busiest broker as idle as possible.

        Water filling: all present brokers are at one level, except those that other programs alone keep above it.
        """
        there = self.present[step]
        cores, speed, foreign = self.cores[there], self.speed[there], self.foreign[step][there]
        floor = foreign / cores
        order = np.argsort(floor, kind="stable")
        room = np.cumsum((cores * speed)[order])
        filled = (float(self.size.sum()) + np.cumsum((foreign * speed)[order])) / room
        covered = np.append(floor[order][1:], np.inf) >= filled
        level = float(filled[np.argmax(covered)])
        usage: FloatArray = np.maximum(self.foreign[step] / self.cores, level)
        return usage

    def imbalance(self, step: int, owner: IntArray) -> float:
        """Imbalance in percent points, without noise: the range of the brokers' distances from their `level`.

        Among equal machines without other programs, this is the range of their usage.
        """
        away = (self.pressure(step, owner) - self.level(step))[self.present[step]]
        return float(away.max() - away.min()) * 100 if len(away) else 0.0


def skewed_sizes(rng: np.random.Generator, total: FloatArray, per_broker: int, skew: float = 0.8) -> FloatArray:
    """Sizes of each broker's bundles, (n * per_broker,), that sum to `total` (n) bytes/s.

    skew: standard deviation of a size's logarithm. 0 makes all equal. With 0.8 the largest of 60 is about six times the
    average.
    """
    raw = rng.lognormal(0.0, skew, (len(total), per_broker))
    sizes: FloatArray = (raw / raw.sum(axis=1, keepdims=True) * total[:, np.newaxis]).ravel()
    return sizes


def steady(rounds: int, bundles: int) -> FloatArray:
    """Factors without noise."""
    return np.ones((rounds, bundles))


def jitter(rng: np.random.Generator, rounds: int, bundles: int, spread: float) -> FloatArray:
    """Independent factors per round, uniform within `spread` (ratio 0-1) of 1."""
    return rng.uniform(1 - spread, 1 + spread, (rounds, bundles))


def bursts(rng: np.random.Generator, rounds: int, groups: FloatArray, chance: float, factor: float) -> FloatArray:
    """Factors with random bursts: a whole group carries `factor` times as much for one round.

    groups: (m,) number of each bundle's group, which bursts together (a tenant's traffic). chance: ratio 0-1 per round.
    """
    bursting = rng.random((rounds, int(groups.max(initial=0)) + 1)) < chance
    factors: FloatArray = np.where(bursting, factor, 1.0)[:, groups.astype(np.int64)]
    return factors


MINUTE = 60.0
"""Seconds per round: Pulsar sheds once a minute."""


START = 1_000_000.0
"""Epoch seconds of the first round."""


NIC = 25e9 / 8
"""Bytes/s of a machine's network in each direction: 25 Gbit/s."""


RECEIVED = 1 / 3
"""Ratio of a bundle's traffic that is incoming. The rest is outgoing, as every message has two readers."""


@dataclass
class MeasuredAverages:
    """The averages of the bundles' traffic so far: bytes/s (m,) over the short and the long window."""

    short: FloatArray
    long: FloatArray
    count: int = 0

    def see(self, served: FloatArray) -> None:
        """Add one sample, (m,) bytes/s."""
        self.short, _ = with_sample(self.short, self.count, served, SHORT_WINDOW)
        self.long, _ = with_sample(self.long, self.count, served, LONG_WINDOW)
        self.count += 1


def traffic(load: FloatArray, message: FloatArray) -> FloatArray:
    """`TRAFFIC` (k, 4) for `load` (k,) bytes/s in messages of `message` (k,) bytes."""
    coming, going = load * RECEIVED, load * (1 - RECEIVED)
    return np.stack([coming / message, going / message, coming, going], axis=1)


class Camera:
    """Takes snapshots of one simulated cluster."""

    def __init__(self, world: World) -> None:
        """Name the bundles once."""
        self.world = world
        self._names = bundle_names("public/simulated", default_boundaries(len(world.size)))
        self._zeros = np.zeros(len(world.size))

    def snapshot(
        self, step: int, owner: IntArray, moving_from: IntArray, last_unload: FloatArray, measured: MeasuredAverages
    ) -> ClusterLoad:
        """The cluster after round `step`. owner: (m,) desired owners. moving_from: (m,) source of open moves, otherwise
        -1.
        """
        m = len(owner)
        nothing, first = self._zeros.astype(bool), np.zeros(m, dtype=np.int64)
        bundles = Bundles(
            names=self._names,
            namespace=first,
            owner=owner,
            short=traffic(measured.short, self.world.message),
            long=traffic(measured.long, self.world.message),
            topics=self._zeros + 10,
            sessions=self._zeros + 20,
            last_unload=last_unload,
            pinned=nothing,
            in_flight=moving_from >= 0,
            moving_from=moving_from,
            moving_share=(moving_from >= 0).astype(np.float64),
        )
        serving = np.where(moving_from >= 0, moving_from, owner)
        return ClusterLoad(self._brokers(step, serving), bundles, ("public/simulated",), START + MINUTE * step)

    def _brokers(self, step: int, owner: IntArray) -> Brokers:
        world, n = self.world, len(self.world.cores)
        served = world.served(step, owner)
        carried = traffic(served, world.message)
        totals = sum_by_broker(owner, carried, n)
        there = world.present[step]
        usage = np.zeros((n, 5))
        usage[:, CPU] = np.minimum(world.cores, world.foreign[step] + world.needed(owner, served))
        usage[:, MEMORY] = 3.0
        usage[:, NETWORK_IN], usage[:, NETWORK_OUT] = totals[:, 2], totals[:, 3]
        usage[~there] = np.nan
        limit = np.stack([world.cores, np.full(n, 10.0), np.full(n, 10.0), np.full(n, NIC), np.full(n, NIC)], axis=1)
        age = np.where(there, 0.0, np.inf)
        return Brokers(world.brokers, usage, limit, totals, age, ready=there, schedulable=there, trusted=there)
