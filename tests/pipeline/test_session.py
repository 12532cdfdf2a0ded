"""The Spark session: where it runs, what it asks of the machine, how its errors read."""

from __future__ import annotations

import errno
import os
import queue
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PythonException
from pyspark.sql import SparkSession

from trimtab_pipeline.api import SourceUnavailableError
from trimtab_pipeline.spark import session
from trimtab_pipeline.spark.embedded import exits, hangs
from trimtab_pipeline.spark.outcomes import as_source_error, described
from trimtab_pipeline.spark.session import Engine, interrupt_until
from trimtab_pipeline.spark.settings import SparkSettings, usable_cores


@pytest.mark.parametrize(("master", "cores"), [("local[3]", 3), ("spark://a:7077,b:7077", 0), ("sc://spark:15002", 0)])
def test_cores_are_known_for_a_local_master_and_remote_ones_decide_themselves(master: str, cores: int) -> None:
    settings = SparkSettings(master)
    assert (settings.cores, settings.remote) == (cores, not cores)


def test_a_cluster_calls_back_at_the_address_from_which_it_is_reached(tmp_path: Path) -> None:
    options = SparkSettings("spark://127.0.0.1:7077").driver_options(tmp_path, tmp_path / "log4j2.properties")
    assert (options["spark.driver.host"], options["spark.master"]) == ("127.0.0.1", "spark://127.0.0.1:7077")
    folders = {name for name, value in options.items() if str(tmp_path) in value}
    assert folders == {"spark.driver.extraJavaOptions", "spark.local.dir", "spark.sql.warehouse.dir"}, (
        "the driver's own"
    )


def test_a_master_without_an_address_is_named(tmp_path: Path) -> None:
    with pytest.raises(SourceUnavailableError, match=r"no way to Spark's master spark\.invalid:7077"):
        SparkSettings("spark://spark.invalid:7077").driver_options(tmp_path, tmp_path / "log4j2.properties")


def cgroup(folder: Path, name: str, **files: str) -> None:
    (folder / name).mkdir(parents=True, exist_ok=True)
    for file, text in files.items():
        (folder / name / file.replace("__", ".")).write_text(f"{text}\n")


@pytest.mark.parametrize(("quota", "cores"), [("max", 64), ("200000", 2), ("150000", 2), ("50000", 1), ("9900000", 64)])
def test_no_more_cores_are_used_than_the_container_may_use(tmp_path: Path, quota: str, cores: int) -> None:
    cgroup(tmp_path, "", cpu__max=f"{quota} 100000")
    assert usable_cores(64, tmp_path, "0::/\n") == cores


def test_the_tightest_quota_of_all_groups_around_counts(tmp_path: Path) -> None:
    cgroup(tmp_path, "pods/ours", cpu__max="max 100000")
    cgroup(tmp_path, "pods", cpu__max="300000 100000")
    assert usable_cores(64, tmp_path, "0::/pods/ours\n") == 3


def test_older_cgroups_have_a_quota_in_two_files(tmp_path: Path) -> None:
    cgroup(tmp_path, "cpu", cpu__cfs_quota_us="200000", cpu__cfs_period_us="100000")
    assert usable_cores(64, tmp_path, "4:cpu,cpuacct:/kubepods/ours\n1:name=systemd:/\n") == 2
    cgroup(tmp_path, "cpu", cpu__cfs_quota_us="-1")
    assert usable_cores(64, tmp_path, "4:cpu,cpuacct:/kubepods/ours\n") == 64


@pytest.mark.parametrize("text", ["", "banana", "200000", "200000 0"])
def test_a_quota_that_cannot_be_read_limits_nothing(tmp_path: Path, text: str) -> None:
    cgroup(tmp_path, "", cpu__max=text)
    assert usable_cores(64, tmp_path, "0::/\n") == 64
    assert usable_cores(64, tmp_path / "none", "") == 64


def test_all_cores_are_those_that_this_process_may_use() -> None:
    assert 1 <= SparkSettings("local[*]").cores <= len(os.sched_getaffinity(0))


@pytest.mark.parametrize("master", ["local", "yarn", "spark://host", "local[2,3]"])
def test_other_masters_are_refused_with_those_that_work(master: str) -> None:
    with pytest.raises(ValueError, match=r"must be local\[N\], local\[\*\], spark://host:port or sc://host:port"):
        SparkSettings(master)


@pytest.mark.parametrize("memory", ["100m", "700", "lots", "700 MB"])
def test_memory_that_spark_would_refuse_is_refused_with_the_bound(memory: str) -> None:
    with pytest.raises(ValueError, match=rf"'{memory}' must be 480m or more, such as 700m or 1g"):
        SparkSettings(memory=memory)


def test_the_door_loads_neither_spark_nor_arrow_nor_pandas() -> None:
    code = "import sys, trimtab_pipeline.api; sys.exit(bool({'pyspark', 'pyarrow', 'pandas'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.slow
def test_a_busy_process_is_waited_for_and_an_idle_one_is_not() -> None:
    def hanging(code: str) -> bool:
        with subprocess.Popen([sys.executable, "-c", f"print(flush=True)\n{code}"], stdout=subprocess.PIPE) as process:
            assert process.stdout
            process.stdout.readline()
            found = hangs(process.pid, lambda seconds: exits(process, seconds))
            process.kill()
        return found

    assert not hanging("import time; end = time.monotonic() + 4\nwhile time.monotonic() < end: pass")
    assert hanging("import time; time.sleep(60)")


def test_what_the_history_lacks_is_reported_with_its_path_and_the_fix() -> None:
    error = as_source_error(PermissionError(13, "Permission denied", "/var/history"))
    assert isinstance(error, SourceUnavailableError)
    assert str(error).endswith("Permission denied: '/var/history'; give a folder that can be read and written")


FULL = OSError(errno.ENOSPC, "No space left on device")
FULL_HISTORY = OSError(errno.ENOSPC, "No space left on device", "/history/x")
NAMED = "/scratch is full: free space there, or set TMPDIR to another folder"


@pytest.mark.parametrize(
    ("error", "free", "told"),
    [
        (FULL, 0, f"a temporary file can't be written: {FULL}; {NAMED}"),
        (
            PythonException("java.io.IOException: No space left on device"),
            4096,
            f"Spark could not run the cycle: PythonException: java.io.IOException: No space left on device; {NAMED}",
        ),
        (FULL, 2**30, f"the history can't be used: {FULL}; give a folder that can be read and written"),
        (FULL_HISTORY, 0, f"the history can't be used: {FULL_HISTORY}; give a folder that can be read and written"),
        (
            PythonException("java.io.IOException: gone"),
            0,
            "Spark could not run the cycle: PythonException: java.io.IOException: gone",
        ),
    ],
)
def test_a_full_folder_of_temporary_files_is_named(
    error: Exception, free: int, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", "/scratch")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=free))
    assert str(as_source_error(error)) == told


def test_workers_without_trimtab_are_reported_with_the_remedy() -> None:
    error = as_source_error(
        PythonException(
            "\n  An exception was thrown from the Python worker. Please see the stack trace below.\n"
            'Traceback (most recent call last):\n  File "worker.py", line 4207, in invoke_udf\n'
            "ModuleNotFoundError: No module named 'trimtab_pipeline'\n SQLSTATE: 38000"
        )
    )
    assert str(error) == (
        "Spark could not run the cycle: ModuleNotFoundError: No module named 'trimtab_pipeline'; "
        "install the same version of Trimtab in the Python of Spark's workers (PYSPARK_PYTHON)"
    )


def test_an_error_in_a_task_is_reported_by_the_last_line_of_its_last_traceback() -> None:
    error = as_source_error(
        PythonException(
            "\n  An exception was thrown from the Python worker. Please see the stack trace below.\n"
            'Traceback (most recent call last):\n  File "state.py", line 7, in opened\n    return path.open()\n'
            "           ^^^^^^^^^^^\nFileNotFoundError: [Errno 2] No such file or directory: 'x'\n\n"
            "The above exception was the direct cause of the following exception:\n\n"
            'Traceback (most recent call last):\n  File "state.py", line 9, in read\n    raise StateError(path)\n'
            "state.StateError: x can't be read\n SQLSTATE: 38000\n"
        )
    )
    assert str(error) == "Spark could not run the cycle: state.StateError: x can't be read (in a task)"


def test_an_error_of_the_jvm_is_reported_by_its_cause() -> None:
    told = (
        "An error occurred while calling None.org.apache.spark.api.java.JavaSparkContext.\n"
        ": java.lang.IllegalStateException: Spark context stopped while waiting for backend\n\tat org.apache.spark.X"
    )
    assert described(Py4JError(told)) == "IllegalStateException: Spark context stopped while waiting for backend"


def test_an_error_of_the_jvm_within_another_is_the_cause() -> None:
    told = (
        "An error occurred while calling o1.collectAsArrowToPython.\n"
        ": org.apache.spark.SparkException: Exception thrown in awaitResult: \n\tat org.apache.spark.X\n"
        "Caused by: java.lang.UnsatisfiedLinkError: /tmp/libx.so: failed to map segment\n\tat java.base/java.X\n"
    )
    assert described(Py4JError(told)) == "UnsatisfiedLinkError: /tmp/libx.so: failed to map segment"


def test_cancelling_never_waits_for_spark_and_asks_until_the_job_has_ended() -> None:
    asked, answer, ended = queue.SimpleQueue[str](), threading.Event(), Future[None]()

    def interrupt() -> None:
        asked.put("job-1")
        answer.wait(10)

    begin = time.monotonic()
    interrupt_until(ended, interrupt)
    assert time.monotonic() - begin < 0.5
    assert asked.get(timeout=5) == "job-1"
    answer.set()
    assert asked.get(timeout=5) == "job-1"
    ended.set_result(None)


class HangingSpark:
    """A Spark whose sessions answer no call until they are given up. asleep: hangs already before the next job."""

    def __init__(self) -> None:
        self.sessions, self.given_up, self.asleep = 0, list[str](), False
        self._released = threading.Event()

    def start(self, closed: Callable[[], bool]) -> SparkSession:  # noqa: ARG002
        self.sessions += 1
        self._released = threading.Event()
        return cast("SparkSession", self)

    @property
    def conf(self) -> HangingSpark:
        return self

    def get(self, _name: str) -> None:
        self.wait()

    def wait(self) -> None:
        """A call that does not return while Spark hangs."""
        self._released.wait(60)
        raise ConnectionError("killed")

    def lost(self, session: SparkSession) -> str:  # noqa: ARG002
        if self.asleep:
            self.asleep = False
            with suppress(ConnectionError):
                self.wait()
        return ""

    def forget(self, session: SparkSession) -> None: ...

    def give_up(self, why: str) -> None:
        self.given_up.append(why)
        self._released.set()

    def stop(self, session: SparkSession) -> None: ...

    def await_stop(self, stopped: Future[None]) -> None:
        stopped.result()

    def addTag(self, tag: str) -> None: ...  # noqa: N802  (PySpark's name)

    def removeTag(self, tag: str) -> None: ...  # noqa: N802

    def interruptTag(self, tag: str) -> None:  # noqa: ARG002, N802
        self.wait()

    def interruptAll(self) -> None: ...  # noqa: N802


@pytest.fixture
def hanging(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Engine, HangingSpark]]:
    """An engine on a Spark that hangs; time limits are short."""
    spark = HangingSpark()
    monkeypatch.setattr(session, "_backend", lambda *_: spark)
    monkeypatch.setattr(session, "_ANSWERS_WITHIN", 0.2)
    engine = Engine(SparkSettings("local[1]"))
    yield engine, spark
    engine.close()


def test_a_spark_that_hangs_is_given_up_once_and_leaves_no_thread_behind(
    hanging: tuple[Engine, HangingSpark], caplog: pytest.LogCaptureFixture
) -> None:
    engine, spark = hanging
    assert engine.run(lambda _: 1, 60).result(60) == 1
    before = threading.active_count()
    late = [engine.run(lambda _: spark.wait(), 0.1) for _ in range(5)]
    for one in late:
        with pytest.raises(SourceUnavailableError, match=r"deadline of 0\.1 s"):
            one.result(60)
    assert engine.run(lambda _: 2, 60).result(60) == 2
    assert (spark.sessions, spark.given_up) == (2, ["Spark did not answer for 0.2 s"])
    assert "making another session in place of the one that hung" in caplog.text
    end = time.monotonic() + 30
    while threading.active_count() > before:
        assert time.monotonic() < end, threading.enumerate()
        time.sleep(0.01)


def test_a_spark_that_hangs_between_two_jobs_costs_none_of_them(hanging: tuple[Engine, HangingSpark]) -> None:
    engine, spark = hanging
    assert engine.run(lambda _: 1, 60).result(60) == 1
    spark.asleep = True
    assert engine.run(lambda _: 2, 60).result(60) == 2
    assert (spark.sessions, len(spark.given_up)) == (2, 1)


def test_closing_starts_no_other_session_in_place_of_one_that_hangs(
    hanging: tuple[Engine, HangingSpark], caplog: pytest.LogCaptureFixture
) -> None:
    engine, spark = hanging
    assert engine.run(lambda _: 1, 60).result(60) == 1
    spark.asleep = True
    waiting = engine.run(lambda _: 2, 60)
    end = time.monotonic() + 30
    while spark.asleep:  # until the job asks whether Spark still runs
        assert time.monotonic() < end
        time.sleep(0.01)
    engine.close()
    with pytest.raises(SourceUnavailableError, match="was closed"):
        waiting.result(60)
    assert spark.sessions == 1
    assert "another session" not in caplog.text


def test_a_job_that_ignores_interrupts_is_ended_with_its_session(
    hanging: tuple[Engine, HangingSpark], monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, spark = hanging
    monkeypatch.setattr(session, "_ENDS_WITHIN", 0.2)
    monkeypatch.setattr(HangingSpark, "get", lambda *_: None)
    monkeypatch.setattr(HangingSpark, "interruptTag", lambda *_: None)
    late = engine.run(lambda _: spark.wait(), 0.1)
    assert late.exception(60) is not None
    assert engine.run(lambda _: 2, 60).result(60) == 2
    assert spark.given_up == ["Spark did not end a job within 0.2 s after its deadline"]


def test_a_start_that_hangs_is_given_up_and_tried_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Slow(HangingSpark):
        def start(self, closed: Callable[[], bool]) -> SparkSession:
            started = super().start(closed)
            if self.sessions == 1:
                self.wait()
            return started

    spark = Slow()
    monkeypatch.setattr(session, "_backend", lambda *_: spark)
    monkeypatch.setattr(session, "_STARTS_WITHIN", 0.2)
    engine = Engine(SparkSettings("local[1]"))
    assert engine.run(lambda _: 1, 60).result(60) == 1
    engine.close()
    assert spark.given_up == ["Spark did not start within 0.2 s"]
    assert "Spark did not start (ConnectionError: killed); trying again" in caplog.text
