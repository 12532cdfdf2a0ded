"""Backtests in parts: a history that is worth a backtest, policies that differ, and a driver of a cluster of executors.

A process has one Spark context at most, so functions that play on a cluster are called in a process of their own.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from recorded_history import POLICY, RecordedHistory
from trim_world import START, World, spread
from trimtab_lab.backtest.replay import HistoryReplay, LiveReplay, PolicyReplay
from trimtab_lab.backtest.tasks import ReplayedTask, ReplayTask, Report, Runner, play_all, tasks, windows
from trimtab_lab.simulation.deciders import UnderTrimtab
from trimtab_operator.state.settings import Settings
from trimtab_pipeline.factory import task_pool
from trimtab_pipeline.history.recording import Recording

_WORTH = (100, 300, 900)


def write_wandering(root: Path) -> None:
    """Ten hours of three brokers, a cycle every two minutes; load wanders from one to the next."""
    history, random = RecordedHistory(root), np.random.default_rng(5)
    world = World.of(spread(70, 20, 1), spread(25, 20, 2), spread(25, 20, 3))
    first = world.load.copy()
    for cycle in range(300):
        turn = 2 * np.pi * (cycle / 150 + world.owner / 3)
        world.load = first * (1 + 0.4 * np.sin(turn))
        history.cycle(world.cluster(random.normal(1, 0.05, len(world.load))))
        world.now += 120


def policy(name: str, **trim: Any) -> PolicyReplay:
    """A policy of Trim with these parameters."""
    source = {"prometheus": {"url": "http://prometheus.monitoring.svc:9090"}}
    spec = {"source": source, "shedder": {"type": "Trim", "trim": trim}}
    settings = Settings.of({"metadata": {"name": name, "namespace": "messaging"}, "spec": spec})
    return PolicyReplay(name, UnderTrimtab(settings.pair, settings.limits), settings.interval)


def replays(worth: Sequence[int] = _WORTH) -> list[HistoryReplay]:
    """A policy for each of `worth`, and what really happened."""
    return [*(policy(f"worth={each}", worth=each) for each in worth), LiveReplay()]


def new_policy(folder: Path) -> str:
    """A file with a policy."""
    file = folder / "policy.yaml"
    file.write_text(
        "apiVersion: trimtab.dev/v1alpha1\nkind: BalancingPolicy\nmetadata: {name: new}\n"
        "spec: {source: {prometheus: {url: 'http://prometheus:9090'}}}\n"
    )
    return str(file)


def end_of(folder: Path) -> float:
    """Epoch seconds of the newest cycle."""
    return Recording(str(folder), POLICY).summary.end


def played_whole(folder: Path, runner: Runner, parallelism: int, worth: Sequence[int] = _WORTH) -> list[HistoryReplay]:
    """`replays` after they were played over the whole history, in as many tasks as `parallelism` asks for."""
    found = replays(worth)
    work = tasks(str(folder), POLICY, windows(START, end_of(folder)), found, parallelism)
    assert play_all(work, found, runner, lambda _: None) == ""
    return found


def same(one: HistoryReplay, other: HistoryReplay) -> bool:
    """Whether both came to the same, bit for bit."""
    ours, theirs = one.trace, other.trace
    equal = all(np.array_equal(a, b, equal_nan=True) for a, b in zip(ours.usage, theirs.usage, strict=True))
    return equal and (ours.times, ours.changes, ours.measured) == (theirs.times, theirs.changes, theirs.measured)


def played_on(
    master: str, folder: Path, parallelisms: Sequence[int], worth: Sequence[int]
) -> list[list[HistoryReplay]]:
    """`played_whole` on a Spark session on `master`, once for each of `parallelisms`."""
    os.environ["PYSPARK_PYTHON"] = sys.executable  # on a cluster, the Python of the executors' machines
    pool = task_pool(master)
    try:
        return [played_whole(folder, pool, parallelism, worth) for parallelism in parallelisms]
    finally:
        pool.close()


def played_marked(master: str, folder: Path, parallelism: int, worth: Sequence[int]) -> list[HistoryReplay]:
    """`played_whole` on `master`; each task leaves a file ``begun-TASK-ATTEMPT`` in its executor's folder."""
    os.environ["PYSPARK_PYTHON"] = sys.executable  # on a cluster, the Python of the executors' machines
    pool = task_pool(master)
    try:
        return played_whole(folder, _Marked(pool), parallelism, worth)
    finally:
        pool.close()


class _Marked:
    """A runner whose tasks leave files."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner

    def parallelism(self) -> int:
        """See `Runner`."""
        return self._runner.parallelism()

    def map(
        self, function: Callable[[ReplayTask, Report], ReplayedTask], items: Sequence[ReplayTask], report: Report
    ) -> list[ReplayedTask]:
        """See `Runner`."""

        def marked(task: ReplayTask, told: Report) -> ReplayedTask:
            from pathlib import Path  # noqa: PLC0415  (in the worker, which does not have this module)

            from pyspark import TaskContext  # noqa: PLC0415

            context = TaskContext.get()
            assert context is not None
            Path(f"begun-{context.partitionId()}-{context.attemptNumber()}").touch()
            return function(task, told)

        return self._runner.map(marked, items, report)
