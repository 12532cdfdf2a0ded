"""One cycle: observe -> decide -> act, as a sequence of awaits that each say how long they took.

The heavy parts run off the event loop: building 60,000 rows and deciding in a thread, measuring in the source's own.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, TypeVar, cast

import numpy as np
import numpy.typing as npt

from trimtab_operator.actuators import Actuator, Written
from trimtab_operator.cluster.bundles import BundleRecord
from trimtab_operator.control.newborn import with_expected
from trimtab_operator.control.topology import Picture, topology
from trimtab_operator.control.turn import Turn
from trimtab_pipeline.source import Topology
from trimtab_strategies.balancer import assign, decide
from trimtab_strategies.evacuating import NO_EVACUATION, Evacuation
from trimtab_strategies.model import RESOURCES, TRAFFIC, Brokers, ClusterLoad, Decision, Move, Reason

T = TypeVar("T")
U = TypeVar("U")

WRITERS = 32
"""Writes under way at once: beyond it a kube-apiserver gains latency, not rate."""


@dataclass(slots=True)
class Stopwatch:
    """Seconds by phase."""

    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Add the time of the block to the phase `name`."""
        begun = time.monotonic()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.monotonic() - begun


@dataclass(frozen=True, slots=True)
class Look:
    """The load as measured, and the record behind each bundle of it (Pulsar's spelling -> record).

    evacuation: what is to be moved whatever the load says.
    """

    load: ClusterLoad
    records: dict[str, BundleRecord]
    evacuation: Evacuation = NO_EVACUATION


async def look(picture: Picture, turn: Turn, at: float, watch: Stopwatch) -> Look:
    """Measure the cluster as of `at`. Raises `SourceUnavailableError`."""
    with watch.phase("picture"):
        rows, records = await _rows(picture, turn)
    observation = await asyncio.wrap_future(turn.source.observe(rows, at))
    watch.seconds.update(observation.seconds)
    load = _asked(observation.load, picture)
    seen = Look(load, dict(zip(rows.bundles, records, strict=True)), picture.departures.evacuation(load))
    return without_quarantined(seen, turn.remembered.quarantine)


def without_quarantined(seen: Look, quarantine: Collection[str]) -> Look:
    """What was seen, with the bundles (names of objects) that balancing leaves alone withheld from it."""
    if not quarantine:
        return seen
    withheld = {full: Reason.QUARANTINED for full, record in seen.records.items() if record.name in quarantine}
    return replace(seen, load=replace(seen.load, withheld=withheld))


async def unmeasured_look(picture: Picture, turn: Turn, at: float) -> Look:
    """The cluster as the resources describe it, with no load: enough to give homeless bundles an owner."""
    rows, records = await _rows(picture, turn)
    known = dict(zip(rows.bundles, records, strict=True))
    return Look(_asked(unmeasured(rows, at), picture), known, picture.departures.evacuation())


def _asked(load: ClusterLoad, picture: Picture) -> ClusterLoad:
    """The load with what a source can't know: what people ask and say, and what was cut out of which bundle."""
    return with_expected(replace(load, policies=picture.policies, traits=picture.traits), picture.expected)


async def _rows(picture: Picture, turn: Turn) -> tuple[Topology, tuple[BundleRecord, ...]]:
    return await asyncio.to_thread(topology, picture, window=turn.settings.prometheus.window)


async def plan(seen: Look, turn: Turn, watch: Stopwatch) -> Decision:
    """What the policy's pair would do about what was seen."""
    settings, now = turn.settings, seen.load.now
    moved = turn.remembered.moved_last_hour(now)
    asked = partial(decide, moved_last_hour=moved, evacuation=seen.evacuation)
    with watch.phase("decide"):
        return await asyncio.to_thread(asked, seen.load, settings.pair, settings.limits, turn.memory, _rng(now))


async def house(seen: Look, names: Sequence[str], reason: Reason, turn: Turn) -> Decision:
    """Owners for the bundles `names` (Pulsar's spelling) that have none."""
    settings, now = turn.settings, seen.load.now
    rows = np.array([seen.load.bundles.index[name] for name in names], dtype=np.int64)
    pair, limits, rng = settings.pair, settings.limits, _rng(now)
    asked = partial(assign, reason=reason, selection=pair.selection, restarted=seen.evacuation.restarted)
    return await asyncio.to_thread(asked, seen.load, rows, pair.placement, limits, turn.memory, rng)


def _rng(now: float) -> np.random.Generator:
    """Seeded by the evaluation time, so that a cycle can be repeated from its history."""
    return np.random.default_rng(int(now * 1000))


async def at_most(count: int, what: Callable[[T], Awaitable[U]], items: Sequence[T]) -> list[U]:
    """``what(item)`` for each item, in their order, `count` of them under way at once however many there are.

    The first exception ends it and is raised.
    """
    done: list[U | None] = [None] * len(items)
    left = iter(enumerate(items))

    async def work() -> None:
        for i, item in left:
            done[i] = await what(item)

    workers = [asyncio.create_task(work()) for _ in range(min(count, len(items)))]
    try:
        await asyncio.gather(*workers)
    finally:
        for worker in workers:
            worker.cancel()
    return cast("list[U]", done)


async def carry_out(moves: Sequence[Move], seen: Look, actuator: Actuator, watch: Stopwatch) -> list[Written]:
    """Write every move, a bounded number at a time, each against the bundle as it was when the plan was made."""

    async def one(move: Move) -> Written:
        return await actuator.wish(seen.records[move.bundle], move.destination, move.reason)

    with watch.phase("act"):
        return await at_most(WRITERS, one, moves)


def unmeasured(rows: Topology, at: float) -> ClusterLoad:
    """A `ClusterLoad` of which nothing was measured: brokers untrusted, all traffic NaN."""
    n, m = len(rows.brokers), len(rows.bundles)
    brokers = Brokers(
        names=rows.brokers,
        usage=_unknown(n, len(RESOURCES)),
        limit=rows.declared_limit,
        traffic=_unknown(n, len(TRAFFIC)),
        age=np.full(n, np.inf),
        ready=rows.ready,
        schedulable=rows.schedulable,
        trusted=np.zeros(n, dtype=bool),
    )
    traffic = _unknown(m, len(TRAFFIC))
    bundles = rows.carrying(short=traffic, long=traffic, topics=_unknown(m), sessions=_unknown(m))
    return ClusterLoad(brokers, bundles, rows.namespaces, at)


def _unknown(*shape: int) -> npt.NDArray[np.float64]:
    return np.full(shape, np.nan)


async def ended(*tasks: asyncio.Future[Any]) -> None:
    """Cancel what is not done, and see it end."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
