"""The JVM of a Spark session may fail to start, be killed, give up or hang; it costs at most the cycle under way."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from trimtab_pipeline.spark.session import Scratch

pytestmark = pytest.mark.spark

_LIFE = """
import os, sys
from pathlib import Path

sys.path.insert(0, sys.argv[2])
from fake_prometheus import FakePrometheus, add_broker
from pipeline_clusters import topology
from pyspark import SparkContext
from trimtab_pipeline.api import PrometheusSettings, SourceUnavailableError
from trimtab_pipeline.factory import spark_sources
from trimtab_testbed.servers.processes import children

sources = spark_sources(Path(sys.argv[1]), master="local[1]")
with FakePrometheus() as fake:
    add_broker(fake, "a")
    source = sources.open("ns/policy", PrometheusSettings(fake.url, "pulsar"))
    world = topology({"a": "a"}, {})
    assert source.observe(world, 1750000000.0).result().load.brokers.trusted.all()
    jvm = SparkContext._gateway.proc
    daemons = [Path(f"/proc/{pid}/cmdline").read_text() for pid in children()[jvm.pid]]
    assert daemons and not any("lookup_data_sources" in command for command in daemons), daemons
    assert "PYSPARK_DRIVER_PYTHON" not in os.environ  # a Spark server that this process starts needs a real one
    jvm.kill()
    jvm.wait()
    assert source.observe(world, 1750000060.0).result().load.brokers.trusted.all()
    jvm = SparkContext._gateway.proc
sources.close()
sources.close()
assert jvm.poll() is not None, "the JVM outlived its session"
try:
    source.observe(world, 1750000120.0).result()
except SourceUnavailableError as error:
    assert "closed" in str(error)
"""


_KILLED_MEANWHILE = """
import sys, time
from pathlib import Path

sys.path.insert(0, sys.argv[2])
from fake_prometheus import FakePrometheus, Faults, add_broker
from pipeline_clusters import topology
from pyspark import SparkContext
from trimtab_pipeline.api import PrometheusSettings, SourceUnavailableError
from trimtab_pipeline.factory import spark_sources

sources = spark_sources(Path(sys.argv[1]), master="local[1]")
world = topology({"a": "a"}, {})
with FakePrometheus() as fake:
    add_broker(fake, "a")
    source = sources.open("ns/policy", PrometheusSettings(fake.url, "pulsar", timeout=60))
    source.observe(world, 1750000000.0).result()
    fake.faults = Faults(delay=50)
    cut_short = source.observe(world, 1750000060.0)
    time.sleep(1)
    begin = time.monotonic()
    SparkContext._gateway.proc.kill()
    try:
        cut_short.result(timeout=60)
    except SourceUnavailableError as error:
        print(error)
    assert time.monotonic() - begin < 30, "a cycle outlived its JVM"
    fake.faults = Faults()
    assert len(source.observe(world, 1750000120.0).result().load.brokers) == 1
sources.close()
"""

_OUT_OF_MEMORY = """
import sys
from pathlib import Path
from trimtab_pipeline.api import SourceUnavailableError
from trimtab_pipeline.factory import spark_sources

sources = spark_sources(Path(sys.argv[1]), master="local[1]", memory="480m")
hungry = "select size(collect_list(repeat(cast(id as string), 1000000))) from range(4000)"
try:
    sources._engine.run(lambda spark: spark.sql(hungry).collect(), 120).result()
except SourceUnavailableError as error:
    print(error)
sources.warm_up().result()
sources.close()
"""

_CLOSING = """
import sys, time
from pathlib import Path

sys.path.insert(0, sys.argv[2])
from fake_prometheus import FakePrometheus, Faults, add_broker
from pipeline_clusters import topology
from trimtab_pipeline.api import PrometheusSettings, SourceUnavailableError
from trimtab_pipeline.factory import spark_sources

sources = spark_sources(Path(sys.argv[1]), master="local[1]")
world = topology({"a": "a"}, {})
with FakePrometheus() as fake:
    add_broker(fake, "a")
    policies = [sources.open(f"ns/{n}", PrometheusSettings(fake.url, "pulsar", timeout=60)) for n in range(3)]
    assert policies[0].observe(world, 1750000000.0).result().load.brokers.trusted.all()
    fake.faults = Faults(delay=50)
    looks = [policy.observe(world, 1750000060.0) for policy in policies]
    time.sleep(1)
    begin = time.monotonic()
    sources.close()
    took = time.monotonic() - begin
    for look in looks:
        assert "was closed" in str(look.exception(timeout=0)), look.exception(timeout=0)
    assert took < 30, f"closing took {took:.1f} s"
"""

_SECOND_TRY = """
import os, sys
from pathlib import Path
from trimtab_pipeline.api import SourceUnavailableError
from trimtab_pipeline.factory import spark_sources

fake = Path(sys.argv[1], "bin", "java")
fake.parent.mkdir()
fake.write_text("#!/bin/sh\\necho 'openjdk version \\"17\\"' >&2\\nexit 1\\n")
fake.chmod(0o755)
home = os.environ.get("JAVA_HOME")
os.environ["JAVA_HOME"] = sys.argv[1]
sources = spark_sources(Path(sys.argv[1]), master="local[1]")
try:
    sources.warm_up().result()
except SourceUnavailableError as error:
    print(error)
del os.environ["JAVA_HOME"]
os.environ.update({"JAVA_HOME": home} if home else {})
sources.warm_up().result()
sources.close()
"""

_STOPPED = """
import sys
from pathlib import Path
from trimtab_pipeline.factory import spark_sources

sources = spark_sources(Path(sys.argv[1]), master="local[1]")
sources._engine.run(lambda spark: spark.sparkContext._jsc.sc().stop(), 120).result()
sources.warm_up().result()
sources.close()
"""

_HANGING = """
import logging, os, signal, sys, time
from pathlib import Path
from pyspark import SparkContext
from trimtab_pipeline.factory import spark_sources

logging.basicConfig(level=logging.INFO)
sources = spark_sources(Path(sys.argv[1]), master="local[1]")
sources.warm_up().result()
os.kill(SparkContext._gateway.proc.pid, signal.SIGSTOP)
begin = time.monotonic()
sources.close()
assert time.monotonic() - begin < 20
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
sources.close()
"""

_WRONG_DEFAULTS = """
import os, sys
from pathlib import Path
from trimtab_pipeline.api import SourceUnavailableError
from trimtab_pipeline.factory import spark_sources

defaults = Path(sys.argv[1], "spark-defaults.conf")
defaults.write_text("spark.shuffle.manager no.such.Manager")
os.environ["SPARK_CONF_DIR"] = sys.argv[1]
sources = spark_sources(Path(sys.argv[1]), master="local[1]")
try:
    sources.warm_up().result()
except SourceUnavailableError as error:
    print(error)
defaults.unlink()
sources.warm_up().result()
sources.close()
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


def test_a_lost_jvm_is_replaced_and_none_is_left_behind(tmp_path: Path) -> None:
    python, *rest = program(_LIFE, tmp_path)
    ended = run([python, "-X", "dev", *rest])
    assert ended.stdout == "", ended.stderr
    assert "JVM is gone (it was killed" in ended.stderr
    assert "ResourceWarning" not in ended.stderr


def test_a_jvm_killed_in_the_middle_of_a_cycle_costs_that_cycle_only_and_is_reported(tmp_path: Path) -> None:
    ended = run(program(_KILLED_MEANWHILE, tmp_path))
    assert "Spark could not run the cycle" in ended.stdout
    assert "Spark's JVM is gone (it was killed: by the kernel, if" in ended.stderr
    assert "Exception occurred during processing of request" not in ended.stderr


def test_a_jvm_out_of_memory_ends_is_replaced_and_reported_with_the_remedy(tmp_path: Path) -> None:
    ended = run(program(_OUT_OF_MEMORY, tmp_path))
    assert "Spark could not run the cycle" in ended.stdout
    assert "JVM is gone (it ran out of its 480m of memory: give it more); starting another one" in ended.stderr


def test_closing_waits_neither_for_a_slow_server_nor_for_cycles_in_the_queue(tmp_path: Path) -> None:
    run(program(_CLOSING, tmp_path))


def test_a_context_that_does_not_start_is_reported_with_its_cause_and_tried_again(tmp_path: Path) -> None:
    ended = run(program(_WRONG_DEFAULTS, tmp_path))
    assert ended.stdout.startswith("Spark did not start on local[1]: ClassNotFoundException: no.such.Manager")
    assert "trying again" in ended.stderr


def test_a_context_that_ended_by_itself_is_replaced_with_its_jvm(tmp_path: Path) -> None:
    ended = run(program(_STOPPED, tmp_path))
    assert "local[1] dropped the application (no reason); starting another driver" in ended.stderr


def test_closing_kills_a_jvm_that_hangs_and_says_so_in_one_line(tmp_path: Path) -> None:
    ended = run(program(_HANGING, tmp_path))
    said = [line for line in ended.stderr.splitlines() if "JAVA_TOOL_OPTIONS" not in line]
    assert said == [
        "WARNING:trimtab_pipeline.spark.embedded:Spark did not stop: its JVM did nothing for 2 s; killing it"
    ]


def test_a_jvm_that_hangs_is_killed_and_replaced_and_no_thread_waits_for_it(tmp_path: Path) -> None:
    ended = run(program(_HANGS_MEANWHILE, tmp_path))
    assert [line.endswith("deadline of 2 s") for line in ended.stdout.splitlines()] == [True] * 4
    said = [line for line in ended.stderr.splitlines() if "JAVA_TOOL_OPTIONS" not in line]
    assert said == [
        "Spark did not answer for 30 s; killing its JVM",
        "making another session in place of the one that hung",
    ]


def test_a_session_that_could_not_start_is_started_by_the_next_cycle(tmp_path: Path) -> None:
    ended = run(program(_SECOND_TRY, tmp_path))
    assert "Spark could not run the cycle" in ended.stdout
    assert "Spark did not start" in ended.stderr


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
