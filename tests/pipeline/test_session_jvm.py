"""The JVM of a Spark session may fail to start, be killed, give up or hang; it costs at most the cycle under way."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from trimtab_pipeline.spark.session import Scratch

pytestmark = pytest.mark.spark

_LIFE = """
import os, sys, time
from contextlib import suppress
from pathlib import Path

sys.path.insert(0, sys.argv[2])
from fake_prometheus import FakePrometheus, Faults, add_broker
from pipeline_clusters import topology
from pyspark import SparkContext
from trimtab_pipeline.api import PrometheusSettings, SourceUnavailableError
from trimtab_pipeline.factory import spark_sources
from trimtab_testbed.servers.processes import children

folder = Path(sys.argv[1])
world = topology({"a": "a"}, {})


def refused(job):
    try:
        job.result(timeout=120)
    except SourceUnavailableError as error:
        print(error, flush=True)
    else:
        print("no error", flush=True)


def begin(chapter):
    print("-", chapter, flush=True)
    print("-", chapter, file=sys.stderr, flush=True)


begin("no JVM")
java = folder / "bin" / "java"
java.parent.mkdir()
java.write_text("#!/bin/sh\\necho 'openjdk version \\"17\\"' >&2\\nexit 1\\n")
java.chmod(0o755)
home = os.environ.get("JAVA_HOME")
os.environ["JAVA_HOME"] = str(folder)
sources = spark_sources(folder, master="local[1]", memory="480m")
refused(sources.warm_up())
del os.environ["JAVA_HOME"]
os.environ.update({"JAVA_HOME": home} if home else {})

begin("no context")
defaults = folder / "spark-defaults.conf"
defaults.write_text("spark.shuffle.manager no.such.Manager")
os.environ["SPARK_CONF_DIR"] = str(folder)
refused(sources.warm_up())
defaults.unlink()
del os.environ["SPARK_CONF_DIR"]

with FakePrometheus() as fake:
    add_broker(fake, "a")
    policies = [sources.open(f"ns/{n}", PrometheusSettings(fake.url, "pulsar", timeout=60)) for n in range(3)]
    source, at = policies[0], 1750000000.0

    def measure():
        global at
        at += 60
        return source.observe(world, at)

    begin("started")
    assert measure().result().load.brokers.trusted.all()
    jvm = SparkContext._gateway.proc
    commands = []
    for pid in children()[jvm.pid]:
        with suppress(OSError):  # a short-lived one
            commands.append(Path(f"/proc/{pid}/cmdline").read_text().split(chr(0)))
    daemons = [words[1:4] for words in commands if "python" in words[0]]
    assert daemons == [["-m", "trimtab_pipeline.spark.worker_daemon", "pyspark.worker"]], daemons

    begin("context stopped")
    sources._engine.run(lambda spark: spark.sparkContext._jsc.sc().stop(), 120).result()
    assert measure().result().load.brokers.trusted.all()

    begin("out of memory")
    hungry = "select size(collect_list(repeat(cast(id as string), 1000000))) from range(4000)"
    refused(sources._engine.run(lambda spark: spark.sql(hungry).collect(), 120))
    assert measure().result().load.brokers.trusted.all()

    begin("killed in a cycle")
    fake.faults = Faults(delay=50)
    cut_short = measure()
    time.sleep(1)
    began = time.monotonic()
    SparkContext._gateway.proc.kill()
    refused(cut_short)
    assert time.monotonic() - began < 30, "a cycle outlived its JVM"
    fake.faults = Faults()
    assert measure().result().load.brokers.trusted.all()

    begin("killed between cycles")
    jvm = SparkContext._gateway.proc
    jvm.kill()
    jvm.wait()
    assert measure().result().load.brokers.trusted.all()

    begin("closed")
    jvm = SparkContext._gateway.proc
    fake.faults = Faults(delay=50)
    looks = [policy.observe(world, at + 60.0) for policy in policies]
    time.sleep(1)
    began = time.monotonic()
    sources.close()
    assert time.monotonic() - began < 30, f"closing took {time.monotonic() - began:.1f} s"
    sources.close()
    for look in looks:
        assert "was closed" in str(look.exception(timeout=0)), look.exception(timeout=0)
    refused(measure())
    assert jvm.poll() is not None, "the JVM outlived its session"
"""

_HANGS_MEANWHILE = """
import logging, os, signal, sys, threading, time
from pathlib import Path

sys.path.insert(0, sys.argv[2])
from fake_prometheus import FakePrometheus, Faults, add_broker
from pipeline_clusters import topology
from pyspark import SparkContext
from trimtab_pipeline.api import PrometheusSettings, SourceUnavailableError
from trimtab_pipeline.factory import spark_sources

logging.basicConfig(format="%(message)s")
sources = spark_sources(Path(sys.argv[1]), master="local[1]")
world = topology({"a": "a"}, {})
with FakePrometheus() as fake:
    add_broker(fake, "a")
    patient, short = (
        sources.open(f"ns/{deadline}", PrometheusSettings(fake.url, "pulsar", timeout=60), deadline=deadline)
        for deadline in (200, 2)
    )
    patient.observe(world, 1750000000.0).result()
    threads = threading.active_count()
    fake.faults = Faults(delay=10)
    late = short.observe(world, 1750000060.0)
    time.sleep(1)
    jvm = SparkContext._gateway.proc
    os.kill(jvm.pid, signal.SIGSTOP)
    late = [late] + [short.observe(world, 1750000060.0 + n) for n in range(3)]
    for one in late:
        print(one.exception())
    fake.faults = Faults()
    assert patient.observe(world, 1750000120.0).result().load.brokers.trusted.all()
    assert jvm.poll() == -signal.SIGKILL
    end = time.monotonic() + 60
    while threading.active_count() > threads:
        assert time.monotonic() < end, threading.enumerate()
        time.sleep(0.1)
print("closing", file=sys.stderr, flush=True)
os.kill(SparkContext._gateway.proc.pid, signal.SIGSTOP)
begin = time.monotonic()
sources.close()
assert time.monotonic() - begin < 20
"""

_KILLED = """
import sys, time
from pathlib import Path
from pyspark import SparkContext
from trimtab_pipeline.factory import spark_sources

sources = spark_sources(Path(sys.argv[1]), master="local[1]")
sources.warm_up().result()
print(SparkContext._gateway.proc.pid, sources._engine._folder, flush=True)
time.sleep(60)
"""


def program(code: str, folder: Path) -> list[str]:
    support = Path(__file__).parents[1] / "support" / "prometheus"
    return [sys.executable, "-W", "error", "-c", code, str(folder), str(support)]


def run(command: list[str]) -> subprocess.CompletedProcess[str]:
    ended = subprocess.run(command, capture_output=True, text=True, timeout=400, check=False)
    assert ended.returncode == 0, ended.stderr
    return ended


@pytest.fixture(scope="module")
def life(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, tuple[str, str]]:
    """Output and log of one program, by chapter: its JVM is lost in one way after the other."""
    python, *rest = program(_LIFE, tmp_path_factory.mktemp("life"))
    ended = run([python, "-X", "dev", *rest])
    output, log = chapters(ended.stdout), chapters(ended.stderr)
    return {name: (output[name], log[name]) for name in output}


def chapters(text: str) -> dict[str, str]:
    parts = [part.partition("\n") for part in re.split(r"^- ", text, flags=re.MULTILINE)[1:]]
    return {name: rest for name, _, rest in parts}


def test_a_session_that_could_not_start_is_started_by_the_next_cycle(life: Mapping[str, tuple[str, str]]) -> None:
    output, log = life["no JVM"]
    assert "Spark could not run the cycle" in output
    assert "Spark did not start" in log


def test_a_context_that_does_not_start_is_reported_with_its_cause_and_tried_again(
    life: Mapping[str, tuple[str, str]],
) -> None:
    output, log = life["no context"]
    assert output.startswith("Spark did not start on local[1]: ClassNotFoundException: no.such.Manager")
    assert "trying again" in log
    assert "no.such.Manager); trying again" in life["started"][1]
    assert life["started"][0] == ""


def test_a_context_that_ended_by_itself_is_replaced_with_its_jvm(life: Mapping[str, tuple[str, str]]) -> None:
    assert "local[1] dropped the application (no reason); starting another driver" in life["context stopped"][1]


def test_a_jvm_out_of_memory_ends_is_replaced_and_reported_with_the_remedy(life: Mapping[str, tuple[str, str]]) -> None:
    output, log = life["out of memory"]
    assert "Spark could not run the cycle" in output
    assert "JVM is gone (it ran out of its 480m of memory: give it more); starting another one" in log


def test_a_jvm_killed_in_the_middle_of_a_cycle_costs_that_cycle_only_and_is_reported(
    life: Mapping[str, tuple[str, str]],
) -> None:
    output, log = life["killed in a cycle"]
    assert "Spark could not run the cycle" in output
    assert "Spark's JVM is gone (it was killed: by the kernel, if" in log
    assert "Exception occurred during processing of request" not in log


def test_a_lost_jvm_is_replaced_without_an_error(life: Mapping[str, tuple[str, str]]) -> None:
    output, log = life["killed between cycles"]
    assert output == "", log
    assert "JVM is gone (it was killed" in log
    assert not any("ResourceWarning" in life[chapter][1] for chapter in ("started", "killed between cycles", "closed"))


def test_closing_waits_neither_for_a_slow_server_nor_for_cycles_in_the_queue(
    life: Mapping[str, tuple[str, str]],
) -> None:
    assert "closed" in life["closed"][0]


def test_a_jvm_that_hangs_is_killed_and_replaced_and_no_thread_waits_for_it(tmp_path: Path) -> None:
    ended = run(program(_HANGS_MEANWHILE, tmp_path))
    assert [line.endswith("deadline of 2 s") for line in ended.stdout.splitlines()] == [True] * 4
    said = [line for line in ended.stderr.splitlines() if "JAVA_TOOL_OPTIONS" not in line]
    assert said == [
        "Spark did not answer for 30 s; killing its JVM",
        "making another session in place of the one that hung",
        "closing",
        "Spark did not stop: its JVM did nothing for 2 s; killing it",
    ]


def test_a_killed_program_takes_its_jvm_along_and_its_folder_goes_with_the_next(tmp_path: Path) -> None:
    with subprocess.Popen(program(_KILLED, tmp_path), stdout=subprocess.PIPE, text=True) as victim:
        try:
            assert victim.stdout
            jvm, folder = victim.stdout.readline().split()
        finally:
            victim.kill()
    end = time.monotonic() + 20
    while Path("/proc", jvm).exists():
        assert time.monotonic() < end, f"the JVM {jvm} outlived its program"
        time.sleep(0.1)
    Scratch().remove()
    assert not Path(folder).exists()
