"""The large cluster on which decisions are timed. It is the same in Java and here.

For bundle j of broker i, h = ((i * 600 + j) * 2654435761) mod 2^32 and x = h / 2^32. The bundle has the message rate
20 + 80 x, the throughput 1024 times that rate in each direction, and ten topics. The CPU of broker i is 40 + i mod 7
percent. In ``hot`` every tenth broker has CPU 95 % and four times the rates. In ``balanced`` there is no such broker.
Rows of bundles are in random order.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from trimtab_strategies.hash_ring import bundle_names, default_boundaries
from trimtab_strategies.model import Brokers, Bundles, ClusterLoad

HASHED_PER_BROKER = 600


class Size(NamedTuple):
    """A cluster size: brokers, and bundles of each."""

    brokers: int
    per_broker: int

    def __str__(self) -> str:
        return f"{self.brokers}x{self.per_broker}"

    @classmethod
    def parse(cls, text: str) -> Size:
        """A size from its text, such as ``100x600``."""
        brokers, per_broker = text.split("x")
        return cls(int(brokers), int(per_broker))


def workload(size: Size, *, hot: bool) -> ClusterLoad:
    """The cluster that the module describes."""
    n, per = size
    i, j = np.divmod(np.random.default_rng(0).permutation(n * per), per)
    x = (((i * HASHED_PER_BROKER + j) * 2654435761) & 0xFFFFFFFF) / 2**32
    rate = (20 + 80 * x) * np.where(hot & (i % 10 == 0), 4, 1)
    short = np.stack([rate, rate, rate * 1024, rate * 1024], axis=1)
    m, none = n * per, np.zeros(n * per, dtype=bool)
    ranges = [bundle_names(f"t/n{k}", default_boundaries(per)) for k in range(n)]
    bundles = Bundles(
        names=tuple(ranges[broker][k] for broker, k in zip(i.tolist(), j.tolist(), strict=True)),
        namespace=i,
        owner=i,
        short=short,
        long=short,
        topics=np.full(m, 10.0),
        sessions=np.ones(m),
        last_unload=np.full(m, np.nan),
        pinned=none,
        in_flight=none,
        moving_from=np.full(m, -1),
        moving_share=np.zeros(m),
    )
    traffic = np.stack([np.bincount(i, weights=column) for column in short.T], axis=1)
    return ClusterLoad(_brokers(n, traffic, hot=hot), bundles, tuple(f"t/n{k}" for k in range(n)), now=0.0)


def _brokers(n: int, traffic: np.ndarray, *, hot: bool) -> Brokers:
    usage = np.zeros((n, 5))
    usage[:, 0] = np.where(hot & (np.arange(n) % 10 == 0), 95, 40 + np.arange(n) % 7)
    every = np.ones(n, dtype=bool)
    return Brokers(
        names=tuple(f"broker-{k:04d}:8080" for k in range(n)),
        usage=usage,
        limit=np.where(np.arange(5) == 0, 100.0, -1.0) * np.ones((n, 1)),
        traffic=traffic,
        age=np.zeros(n),
        ready=every,
        schedulable=every,
        trusted=every,
    )


def an_hour_later(cluster: ClusterLoad) -> ClusterLoad:
    """A new snapshot of the cluster when all cool-downs are over, with nothing cached."""
    later = cluster.now + 3600
    return replace(cluster, brokers=replace(cluster.brokers), bundles=replace(cluster.bundles), now=later)


def reference(cluster: ClusterLoad) -> dict[int, list[int]]:
    """The first decision of ThresholdShedder with defaults, written plainly: rows of bundles by row of the broker."""
    usage = (cluster.brokers.usage[:, 0].astype(np.float32) / np.float32(100) * np.float32(100)).astype(float) / 100
    average = usage.mean()
    unloads = {}
    for broker in np.flatnonzero(usage >= average + 0.1).tolist():
        wanted = cluster.brokers.traffic[broker, 2:].sum() * (usage[broker] - average - 0.1 + 0.05)
        throughput = np.where(cluster.bundles.owner == broker, cluster.bundles.short[:, 2:].sum(axis=1), -1.0)
        marked, chosen = 0.0, []
        for row in np.argsort(-throughput, kind="stable").tolist():
            if throughput[row] < 0 or marked >= wanted:
                break
            marked += throughput[row]
            chosen.append(row)
        if wanted >= 10 * 1048576:
            unloads[broker] = chosen
    return unloads
