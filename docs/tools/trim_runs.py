"""Runs of Trim in the simulated cluster, with what it saw and what it decided in each minute."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from typing import Any, ClassVar

import numpy as np

from trimtab_lab.simulation import Record, RunScore, Scenario, build, contender, named, run, score
from trimtab_lab.simulation.compare import SEED
from trimtab_lab.simulation.world import MINUTE, START
from trimtab_strategies.model import CPU, ClusterLoad
from trimtab_strategies.model.cluster_load import BoolArray, FloatArray, IntArray
from trimtab_strategies.protocols import Shedder, Shedding
from trimtab_strategies.shedding.trim import scores
from trimtab_strategies.shedding.trim.cause import Cause, Watch, cause, watched
from trimtab_strategies.shedding.trim.model import learned
from trimtab_strategies.shedding.trim.plan import PlannedLoad, clear, prices
from trimtab_strategies.shedding.trim.replay import WINDOW, Replay, replayed, targets
from trimtab_strategies.shedding.trim.shedder import TrimParams, _Plan, _TrimCycle

JOIN, FOREIGN = 12, 20
"""Minutes in which the new broker joins, and in which another program begins to take CPU."""

NEIGHBOUR_BROKER, FOREIGN_BROKER, ON_OFF_BROKER = 2, 5, 0
"""Rows of the brokers that are looked at."""

FOREIGN_USAGE, NOISE, JITTER = 0.25, 0.02, 0.15
"""Ratio of the machine that the program takes; deviation of CPU readings, and variation of traffic, as ratios."""

DUE = 3
"""Minutes after a plan in which its prediction is compared."""


def _changed(name: str, **changes: Any) -> Scenario:
    return Scenario.model_validate({**named(name).model_dump(), **changes})


def _scenarios() -> Mapping[str, Scenario]:
    joins = {"event": "join", "brokers": [9], "round": JOIN}
    foreign = {"event": "foreign", "brokers": [FOREIGN_BROKER], "usage": FOREIGN_USAGE, "round": FOREIGN}
    return {
        "new-broker": _changed("new-broker", rounds=30, tenants=[{"jitter": JITTER}], events=[joins]),
        "mixed-costs": _changed("mixed-costs", events=[foreign], sight={"noise": NOISE}),
        **{name: named(name) for name in ("noisy-neighbour", "on-off", "foreign-load")},
    }


@dataclass
class _Recorder:
    """A shedder that notes what it was asked; of several answers in one decision the first."""

    shedder: Shedder
    params: TrimParams
    minutes: dict[int, Minute] = field(default_factory=dict)
    rests_after_splits: ClassVar[bool] = True

    def shed(self, cluster: ClusterLoad, sheddable: BoolArray, memory: Mapping[str, Any]) -> Shedding:
        """See `Shedder`."""
        found = self.shedder.shed(cluster, sheddable, memory)
        number = round((cluster.now - START) / MINUTE)
        self.minutes.setdefault(number, Minute(number, self.params, cluster, sheddable, memory, found))
        return found


@dataclass(frozen=True)
class Minute:
    """One decision. memory: as it was before."""

    number: int
    params: TrimParams
    cluster: ClusterLoad
    sheddable: BoolArray
    memory: Mapping[str, Any]
    shedding: Shedding

    @cached_property
    def _seen(self) -> tuple[Replay, Watch, Mapping[str, Any]]:
        assert self.cluster.recent is not None
        model, memory = learned(self.cluster, self.cluster.recent.last(WINDOW), self.memory)
        replay = replayed(self.cluster, self.cluster.recent, model)
        watch, memory = watched(replay, self.cluster.brokers.names, self.cluster.now, memory)
        return replay, watch, scores.checked(self.cluster, self.cluster.recent, memory)

    @property
    def replay(self) -> Replay:
        """The replay of this decision."""
        return self._seen[0]

    @property
    def watch(self) -> Watch:
        """How long the excesses have lasted."""
        return self._seen[1]

    @property
    def cpu(self) -> Mapping[str, float]:
        """Measured CPU by broker, percent."""
        brokers = self.cluster.brokers
        percent = 100 * brokers.usage[:, CPU] / brokers.limit[:, CPU]
        return dict(zip(brokers.names, percent.tolist(), strict=True))

    @property
    def level(self) -> float:
        """The level of the newest minute, percent."""
        model, carried = self.replay.model, self.replay.carried[-1:]
        return 100 * float(targets(model, carried, model.background[-1:]).min())

    def causes(self) -> Iterator[Cause]:
        """The cause in each window, the longest first."""
        for window in self.watch.windows(len(self.replay)):
            yield cause(self.replay, self.watch, window, hot=self.params.hot, apart=self.params.apart)

    @cached_property
    def decided(self) -> tuple[Cause, _Plan]:
        """The cause and the plan of a decision that moves something."""
        replay, watch, memory = self._seen
        cycle = _TrimCycle(self.params, self.cluster, self.sheddable, replay, watch, memory)
        for shown in self.causes():
            plan = cycle.planned(shown.window) if shown.given else None
            if plan and plan.moves and plan.gained * watch.life(shown.window) >= plan.price:
                return shown, plan
        raise AssertionError(f"minute {self.number}: nothing is worth its price")

    def balance(self, window: int) -> PlannedLoad:
        """The load before the plan."""
        return PlannedLoad.of(self.replay, window)

    @property
    def touched(self) -> BoolArray:
        """The brokers (n,) that give or receive."""
        touched = np.zeros(len(self.cluster.brokers), dtype=bool)
        for move in self.decided[1].moves:
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
    """A whole run: what came of it, and each decision by its minute."""

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
        bundles = self.after.cluster.bundles
        owner = bundles.owner[[bundles.index[name] for name in minute.cluster.bundles.names]]
        return replace(minute.replay, owner=owner)

    @property
    def acted(self) -> list[Minute]:
        """The decisions that moved something."""
        return [self.minutes[number] for number in np.flatnonzero(self.record.moves).tolist()]

    @cached_property
    def cpu(self) -> FloatArray:
        """Measured CPU (minutes, n), percent; NaN for a broker that is not there."""
        return np.array([[minute.cpu.get(name, np.nan) for name in self.brokers] for minute in self.minutes.values()])

    @property
    def brokers(self) -> tuple[str, ...]:
        """All brokers of the run, by name."""
        return max((minute.cluster.brokers.names for minute in self.minutes.values()), key=len)

    def steps(self) -> list[Step]:
        """Each move, with its gain on the load as it was at its turn."""
        found = []
        for minute in self.acted:
            shown, plan = minute.decided
            balance, price = minute.balance(shown.window), prices(minute.cluster, minute.params.fixed)
            for move in plan.moves:
                before = float((balance.away() ** 2).sum())
                balance.shift(move.source, move.destination, balance.load[move.bundle])
                gain = before - float((balance.away() ** 2).sum())
                found.append(Step(minute.number, gain, least_of(minute) * float(price[move.bundle])))
        return found

    @property
    def left_over(self) -> Step:
        """The move with the best score of those that were left after the last plan."""
        minute = self.after
        price = prices(minute.cluster, minute.params.fixed)
        gain = best_gain(minute.balance(WINDOW), minute.cluster.bundles.owner)
        best = int(np.argmax(gain / np.sqrt(price)))
        return Step(minute.number, float(gain[best]), least_of(minute) * float(price[best]))

    @property
    def held_back(self) -> str:
        """Why nothing moved in the minute whose excess is the largest, as a condition and `trimtab explain` say it."""
        largest = max(self.minutes.values(), key=lambda minute: float(minute.replay.away[-1].max()))
        return largest.shedding.held_back[0].detail

    def predictions(self) -> list[tuple[str, float, float]]:
        """The brokers whose last plan is three minutes old: name, predicted CPU and measured CPU, percent."""
        found: dict[int, tuple[str, float, float]] = {}
        for minute in self.acted:
            measured = np.median(self.cpu[minute.number + 1 : minute.number + 1 + DUE], axis=0)
            usage = minute.decided[1].balance.usage[:, CPU]
            for row in np.flatnonzero(minute.touched).tolist():
                found[row] = (minute.cluster.brokers.names[row], float(usage[row]), float(measured[row]))
        return [found[row] for row in sorted(found)]


@cache
def played(name: str) -> TrimRun:
    """The run of one of the scenarios of the page."""
    scenario = _scenarios()[name]
    world = build(scenario, np.random.default_rng(SEED))
    decider = contender("Trim").decider(world)
    watching = _Recorder(decider.pair.shedder, TrimParams())
    decider.pair = replace(decider.pair, shedder=watching)
    record = run(world, decider, np.random.default_rng(SEED))
    return TrimRun(scenario, record, score(record, scenario.event, scenario.goal), watching.minutes)


def least_of(minute: Minute) -> float:
    """Gain, points^2, that the move of an average bundle must bring."""
    owner = minute.cluster.bundles.owner
    return minute.params.price * len(minute.cluster.brokers) / int((owner >= 0).sum())


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
