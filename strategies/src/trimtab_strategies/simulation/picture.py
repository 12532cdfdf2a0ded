"""How the operator, or Pulsar's leader, sees the world: a `ClusterLoad` a round."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from trimtab_strategies.averages import LONG_WINDOW, SHORT_WINDOW, with_sample
from trimtab_strategies.model import CPU, MEMORY, NETWORK_IN, NETWORK_OUT, Brokers, Bundles, ClusterLoad
from trimtab_strategies.model.load import FloatArray, IntArray
from trimtab_strategies.simulation.world import World
from trimtab_strategies.topics import bundle_names, default_boundaries
from trimtab_strategies.usage import sum_by_broker

MINUTE = 60.0
"""Seconds a round takes: Pulsar sheds once a minute."""

START = 1_000_000.0
"""Epoch seconds of the first round."""

NIC = 25e9 / 8
"""Bytes/s of a machine's network in each direction: 25 Gbit/s."""

RECEIVED = 1 / 3
"""Ratio of a bundle's traffic that comes in; the rest goes out, as every message has two readers."""


@dataclass
class Measured:
    """The averages of the bundles' traffic so far: bytes/s (m,) over the short and the long window."""

    short: FloatArray
    long: FloatArray
    count: int = 0

    def see(self, served: FloatArray) -> None:
        """One more sample, (m,) bytes/s."""
        self.short, _ = with_sample(self.short, self.count, served, SHORT_WINDOW)
        self.long, _ = with_sample(self.long, self.count, served, LONG_WINDOW)
        self.count += 1


def traffic(load: FloatArray, message: FloatArray) -> FloatArray:
    """`TRAFFIC` (k, 4) of what carries `load` (k,) bytes/s in messages of `message` (k,) bytes."""
    coming, going = load * RECEIVED, load * (1 - RECEIVED)
    return np.stack([coming / message, going / message, coming, going], axis=1)


class Camera:
    """Takes pictures of one world. Names are made once."""

    def __init__(self, world: World) -> None:
        """Name the bundles."""
        self.world = world
        self._names = bundle_names("public/simulated", default_boundaries(len(world.size)))
        self._zeros = np.zeros(len(world.size))

    def picture(
        self, turn: int, owner: IntArray, moving_from: IntArray, last_unload: FloatArray, measured: Measured
    ) -> ClusterLoad:
        """The cluster after round `turn`: `owner` (m,) has been serving, moves with `moving_from` (m,) are open."""
        m = len(owner)
        nothing, nobody = self._zeros.astype(bool), np.zeros(m, dtype=np.int64)
        bundles = Bundles(
            names=self._names,
            namespace=nobody,
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
        return ClusterLoad(self._brokers(turn, serving), bundles, ("public/simulated",), START + MINUTE * turn)

    def _brokers(self, turn: int, owner: IntArray) -> Brokers:
        world, n = self.world, len(self.world.cores)
        served = world.served(turn, owner)
        carried = traffic(served, world.message)
        totals = sum_by_broker(owner, carried, n)
        there = world.present[turn]
        usage = np.zeros((n, 5))
        usage[:, CPU] = np.minimum(world.cores, world.foreign[turn] + world.needed(owner, served))
        usage[:, MEMORY] = 3.0
        usage[:, NETWORK_IN], usage[:, NETWORK_OUT] = totals[:, 2], totals[:, 3]
        usage[~there] = np.nan
        limit = np.stack([world.cores, np.full(n, 10.0), np.full(n, 10.0), np.full(n, NIC), np.full(n, NIC)], axis=1)
        age = np.where(there, 0.0, np.inf)
        return Brokers(world.brokers, usage, limit, totals, age, ready=there, schedulable=there, trusted=there)
