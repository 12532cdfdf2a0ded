"""A standalone cluster: two workers share the tasks of a job, see no file of the driver, and may die.

           driver (a process of its own; its folder is hidden from the workers)
master  <
           worker 0, worker 1 (one core each): an executor each, in folders of their own
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster_driver import DEADLINE, Driver, Part
from spark_servers import SparkCluster

pytestmark = [pytest.mark.spark, pytest.mark.long, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    """Two workers that do not see the folder of the driver."""
    folder = tmp_path_factory.mktemp("cluster")
    (folder / "driver").mkdir()
    with SparkCluster(folder / "servers", hidden=[folder / "driver"]) as running:
        yield running


@pytest.fixture(scope="module")
def driver(cluster: SparkCluster) -> Iterator[Driver]:
    """A driver whose two executors have both begun to work."""
    with Driver(cluster.url, cluster.root.parent / "driver") as running:
        end = time.monotonic() + DEADLINE
        while len(executors(running.cycle(tasks=4).result(DEADLINE))) < 2:
            assert time.monotonic() < end, "only one executor takes tasks"
        yield running


def executors(parts: list[Part]) -> set[Path]:
    return {part.executor for part in parts}


def figures(parts: list[Part]) -> dict[int, int]:
    """The sum of each row; a row that came twice fails."""
    assert len({part.row for part in parts}) == len(parts)
    return {part.row: part.total for part in parts}


def expected(tasks: int) -> dict[int, int]:
    return {row: row * (row + 1) // 2 for row in range(tasks)}


def test_two_executors_share_the_tasks_of_a_job(driver: Driver, cluster: SparkCluster) -> None:
    parts = driver.cycle(tasks=8, seconds=0.5).result(DEADLINE)
    assert figures(parts) == expected(8)
    shares = {folder: sum(part.executor == folder for part in parts) for folder in executors(parts)}
    assert len(shares) == 2, shares
    assert min(shares.values()) >= 2, shares
    assert {n for n in (0, 1) for folder in shares if folder.is_relative_to(cluster.folder(n))} == {0, 1}


def test_a_cluster_has_as_many_tasks_and_shuffle_partitions_as_cores(driver: Driver) -> None:
    facts = driver.facts()
    assert (facts.parallelism, facts.shuffle_partitions, facts.reads_files) == (2, 2, False)


def test_tasks_run_without_the_files_of_the_driver(driver: Driver, cluster: SparkCluster) -> None:
    parts = driver.cycle(tasks=4).result(DEADLINE)
    assert list(driver.facts().folder.iterdir()), "the driver has files"
    assert {part.sees_driver for part in parts} == {not cluster.hides}
    assert not any(part.executor.is_relative_to(driver.facts().folder) for part in parts)


def test_an_executor_killed_in_the_middle_of_a_job_costs_a_retry_and_no_figure(
    driver: Driver, cluster: SparkCluster
) -> None:
    (victim,) = cluster.executors(0)
    begun = set(cluster.folder(0).glob("work/*/*/begun-*"))
    for marker in begun:
        marker.unlink()

    job = driver.cycle(tasks=6, seconds=3.0)
    end = time.monotonic() + DEADLINE
    while not (lost := list(cluster.folder(0).glob("work/*/*/begun-*"))):
        assert time.monotonic() < end, "no task began"
        assert not job.done()
        time.sleep(0.05)
    os.kill(victim, signal.SIGKILL)

    parts = job.result(DEADLINE)
    assert figures(parts) == expected(6)
    row = int(lost[0].name.removeprefix("begun-"))
    attempts = {part.row: part.attempt for part in parts}
    assert attempts[row] >= 1, "its first attempt died with the executor"
    assert sum(attempts.values()) <= 2, "no other task was repeated"
