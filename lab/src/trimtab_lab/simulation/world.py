"""A simulated cluster as arrays: machines, bundles with the traffic that their clients want, and what will happen.

A `World` never changes. All its random values were drawn when it was built, so all strategies meet the same world. The
traffic that clients want does not depend on the strategy. The traffic that is served does (`served_load`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from trimtab_lab.simulation.realism import Realism
from trimtab_lab.simulation.scenario import MetricsOptions, SplittingOptions
from trimtab_strategies.model import BrokerTraits, NamespacePolicy
from trimtab_strategies.model.cluster_load import BoolArray, FloatArray, IntArray

CORE = 64 * 2.0**20
"""Bytes/s that one ordinary core serves."""

GBIT = 1e9 / 8
"""Bytes/s of a Gbit/s."""

MINUTE = 60.0
"""Seconds per round: Pulsar sheds once a minute."""

START = 1_000_000.0
"""Epoch seconds of the first round."""

_HALVINGS = 50


@dataclass(frozen=True)
class Pieces:
    """The topics between which bundles can be split; t rows, by bundle.

    bundle: (t,) row of the topic's bundle. place: (t,) hash, ascending within a bundle. share: (t,) ratio of the
    bundle's traffic.
    """

    bundle: IntArray
    place: IntArray
    share: FloatArray


@dataclass(frozen=True)
class Lies:
    """False values in the metrics of brokers, (rounds, n) each.

    factor: on the CPU. full: a false reading of 100 %. missing: CPU not measured. stale: the last report again.
    late: (n,) ratio of a minute by which the window of a broker's rates ends before its round does.
    """

    factor: FloatArray
    full: BoolArray
    missing: BoolArray
    stale: BoolArray
    late: FloatArray


@dataclass(frozen=True)
class World:
    """The input of a run: n brokers, m bundles, `rounds` rounds of a minute.

    cores, speed, nic: (n,) cores of a machine; bytes/s that a core serves; bytes/s of the network in each direction.
    foreign:  (rounds, n) cores that other programs on the machine use.
    present:  (rounds, n) whether the broker exists.
    real:     (rounds, m) bytes/s, in and out, that a bundle's clients want, without noise.
    noise:    (rounds, m) factor on `real`.
    before:   (k, m) factor on the first round's traffic in the k minutes before it; bundles were already measured then.
    message, fanout: (m,) bytes per message; how often each is read.
    sessions: (m,) producers and consumers.
    owner:    (m,) row of the first owner.
    lower, upper: (m,) range of hashes.
    event:    the round in which the last event is over, or `Scenario.settled`.
    failovers: rounds in which another leader takes over.
    rollouts: the rounds of rolling restarts, each with the brokers that have restarted by then.
    """

    brokers: tuple[str, ...]
    cores: FloatArray
    speed: FloatArray
    nic: FloatArray
    foreign: FloatArray
    present: BoolArray
    namespaces: tuple[str, ...]
    namespace: IntArray
    lower: IntArray
    upper: IntArray
    real: FloatArray
    noise: FloatArray
    before: FloatArray
    message: FloatArray
    fanout: FloatArray
    sessions: FloatArray
    owner: IntArray
    pieces: Pieces
    lies: Lies
    metrics: MetricsOptions
    realism: Realism
    traits: dict[str, BrokerTraits]
    policies: dict[str, NamespacePolicy]
    splitting: SplittingOptions | None = None
    landing: int = 1
    event: int = 0
    failovers: frozenset[int] = frozenset()
    rollouts: Mapping[int, frozenset[str]] = field(default_factory=dict)

    @property
    def rounds(self) -> int:
        """Number of rounds."""
        return len(self.present)

    @cached_property
    def share_in(self) -> FloatArray:
        """Ratio of each bundle's traffic that is incoming, (m,)."""
        share: FloatArray = 1 / (1 + self.fanout)
        return share

    @cached_property
    def cost(self) -> FloatArray:
        """Bytes/s of CPU work that a byte/s of each bundle's traffic causes, (m,): 1 without a price per message."""
        cost: FloatArray = 1 + self.realism.message_price / self.message
        return cost

    def work(self, load: FloatArray, origin: IntArray, share: FloatArray) -> FloatArray:
        """Bytes/s of CPU work that `load` (k,) of bundles causes. origin, share: (k,) as in `RunBundles`.

        It is proportional to `load`, unless bundles that grow get cheaper (`Batching.growth`).
        """
        plain: FloatArray = load * self.cost[origin]
        batching = self.realism.batching
        if batching is None or batching.growth == 1:
            return plain
        first = self.real[0][origin] * share * self.cost[origin]
        grown = np.divide(plain, first, out=np.ones(len(plain)), where=first > 0)
        return np.where(first > 0, first * grown**batching.growth, plain)

    @cached_property
    def levels(self) -> FloatArray:
        """The level of each round (rounds,): least usage of the busiest broker if load could be divided freely.

        All load is treated as equal, with the cluster's mean cost and mean shares of incoming and outgoing traffic. At
        level L, a broker has room for what its free CPU and both directions of its network can take:
        L x cores - foreign, L x nic. L is found by bisection.
        """
        total = self.real.sum(axis=1)
        share_in = (self.real @ self.share_in) / total
        cost = self._all_work / total
        width = self.nic / np.maximum(share_in, 1 - share_in)[:, np.newaxis]
        low, high = np.zeros(self.rounds), np.full(self.rounds, 64.0)
        for _ in range(_HALVINGS):
            middle = (low + high) / 2
            spare = self.own_work(middle[:, np.newaxis], self.foreign / self.cores) * self.cores * self.speed
            room = np.minimum(spare / cost[:, np.newaxis], middle[:, np.newaxis] * width) * self.present
            fits = room.sum(axis=1) >= total
            low, high = np.where(fits, low, middle), np.where(fits, middle, high)
        return high

    @property
    def _all_work(self) -> FloatArray:
        """Bytes/s of CPU work of the whole cluster in each round, (rounds,)."""
        if self.realism.batching is None or self.realism.batching.growth == 1:
            return np.asarray(self.real @ self.cost)
        every, whole = np.arange(len(self.owner)), np.ones(len(self.owner))
        return np.array([self.work(load, every, whole).sum() for load in self.real])

    @cached_property
    def targets(self) -> FloatArray:
        """Usage (rounds, n) that each broker should have: the level, or its usage without bundles if that is more."""
        usage: FloatArray = np.maximum(self.used(0.0, self.foreign / self.cores), self.levels[:, np.newaxis])
        return usage

    def used(self, own: FloatArray | float, foreign: FloatArray) -> FloatArray:
        """CPU usage (ratios, any shape) of a broker with `own` plain work and `foreign` load.

        Plain work is proportional to traffic. `Batching` and `Knee` change how usage follows from it.
        """
        batching, knee = self.realism.batching, self.realism.knee
        usage = own + foreign if batching is None else own**batching.exponent + batching.idle + foreign
        if knee is not None:
            usage = usage + (knee.factor - 1) * np.maximum(usage - knee.at, 0)
        return usage

    def own_work(self, usage: FloatArray, foreign: FloatArray) -> FloatArray:
        """The inverse of `used`: plain work (ratio) that makes a `usage` alongside `foreign` load; 0 if none does."""
        batching, knee = self.realism.batching, self.realism.knee
        if knee is not None:
            usage = np.where(usage <= knee.at, usage, knee.at + (usage - knee.at) / knee.factor)
        if batching is None:
            return np.maximum(usage - foreign, 0)
        own: FloatArray = np.maximum(usage - foreign - batching.idle, 0) ** (1 / batching.exponent)
        return own
