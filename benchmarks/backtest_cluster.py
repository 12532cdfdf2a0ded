"""Compares one executor with two on a standalone cluster, for `benchmarks/backtest.py --cluster`.

Master, workers and executors are processes of their own. The executors start, import and replay a few cycles before
anything is measured. Then one executor replays the policies in one task, and two executors replay them in a task each.

    critical    processor time that can't be spread: of the driver, and of the busiest executor
    serial      ratio of the critical time that the second executor did not shorten (Karp and Flatt's figure)
    efficiency  of n executors: 1 / (1 + (n - 1) serial), as Amdahl's law says

On an idle machine the wall-clock time is the critical time. On a busy one only the processor time can be compared.
"""

from __future__ import annotations

import os
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from trimtab_lab.backtest.replay import HistoryReplay
from trimtab_lab.backtest.tasks import TimeWindow, play_all, tasks
from trimtab_pipeline.factory import task_pool
from trimtab_pipeline.spark.task_pool import TaskPool
from trimtab_testbed.servers.processes import children, descendants, processor_seconds

sys.path.append(str(Path(__file__).parents[1] / "tests" / "support" / "prometheus"))

from spark_servers import SparkCluster

CURVE = (1, 2, 4, 8, 16)
_SHORT = 300.0  # seconds of the history that warm the executors up
_DRIVER = "org.apache.spark.deploy.SparkSubmit"


@dataclass(frozen=True, slots=True)
class ClusterRun:
    """A run on one executor or two. clock, driver, critical: seconds.

    executors: processor seconds of each, with its Python workers. memory: peak MB of each, the sum of JVM and Python
    workers, including shared pages.
    """

    clock: float
    driver: float
    executors: list[float]
    memory: list[float]

    @property
    def critical(self) -> float:
        """Processor seconds of the driver and of the busiest executor."""
        return self.driver + max(self.executors)


@dataclass(frozen=True, slots=True)
class Played:
    """The history and policies to replay. begin, end: epoch seconds. replays: makes new replays of the policies."""

    root: Path
    policy: str
    begin: float
    end: float
    replays: Callable[[], Sequence[HistoryReplay]]

    def play(self, pool: TaskPool, executors: int, end: float | None = None) -> None:
        """Replay until `end` in a task for each executor. Raises `RuntimeError` for an unreadable history."""
        part = TimeWindow(self.begin, self.begin, self.begin, self.end if end is None else end)
        replays = self.replays()
        work = tasks(str(self.root), self.policy, [part], replays, executors)
        if error := play_all(work, replays, pool, lambda _: None):
            raise RuntimeError(error)


def compared(played: Played) -> dict[str, Any]:
    """The figures of one executor and of two."""
    os.environ["PYSPARK_PYTHON"] = sys.executable  # the executors' Python
    one, two = (_run(number, played) for number in (1, 2))
    serial = serial_part(one.critical / two.critical)
    return {
        "one": asdict(one) | {"critical": one.critical},
        "two": asdict(two) | {"critical": two.critical},
        "serial": serial,
        "efficiency": {str(n): 1 / (1 + (n - 1) * serial) for n in CURVE},
        "clock_efficiency": one.clock / two.clock / 2,
        "load": os.getloadavg()[0],
    }


def serial_part(speedup: float) -> float:
    """The ratio of the work that two executors can't share if they are `speedup` times as fast as one; at least 0."""
    return max(0.0, 2 / speedup - 1)


def told(found: dict[str, Any]) -> str:
    """The figures as text."""
    lines = [
        f"{name}: {run['clock']:.1f} s on the clock, {run['critical']:.1f} s critical (driver {run['driver']:.1f} s, "
        f"executors {' and '.join(f'{each:.1f}' for each in run['executors'])} s of processor time), "
        f"{' and '.join(f'{each:.0f}' for each in run['memory'])} MB"
        for name, run in (("one executor", found["one"]), ("two", found["two"]))
    ]
    curve = ", ".join(f"{n}: {each:.0%}" for n, each in found["efficiency"].items())
    lines.append(f"serial part {found['serial']:.1%}; efficiency by executors {curve}")
    lines.append(f"by the clock {found['clock_efficiency']:.0%} for two, at load average {found['load']:.1f}")
    return "\n".join(lines)


def _run(number: int, played: Played) -> ClusterRun:
    with tempfile.TemporaryDirectory() as folder, SparkCluster(Path(folder), workers=number) as cluster:
        pool = task_pool(cluster.url)
        try:
            played.play(pool, number, played.begin + _SHORT)
            while sum(len(cluster.executors(worker)) for worker in range(number)) < number:
                time.sleep(1)
            played.play(pool, number, played.begin + _SHORT)
            executors = [cluster.executors(worker)[0] for worker in range(number)]
            before, driver, begin = [_processor(one) for one in executors], _driver(), time.monotonic()
            played.play(pool, number)
            clock = time.monotonic() - begin
            after = [_processor(one) for one in executors]
            used = [new - old for new, old in zip(after, before, strict=True)]
            return ClusterRun(clock, _driver() - driver, used, [_memory(one) for one in executors])
        finally:
            pool.close()


def _driver() -> float:
    """Processor seconds of this process and of its JVM."""
    below = descendants(os.getpid(), children())
    return time.process_time() + sum(processor_seconds(pid) for pid in below if _DRIVER in _text(pid, "cmdline"))


def _processor(executor: int) -> float:
    """Processor seconds of an executor and its Python workers, including workers that have exited."""
    return sum(map(processor_seconds, (executor, *descendants(executor, children()))))


def _memory(executor: int) -> float:
    """Peak MB of an executor and its Python workers."""
    lines = [
        line
        for pid in (executor, *descendants(executor, children()))
        for line in _text(pid, "status").splitlines()
        if line.startswith("VmHWM")
    ]
    return sum(int(line.split()[1]) for line in lines) / 1024


def _text(pid: int, name: str) -> str:
    try:
        return Path(f"/proc/{pid}/{name}").read_text()
    except OSError:
        return ""
