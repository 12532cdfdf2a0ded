"""Compares contenders in scenarios: the scores of all seeds, and a table of their medians."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict
from itertools import product
from multiprocessing import get_context
from typing import Any

import numpy as np

from trimtab_lab.simulation.contenders import (
    Contender,
    SimulationResult,
    contenders,
    played,
)
from trimtab_lab.simulation.scenario import Scenario
from trimtab_lab.simulation.score import RunScore

SEED = 364
"""Seed of every simulated cluster and every run of the documentation."""

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

_TENTHS = ("cut", "area", "left", "overshoot", "latency", "cost")


def compare(scenario: Scenario) -> dict[Contender, SimulationResult]:
    """The result of every contender, in the same simulated cluster with the same random numbers."""
    return {who: played(scenario, who, SEED) for who in contenders()}


def medians(scores: Iterable[RunScore]) -> dict[str, float]:
    """The median of each of `COLUMNS`."""
    found = list(scores)
    return {name: float(np.median([getattr(score, name) for score in found])) for name in COLUMNS}


def table(
    scenarios: Mapping[str, Scenario], who: Sequence[Contender], seeds: Sequence[int], jobs: int = 1
) -> Iterator[list[str]]:
    """Rows of cells, the heading first: scenario, contender, and the medians over `seeds`."""
    yield ["scenario", "strategy", *COLUMNS.values()]
    tasks = [(name, one, seed) for name, one, seed in product(scenarios, who, seeds)]
    scores = _scores([(scenarios[name], one, seed) for name, one, seed in tasks], jobs)
    for name, one in product(scenarios, who):
        found = medians(next(scores) for _ in seeds)
        yield [name, one.name, *(_cell(column, value) for column, value in found.items())]


def measured(
    scenarios: Mapping[str, Scenario], who: Sequence[Contender], seeds: Sequence[int], jobs: int = 1
) -> list[dict[str, Any]]:
    """For each scenario and contender the scores of all `seeds`, as JSON values."""
    tasks = list(product(scenarios, who, seeds))
    scores = _scores([(scenarios[name], one, seed) for name, one, seed in tasks], jobs)
    return [
        {"scenario": name, "strategy": one.name, "runs": [{"seed": seed, **asdict(next(scores))} for seed in seeds]}
        for name, one in product(scenarios, who)
    ]


def _scores(tasks: list[tuple[Scenario, Contender, int]], jobs: int) -> Iterator[RunScore]:
    if jobs == 1:
        yield from map(_score, tasks)
        return
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        yield from pool.map(_score, tasks)


def _score(task: tuple[Scenario, Contender, int]) -> RunScore:
    return played(*task).score


def _cell(column: str, value: float) -> str:
    if column in ("unserved", "owned"):
        return f"{value:.2f}"
    return f"{value:.1f}" if column in _TENTHS else f"{value:g}"
