"""Compares players (strategies or policies) in scenarios: the scores of all seeds, their medians and intervals."""

from __future__ import annotations

import signal
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import asdict, dataclass
from itertools import product
from multiprocessing import get_context
from typing import Any, Self

import numpy as np

from trimtab_lab.simulation.contenders import Player, SimulationResult, played
from trimtab_lab.simulation.run import Record
from trimtab_lab.simulation.scenario import Scenario
from trimtab_lab.simulation.score import RunScore

SEED = 364
"""Seed of all simulated clusters and runs in the documentation."""

COLUMNS: Mapping[str, str] = {
    "moves": "moves",
    "cut": "cut %",
    "repeated": "again",
    "backward": "uphill",
    "splits": "splits",
    "waited": "balanced",
    "area": "area",
    "left": "left",
    "overshoot": "overshoot",
    "overload": "hot",
    "unserved": "unserved %",
    "owned": "owners",
    "latency": "p99 ms",
    "cost": "cost",
}
"""Score -> heading, in the order of the table."""

LOW, HIGH = 5, 95
"""Percentiles of the seeds' scores that bound an interval."""


@dataclass(frozen=True, slots=True)
class SeedInterval:
    """The median of a score over the seeds, and its percentiles `LOW` and `HIGH`."""

    low: float
    median: float
    high: float

    @classmethod
    def of(cls, values: Iterable[float]) -> Self:
        """The interval of the values of all seeds."""
        return cls(*np.percentile(list(values), (LOW, 50, HIGH)).tolist())


def intervals(scores: Iterable[RunScore]) -> dict[str, SeedInterval]:
    """The interval of each of `COLUMNS`."""
    found = list(scores)
    return {name: SeedInterval.of(getattr(score, name) for score in found) for name in COLUMNS}


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one player did in one scenario: a score per seed, and the record of the first seed."""

    scenario: str
    who: Player
    seeds: Sequence[int]
    scores: Sequence[RunScore]
    record: Record

    def as_data(self) -> dict[str, Any]:
        """The scores of all seeds, as JSON values."""
        runs = [{"seed": seed, **asdict(score)} for seed, score in zip(self.seeds, self.scores, strict=True)]
        return {"scenario": self.scenario, "strategy": self.who.name, "runs": runs}


def outcomes(
    scenarios: Mapping[str, Scenario],
    who: Sequence[Player],
    seeds: Sequence[int],
    jobs: int = 1,
) -> Iterator[Outcome]:
    """The outcome of each player in each scenario, scenario by scenario."""
    tasks = [_Task(name, scenarios[name], one, seed) for name, one, seed in product(scenarios, who, seeds)]
    found = _results(tasks, jobs)
    for name, one in product(scenarios, who):
        first = next(found)
        scores = [first.score, *(next(found).score for _ in seeds[1:])]
        yield Outcome(name, one, seeds, scores, first.record)


def measured(
    scenarios: Mapping[str, Scenario], who: Sequence[Player], seeds: Sequence[int], jobs: int = 1
) -> list[dict[str, Any]]:
    """For each scenario and player the scores of all `seeds`, as JSON values."""
    return [outcome.as_data() for outcome in outcomes(scenarios, who, seeds, jobs)]


@dataclass(frozen=True, slots=True)
class _Task:
    """One run. name: the scenario's name."""

    name: str
    scenario: Scenario
    who: Player
    seed: int


def _results(tasks: Sequence[_Task], jobs: int = 1) -> Iterator[SimulationResult]:
    """The result of each task, in order. This process plays from the start, and `jobs` - 1 others join it.

    Another process takes half a second to load the strategies. A short comparison is over by then.
    """
    others = min(jobs, len(tasks)) - 1
    if others < 1:
        yield from (_play(task) for task in tasks)
        return
    with ProcessPoolExecutor(others, mp_context=get_context("spawn"), initializer=_ignore_interrupt) as pool:
        try:
            yield from _shared(tasks, pool)
        finally:
            pool.shutdown(cancel_futures=True)


def _ignore_interrupt() -> None:
    """Leave Ctrl-C to the process that started the pool."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _shared(tasks: Sequence[_Task], pool: ProcessPoolExecutor) -> Iterator[SimulationResult]:
    """The results, in order. Until the next one is there, this process plays tasks that the pool has not begun."""
    waiting = {number: pool.submit(_play, task) for number, task in enumerate(tasks) if number}
    found = {0: _play(tasks[0])}
    for number in range(len(tasks)):
        while number not in found:
            mine = None if waiting[number].done() else _not_begun(waiting)
            if mine is None:
                found[number] = waiting.pop(number).result()
            else:
                del waiting[mine]
                found[mine] = _play(tasks[mine])
        yield found.pop(number)


def _not_begun(waiting: dict[int, Future[SimulationResult]]) -> int | None:
    """Cancel a task in the pool that no process has begun, and return its number; None if there is none."""
    return next((number for number, future in waiting.items() if future.cancel()), None)


def _play(task: _Task) -> SimulationResult:
    return played(task.scenario, task.who, task.seed)
