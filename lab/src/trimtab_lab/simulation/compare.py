"""Compares players (strategies or policies) in scenarios: the scores of all seeds, their medians and intervals."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from typing import Any, Self

import numpy as np

from trimtab_lab.simulation.batch import Task, results
from trimtab_lab.simulation.contenders import Player
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
    tasks = [Task(name, scenarios[name], one, seed) for name, one, seed in product(scenarios, who, seeds)]
    found = results(tasks, jobs)
    for name, one in product(scenarios, who):
        first = next(found)
        scores = [first.score, *(next(found).score for _ in seeds[1:])]
        yield Outcome(name, one, seeds, scores, first.record)


def measured(
    scenarios: Mapping[str, Scenario], who: Sequence[Player], seeds: Sequence[int], jobs: int = 1
) -> list[dict[str, Any]]:
    """For each scenario and player the scores of all `seeds`, as JSON values."""
    return [outcome.as_data() for outcome in outcomes(scenarios, who, seeds, jobs)]
