"""Runs of Trim in the simulated cluster, with what it saw and what it decided in each minute."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from typing import Any, ClassVar

import numpy as np

from trimtab_lab.simulation import Record, RunScore, Scenario, build, contender, named, run, score
from trimtab_lab.simulation.compare import SEED
from trimtab_lab.simulation.world import MINUTE, START
from trimtab_strategies.model import CPU
from trimtab_strategies.model.cluster_load import BoolArray, FloatArray, IntArray
from trimtab_strategies.protocols import Shedding
from trimtab_strategies.shedding.trim import shedder
from trimtab_strategies.shedding.trim.cause import Cause, cause
from trimtab_strategies.shedding.trim.plan import PlannedLoad, clear, prices
from trimtab_strategies.shedding.trim.replay import WINDOW, Replay
from trimtab_strategies.shedding.trim.shedder import _Plan, _TrimCycle

JOIN, FOREIGN = 12, 20
"""Minutes in which the new broker joins, and in which another program begins to take CPU."""

NEIGHBOUR_BROKER, FOREIGN_BROKER, ON_OFF_BROKER = 2, 5, 0
"""Rows of the brokers that the page shows."""

FOREIGN_USAGE, NOISE, JITTER = 0.25, 0.02, 0.15
"""Ratio of the machine that the program takes; deviation of CPU readings, and variation of traffic, as ratios."""

DUE = 3
"""A plan's prediction is compared with the CPU measured in this many minutes after it."""


def _changed(name: str, **changes: Any) -> Scenario:
    return Scenario.model_validate({**named(name).model_dump(), **changes})


def _scenarios() -> Mapping[str, Scenario]:
    joins = {"event": "join", "brokers": [9], "round": JOIN}
    foreign = {"event": "foreign", "brokers": [FOREIGN_BROKER], "usage": FOREIGN_USAGE, "round": FOREIGN}
    return {
        "new-broker": _changed("new-broker", rounds=30, tenants=[{"jitter": JITTER}], events=[joins]),
        "mixed-costs": _changed("mixed-costs", events=[foreign], metrics={"noise": NOISE}),
        **{name: named(name) for name in ("noisy-neighbour", "on-off", "foreign-load")},
    }


class _NotedCycle(_TrimCycle):
    """A decision that notes what it saw, and each plan that it considered."""

    minutes: ClassVar[dict[int, Minute]] = {}

    def decided(self) -> Shedding:
        """See `_TrimCycle`. If a minute has several decisions, the first one counts."""
        noted = Minute(round((self.cluster.now - START) / MINUTE), self)
        noted = self.minutes.setdefault(noted.number, noted)
        found = super().decided()
        if noted.cycle is self:
            noted.held_back = "; ".join(held.detail for held in found.held_back)
            noted.moved = bool(found.unloads)
        return found

    def planned(self, window: int) -> _Plan:
        """See `_TrimCycle`."""
        plan = super().planned(window)
        noted = self.minutes[round((self.cluster.now - START) / MINUTE)]
        if not noted.moved:
            noted.plans.append((self, window, plan))
        return plan


@contextmanager
def _noting() -> Iterator[dict[int, Minute]]:
    """Collect the decisions that Trim makes in the block, by their minute."""
    _NotedCycle.minutes = {}
    shedder._TrimCycle = _NotedCycle  # type: ignore[misc]  # noqa: SLF001 - what is shown must be what was decided
    try:
        yield _NotedCycle.minutes
    finally:
        shedder._TrimCycle = _TrimCycle  # type: ignore[misc]  # noqa: SLF001


@dataclass
class Minute:
    """One decision. plans: those considered, each with its window; if `moved`, the last one was carried out.

    held_back: why nothing moved, in words.
    """

    number: int
    cycle: _TrimCycle
    plans: list[tuple[_TrimCycle, int, _Plan]] = field(default_factory=list)
    held_back: str = ""
    moved: bool = False

    @property
    def replay(self) -> Replay:
        """The replay of this decision."""
        return self.cycle.replay

    @property
    def cpu(self) -> Mapping[str, float]:
        """Measured CPU by broker, percent."""
        brokers = self.cycle.cluster.brokers
        percent = 100 * brokers.usage[:, CPU] / brokers.limit[:, CPU]
        return dict(zip(brokers.names, percent.tolist(), strict=True))

    @property
    def plan(self) -> _Plan:
        """The plan by which bundles moved."""
        assert self.moved
        return self.plans[-1][2]

    @property
    def cause(self) -> Cause:
        """The cause for which the plan was made."""
        cycle, window, _ = self.plans[-1]
        return cause(cycle.replay, cycle.watch, window, hot=cycle.params.hot, apart=cycle.params.apart)

    @property
    def life(self) -> float:
        """Minutes that the difference will probably last."""
        cycle, window, _ = self.plans[-1]
        return cycle.watch.life(window)

    def balance(self) -> PlannedLoad:
        """The load before the plan."""
        cycle, window, _ = self.plans[-1]
        return PlannedLoad.of(cycle.replay, window)

    @cached_property
    def level(self) -> float:
        """The level by which the plan was made, percent."""
        return float(self.balance().target.min())

    @property
    def price(self) -> FloatArray:
        """Price (m,) of moving each bundle."""
        return prices(self.cycle.cluster, self.cycle.params.fixed_percent / 100)

    @property
    def least(self) -> float:
        """Gain, points^2, that the move of an average bundle must bring."""
        owner = self.cycle.cluster.bundles.owner
        return self.cycle.params.price * len(self.cycle.cluster.brokers) / int((owner >= 0).sum())

    @property
    def touched(self) -> BoolArray:
        """The brokers (n,) that give or receive."""
        touched = np.zeros(len(self.cycle.cluster.brokers), dtype=bool)
        for move in self.plan.moves:
            touched[[move.source, move.destination]] = True
        return touched


@dataclass(frozen=True, slots=True)
class Step:
    """A move: its gain, and the gain from which on it is worth its price, points^2."""

    minute: int
    gain: float
    price: float


@dataclass(frozen=True)
class TrimRun:
    """A whole run: its result, and each decision by its minute."""

    scenario: Scenario
    record: Record
    score: RunScore
    minutes: Mapping[int, Minute]

    @property
    def last(self) -> Minute:
        """The last decision."""
        return list(self.minutes.values())[-1]

    @property
    def after(self) -> Minute:
        """The first decision after those that moved something."""
        return self.minutes[self.acted[-1].number + 1]

    def after_in(self, minute: Minute) -> Replay:
        """The replay of `minute` with the owners after the last plan."""
        bundles = self.after.cycle.cluster.bundles
        owner = bundles.owner[[bundles.index[name] for name in minute.cycle.cluster.bundles.names]]
        return replace(minute.replay, owner=owner)

    @property
    def acted(self) -> list[Minute]:
        """The decisions that moved something."""
        return [self.minutes[number] for number in np.flatnonzero(self.record.moves).tolist()]

    @cached_property
    def cpu(self) -> FloatArray:
        """Measured CPU (minutes, n), percent; NaN for a broker that does not exist."""
        return np.array([[minute.cpu.get(name, np.nan) for name in self.brokers] for minute in self.minutes.values()])

    @property
    def brokers(self) -> tuple[str, ...]:
        """All brokers of the run, by name."""
        return max((minute.cycle.cluster.brokers.names for minute in self.minutes.values()), key=len)

    def steps(self) -> list[Step]:
        """Each move, with its gain on the load as it was at its turn."""
        found = []
        for minute in self.acted:
            balance, price = minute.balance(), minute.price
            for move in minute.plan.moves:
                before = float((balance.away() ** 2).sum())
                balance.shift(move.source, move.destination, balance.load[move.bundle])
                gain = before - float((balance.away() ** 2).sum())
                found.append(Step(minute.number, gain, minute.least * float(price[move.bundle])))
        return found

    @property
    def left_over(self) -> Step:
        """Of the moves that were left after the last plan, the one with the best gain / sqrt(price)."""
        minute = self.after
        gain = best_gain(PlannedLoad.of(minute.replay, WINDOW), minute.cycle.cluster.bundles.owner)
        best = int(np.argmax(gain / np.sqrt(minute.price)))
        return Step(minute.number, float(gain[best]), minute.least * float(minute.price[best]))

    @property
    def held_back(self) -> str:
        """Why nothing moved in the minute with the largest excess, as conditions and `trimtab explain` say it."""
        return max(self.minutes.values(), key=lambda minute: float(minute.replay.away[-1].max())).held_back

    def predictions(self) -> list[tuple[str, float, float]]:
        """Each broker that gave or received: name, CPU that its last plan predicted, CPU measured after it, percent."""
        found: dict[int, tuple[str, float, float]] = {}
        for minute in self.acted:
            measured = np.median(self.cpu[minute.number + 1 : minute.number + 1 + DUE], axis=0)
            usage = minute.plan.balance.usage[:, CPU]
            for row in np.flatnonzero(minute.touched).tolist():
                found[row] = (minute.cycle.cluster.brokers.names[row], float(usage[row]), float(measured[row]))
        return [found[row] for row in sorted(found)]


@cache
def played(name: str) -> TrimRun:
    """The run of one of the scenarios of the page."""
    scenario = _scenarios()[name]
    world = build(scenario, np.random.default_rng(SEED))
    with _noting() as minutes:
        record = run(world, contender("Trim").decider(world), np.random.default_rng(SEED))
    return TrimRun(scenario, record, score(record, scenario.event, scenario.goal), minutes)


def best_gain(balance: PlannedLoad, owner: IntArray) -> FloatArray:
    """Gain (m,), points^2, of moving each bundle to the coldest other broker, with nothing else moved."""
    away, found = balance.away(), np.full(len(owner), np.nan)
    coldest = np.argsort(away, kind="stable")
    for giver in range(len(away)):
        taker = int(coldest[0] if coldest[0] != giver else coldest[1])
        rows = np.flatnonzero(owner == giver)
        load = balance.load[rows][np.newaxis]
        left, there = (
            clear(balance.with_load(np.array([row]), load * sign)[0] - balance.target[row], balance.noise[row])
            for row, sign in ((giver, -1), (taker, 1))
        )
        found[rows] = away[giver] ** 2 + away[taker] ** 2 - left**2 - there**2
    return found
