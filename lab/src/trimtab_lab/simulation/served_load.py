"""The part of the wanted traffic that brokers serve, and what it costs them: CPU, network and saturation.

A broker needs CPU in proportion to the traffic and the messages of its bundles, on top of the load of other programs. A
full machine serves only a part: it shows 100 % CPU (or a full network) and less traffic than its clients want.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from trimtab_lab.simulation.run_bundles import RunBundles
from trimtab_lab.simulation.world import MINUTE, World
from trimtab_strategies.model.cluster_load import FloatArray, IntArray


@dataclass(frozen=True)
class Served:
    """What was served in one round. load: (m,) bytes/s, in and out. cpu: (n,) cores used, with other programs.

    wanted, lost: bytes/s of the whole cluster that clients wanted, and that were neither served nor kept for later.
    """

    load: FloatArray
    cpu: FloatArray
    wanted: float
    lost: float


def by_broker(owner: IntArray, values: FloatArray, count: int) -> FloatArray:
    """Sum of `values` (m,) by broker (count,); those of broker -1 are left out."""
    sums = np.bincount(owner + 1, weights=values, minlength=count + 1)[1:]
    return sums.astype(np.float64, copy=False)  # without bundles numpy returns integers


def usage(world: World, state: RunBundles, load: FloatArray, foreign: FloatArray, serving: IntArray) -> FloatArray:
    """Usage (n,) of the busiest resource (ratio) if all `load` (m,) were served; above 1 if that is impossible."""
    n, origin = len(world.cores), state.origin
    coming = load * world.share_in[origin]
    work = by_broker(serving, world.work(load, origin, state.share), n) / world.speed
    cpu = world.used(work / world.cores, foreign / world.cores)
    into = by_broker(serving, coming, n)
    out = by_broker(serving, load - coming, n)
    busiest: FloatArray = np.maximum(cpu, np.maximum(into, out) / world.nic)
    return busiest


def pressure(world: World, step: int, state: RunBundles) -> FloatArray:
    """`usage` (n,) of the load without noise, with the current owners."""
    return usage(world, state, world.real[step][state.origin] * state.share, world.foreign[step], state.serving)


def serve(world: World, step: int, state: RunBundles) -> Served:
    """Serve a round, and keep in `state` what waits as backlog."""
    wanted = world.real[step][state.origin] * world.noise[step][state.origin] * state.share
    return _serve(world, world.foreign[step], state, wanted)


def serve_before(world: World, minute: int, state: RunBundles) -> Served:
    """Serve a minute before the first round, with the other programs of the first round."""
    return _serve(world, world.foreign[0], state, world.real[0] * world.before[minute])


def _serve(world: World, foreign: FloatArray, state: RunBundles, wanted: FloatArray) -> Served:
    reconnect = world.realism.reconnect
    owned = state.serving >= 0
    up = np.where(owned, 1 - state.gap / MINUTE, 0.0)
    late = np.zeros_like(wanted)
    if reconnect is not None:
        late = np.where(owned, np.minimum(state.backlog / MINUTE, reconnect.catch_up * wanted), 0.0)
    tried = wanted * up + late
    arriving = _arrivals(world, state)
    part, cpu = _saturate(world, foreign + arriving, state, tried)
    load = tried * part[state.serving]
    if reconnect is not None and reconnect.catch_up > 0:
        state.backlog += (wanted - load) * MINUTE
        np.maximum(state.backlog, 0, out=state.backlog)
        dropped = float(state.backlog.sum()) * reconnect.give_up / MINUTE
        state.backlog *= 1 - reconnect.give_up
        return Served(load, cpu, float(wanted.sum()), dropped)
    count = owned if reconnect is None else np.ones_like(owned)
    return Served(load, cpu, float(wanted[count].sum()), float((wanted - load)[count].sum()))


def _arrivals(world: World, state: RunBundles) -> FloatArray:
    """Cores (n,) that the clients of bundles that have just landed take."""
    landed = (state.since == 0) & (state.serving >= 0)
    seconds = world.sessions[state.origin] * state.share * landed * world.realism.client_cpu
    return by_broker(state.serving, seconds, len(world.cores)) / MINUTE


def _saturate(world: World, foreign: FloatArray, state: RunBundles, tried: FloatArray) -> tuple[FloatArray, FloatArray]:
    """The part (n + 1,) of the traffic that each broker serves (0 for no broker), and the cores (n,) that it uses."""
    n, origin, serving = len(world.cores), state.origin, state.serving
    coming = tried * world.share_in[origin]
    need = by_broker(serving, world.work(tried, origin, state.share) * _cold(world, state), n) / world.speed
    into, out = by_broker(serving, coming, n), by_broker(serving, tried - coming, n)
    free = world.cores * world.own_work(np.ones(n), foreign / world.cores)
    part = np.ones(n)
    for room, asked in ((free, need), (world.nic, into), (world.nic, out)):
        part = np.minimum(part, np.divide(room, asked, out=np.ones(n), where=asked > 0))
    cpu = np.minimum(world.used(need * part / world.cores, foreign / world.cores), 1) * world.cores
    return np.append(part, 0.0), cpu


def _cold(world: World, state: RunBundles) -> FloatArray | float:
    """Factor on the CPU of bundles whose cache is not warm yet."""
    cache = world.realism.cold_cache
    if cache is None:
        return 1.0
    factor: FloatArray = 1 + cache.cost * np.maximum(1 - state.since / cache.minutes, 0)
    return factor


def latency(world: World, usage: FloatArray) -> FloatArray:
    """Publish latency (milliseconds, 99th percentile) at a usage (ratio, any shape), as of a queue; at most 1 s."""
    slow: FloatArray = np.minimum(world.realism.latency / np.maximum(1 - usage, 1e-9), 1000.0)
    return slow
