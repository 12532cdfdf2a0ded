"""Plays many runs in this process and in others. The results come in order."""

from __future__ import annotations

import signal
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context

from trimtab_lab.simulation.contenders import Player, SimulationResult, played
from trimtab_lab.simulation.scenario import Scenario


@dataclass(frozen=True, slots=True)
class Task:
    """One run. name: the scenario's name."""

    name: str
    scenario: Scenario
    who: Player
    seed: int


def results(tasks: Sequence[Task], jobs: int = 1) -> Iterator[SimulationResult]:
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


def _shared(tasks: Sequence[Task], pool: ProcessPoolExecutor) -> Iterator[SimulationResult]:
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


def _play(task: Task) -> SimulationResult:
    return played(task.scenario, task.who, task.seed)
