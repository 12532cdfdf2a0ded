"""Looks at brokers while a story is played: who serves each bundle, what each broker uses, what was acknowledged.

By the admin REST, the kernel and the clients' own counters, the same for whoever balances.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from http.client import HTTPException
from pathlib import Path
from typing import Self

from contest_story import Topic
from trimtab_testbed.pulsar.clients import ClientTraffic
from trimtab_testbed.pulsar.cluster import PulsarCluster
from trimtab_testbed.pulsar.rest import PulsarRestError

LOOK_EVERY = 0.5
"""Seconds between two looks at who serves what."""

COUNT_EVERY = 1.0
"""Seconds between two looks at the counters."""

_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Change:
    """At `at` (epoch seconds) a bundle (row) was first seen at `target`; both are rows of brokers.

    Both are the same when it was let go and came back.
    """

    at: float
    bundle: int
    source: int
    target: int


@dataclass(frozen=True, slots=True)
class Row:
    """Counters at a time (epoch seconds): messages acknowledged by topic, CPU seconds by broker, owners by bundle."""

    at: float
    acked: tuple[int, ...]
    cpu: tuple[float, ...]
    owners: tuple[int, ...]


@dataclass
class Watch:
    """Context manager. `rows` and `changes` are what it saw so far; `load` the load averages of the machine."""

    cluster: PulsarCluster
    bundles: Sequence[str]
    topics: Sequence[Topic]
    traffic: ClientTraffic
    rows: list[Row] = field(default_factory=list)
    changes: list[Change] = field(default_factory=list)
    load: list[float] = field(default_factory=list)
    _owners: dict[int, int] = field(default_factory=dict)
    _free: set[int] = field(default_factory=set)
    _done: threading.Event = field(default_factory=threading.Event)
    _threads: list[threading.Thread] = field(default_factory=list)

    def __enter__(self) -> Self:
        self._look()
        jobs = ((self._look, LOOK_EVERY), (self._count, COUNT_EVERY))
        self._threads = [threading.Thread(target=self._follow, args=job, daemon=True) for job in jobs]
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        for thread in self._threads:
            thread.join()

    def owners(self) -> dict[int, int]:
        """Row of the broker that serves it, or served it last, by row of the bundle."""
        return dict(self._owners)

    def _follow(self, look: Callable[[], None], every: float) -> None:
        due = time.monotonic()
        while not self._done.wait(max(0.0, due - time.monotonic())):
            look()
            due = max(due + every, time.monotonic())

    def _look(self) -> None:
        """See who serves what; when that is not answered, this look is left out."""
        try:
            owners = self.cluster.rest(0).owners(*{bundle.rpartition("/")[0] for bundle in self.bundles})
        except (OSError, HTTPException, PulsarRestError):
            return
        rows, ids = {name: row for row, name in enumerate(self.bundles)}, self.cluster.ids
        self._note(time.time(), {rows[b]: ids.index(owner) for b, owner in owners.items() if b in rows})

    def _note(self, now: float, seen: dict[int, int]) -> None:
        for bundle, broker in seen.items():
            before = self._owners.get(bundle)
            if before is not None and (before != broker or bundle in self._free):
                self.changes.append(Change(now, bundle, before, broker))
            self._owners[bundle] = broker
        self._free = self._owners.keys() - seen.keys()

    def _count(self) -> None:
        acked = tuple(self.traffic.counts([topic.name]).acked for topic in self.topics)
        cpu = tuple(cpu_seconds(self.cluster.pid(broker)) for broker in range(len(self.cluster.ids)))
        owners = tuple(self._owners.get(bundle, -1) for bundle in range(len(self.bundles)))
        self.rows.append(Row(time.time(), acked, cpu, owners))
        self.load.append(os.getloadavg()[0])


def cpu_seconds(pid: int) -> float:
    """Seconds of CPU that a process has used. Raises `OSError` when it has ended."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS
