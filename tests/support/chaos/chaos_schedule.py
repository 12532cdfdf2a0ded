"""The events of a chaos round: drawn from a seed before the round begins, and printed.

The same seed gives the same schedule everywhere. The leader and the bundles are known only when an event begins. So an
event names no operator, only "the leader", and a bundle by its relative position in the sorted names (`Event.pick`).
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

BROKERS = tuple(f"pulsar-broker-{number}" for number in range(4))
QUIET = 2.0
"""Seconds without events at the beginning."""

_EVERY = 0.5
"""Mean seconds between two events."""


class Kind(StrEnum):
    """Kinds of events; most of them end after a while."""

    KILL_LEADER = "kill -9 the leader"
    KILL_STANDBY = "kill -9 the standby"
    KILL_BOTH = "kill -9 both operators"
    END_LEADER = "SIGTERM to the leader"
    PAUSE_LEADER = "SIGSTOP the leader"
    PAUSE_STANDBY = "SIGSTOP the standby"
    CUT_LEADER = "cut the leader off from the API server"
    KILL_JVM = "kill -9 the leader's JVM"
    KILL_APISERVER = "kill -9 the API server"
    PAUSE_APISERVER = "SIGSTOP the API server"
    KILL_ETCD = "kill -9 etcd"
    PAUSE_ETCD = "SIGSTOP etcd"
    KILL_PROMETHEUS = "kill -9 Prometheus"
    PAUSE_PROMETHEUS = "SIGSTOP Prometheus"
    PROMETHEUS_DOWN = "Prometheus: connections close"
    PROMETHEUS_SLOW = "Prometheus: answers too late"
    PROMETHEUS_BROKEN = "Prometheus: answers break off"
    PROMETHEUS_PARTIAL = "Prometheus: half of the series"
    SOURCE_DOWN = "no load is known"
    KILL_BROKER = "crash"
    LOSE_POD = "crash, and the pod is deleted"
    DEAFEN_BROKER = "ignores desired owners"
    MUTE_BROKER = "shows no metrics"
    SHIFT_LOAD = "load shifts"
    MOVE = "a person moves a bundle"
    PIN = "a person pins a bundle"
    DRAIN = "a person drains"
    SPLIT = "a person divides a bundle"
    PAUSE_POLICY = "a person pauses the policy"
    DRY_RUN = "a person sets mode DryRun"
    APPROVE = "a person sets mode Approve, and approves"
    OTHER_SHEDDER = "a person chooses another shedder"
    DROP_LEASE = "a person deletes the Lease"


class Row(NamedTuple):
    """How likely an event is, how long it lasts (seconds, least and most), and which other events exclude it.

    Events with the same `what` do not overlap. At least `REST` passes between the end of one and the start of the next,
    so that what was disturbed can recover. With `what` "broker" this applies to each broker separately.
    """

    weight: float
    shortest: float
    longest: float
    what: str


_ALWAYS: Mapping[Kind, Row] = {
    Kind.KILL_LEADER: Row(3, 0.5, 4, "operators"),
    Kind.KILL_STANDBY: Row(1, 0.5, 4, "operators"),
    Kind.KILL_BOTH: Row(1, 0.5, 3, "operators"),
    Kind.END_LEADER: Row(1, 0.5, 3, "operators"),
    Kind.PAUSE_LEADER: Row(3, 1, 14, "operators"),
    Kind.PAUSE_STANDBY: Row(1, 1, 8, "operators"),
    Kind.CUT_LEADER: Row(2, 1, 10, "operators"),
    Kind.KILL_APISERVER: Row(2, 0.2, 3, "plane"),
    Kind.PAUSE_APISERVER: Row(2, 0.5, 6, "plane"),
    Kind.KILL_ETCD: Row(2, 0.2, 3, "plane"),
    Kind.PAUSE_ETCD: Row(2, 0.5, 5, "plane"),
    Kind.KILL_BROKER: Row(4, 0.5, 9, "broker"),
    Kind.LOSE_POD: Row(2, 0.5, 9, "broker"),
    Kind.DEAFEN_BROKER: Row(3, 1, 8, "broker"),
    Kind.SHIFT_LOAD: Row(12, 0, 0, ""),
    Kind.MOVE: Row(5, 0, 0, ""),
    Kind.PIN: Row(2, 2, 10, ""),
    Kind.DRAIN: Row(2, 2, 10, "drain"),
    Kind.SPLIT: Row(3, 0, 0, ""),
    Kind.PAUSE_POLICY: Row(1, 1, 4, "policy"),
    Kind.DRY_RUN: Row(1, 1, 4, "policy"),
    Kind.APPROVE: Row(1, 4, 8, "policy"),
    Kind.OTHER_SHEDDER: Row(1, 3, 8, "policy"),
    Kind.DROP_LEASE: Row(1, 0, 0, ""),
}
_DRAWN: Mapping[Kind, Row] = {Kind.SOURCE_DOWN: Row(3, 1, 6, "source")}
_MEASURED: Mapping[Kind, Row] = {
    Kind.KILL_JVM: Row(3, 0, 0, "operators"),
    Kind.KILL_PROMETHEUS: Row(2, 0.5, 6, "source"),
    Kind.PAUSE_PROMETHEUS: Row(2, 1, 7, "source"),
    Kind.PROMETHEUS_DOWN: Row(1, 2, 7, "source"),
    Kind.PROMETHEUS_SLOW: Row(1, 4, 8, "source"),
    Kind.PROMETHEUS_BROKEN: Row(1, 2, 7, "source"),
    Kind.PROMETHEUS_PARTIAL: Row(1, 2, 7, "source"),
    Kind.MUTE_BROKER: Row(2, 3, 9, "broker"),
}

REST: Mapping[str, float] = {"operators": 6.0, "plane": 5.0, "source": 3.0, "broker": 3.0, "policy": 3.0}
"""Seconds of rest between events with the same `what`; twice as long for operators that start a JVM."""

NO_DATA = frozenset(_DRAWN) | {kind for kind, row in _MEASURED.items() if row.what == "source"}
"""During these events load is unknown, so no decision may be made."""


@dataclass(frozen=True, slots=True)
class Event:
    """`kind` happens `at` seconds into the round and lasts `seconds`. target: a broker, if the event concerns one.

    pick: ratio 0-1 that selects a bundle. amount: ratio 0-1 that selects a strength or one of several ways.
    """

    at: float
    kind: Kind
    seconds: float
    target: str
    pick: float
    amount: float

    def __str__(self) -> str:
        """The event as text: time, kind, target, duration."""
        lasts = f" for {self.seconds:.1f} s" if self.seconds else ""
        about = f" {self.target}" if self.target else f" (pick {self.pick:.3f}, amount {self.amount:.3f})"
        return f"{self.at:6.1f} s  {self.kind}{about}{lasts}"


@dataclass(frozen=True, slots=True)
class Schedule:
    """The events in `seconds` of a round, by time.

    measured: load comes from Prometheus and Spark; otherwise it is drawn. moves_per_hour: the policy's limit, low
    enough in some rounds to be reached.
    """

    seed: int
    seconds: float
    measured: bool
    moves_per_hour: int
    events: tuple[Event, ...]

    def __str__(self) -> str:
        """The whole schedule as text, one event per line."""
        how = "measured" if self.measured else "drawn"
        head = f"seed {self.seed}, {self.seconds:.0f} s, load {how}, {self.moves_per_hour} moves an hour"
        return "\n".join([head, *map(str, self.events)])


def draw(seed: int, seconds: float, *, measured: bool) -> Schedule:
    """The schedule of a seed. Events that earlier ones exclude are left out."""
    chance = random.Random(f"{seed}/{measured}")
    table = {**_ALWAYS, **(_MEASURED if measured else _DRAWN)}
    moves = chance.choice((15, 40, 1000))
    busy, events, at = dict[str, float](), list[Event](), QUIET
    while (at := at + chance.expovariate(1 / _EVERY)) < seconds:
        (kind,) = chance.choices(list(table), [row.weight for row in table.values()])
        row, target = table[kind], chance.choice(BROKERS)
        lasts = min(chance.uniform(row.shortest, row.longest), seconds - at)
        pick, amount = chance.random(), chance.random()
        key = target if row.what == "broker" else row.what
        if key and busy.get(key, 0.0) > at:
            continue
        busy[key] = at + lasts + REST.get(row.what, 0.5) * (2 if measured and key == "operators" else 1)
        about_one = row.what in {"broker", "drain"} or kind is Kind.MOVE
        events.append(Event(round(at, 2), kind, round(lasts, 2), target if about_one else "", pick, amount))
    return Schedule(seed, seconds, measured, moves, tuple(events))
