"""Fixtures that start the servers that tests use: a Kubernetes control plane and Prometheus.

A missing program is an error, never a skip. Nothing is built here, because that takes longer than a test may:
`make setup controllers` builds the programs.

`make test` distributes the test files over several workers (pytest-xdist), each with its own fixtures. `scheduling`
defines which files stay together; this module defines which come first.
"""

from __future__ import annotations

import itertools
import os
import signal
import sys
import zlib
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import hypothesis
import pytest
import yaml

from policy_environment import RunPolicy, run_scenario
from scheduling import SharedClusterScheduling, part_of
from tiers import E2E, QUICK, SMOKE_TOO, python_only, tier_of
from trimtab_pipeline.spark.java import JavaMissingError, require_java
from trimtab_testbed.programs import find
from trimtab_testbed.programs.build import MissingToolError
from trimtab_testbed.programs.find import KubeBinaries
from trimtab_testbed.servers.kube import ControlPlane

CRDS = Path(__file__).parents[1] / "crds"
PULSAR = Path(__file__).parent / "e2e"
"""The folder of the tests on real Pulsar brokers."""

QUICK_JVM = "-XX:TieredStopAtLevel=1"
"""Restricts Java to its first compiler: a test's JVM runs for seconds, and starts at half the cost."""

GO_HEAP = "400"
"""`GOGC` of kube-apiserver and etcd: they collect garbage more rarely, which saves a tenth of their processor time."""

ARCHIVE = Path(sys.prefix) / "spark.jsa"
"""The classes of Spark's JVM, which `make test-full` and `make e2e` archive once (docs/spark.md, "A faster start")."""

SHARE = "TRIMTAB_SHARE"
"""Variable that names the share of the test files to run: `1/3` is the second third."""

_numbers = itertools.count(1)


hypothesis.settings.register_profile("busy", deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow])


def pytest_configure() -> None:
    """Make the servers that tests start take less processor time, and set no deadline for Hypothesis.

    A background job of a shell ignores SIGINT, and so would the programs that tests interrupt.
    """
    hypothesis.settings.load_profile("busy")
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ.setdefault("GOGC", GO_HEAP)
    _give_options("JAVA_TOOL_OPTIONS", QUICK_JVM)
    if ARCHIVE.exists():  # the JVM ignores one that does not fit
        _give_options("SPARK_SUBMIT_OPTS", f"-XX:SharedArchiveFile={ARCHIVE} -Xlog:cds=off -Xlog:cds+dynamic=off")


def _give_options(variable: str, options: str) -> None:
    given = os.environ.get(variable, "")
    if options not in given:  # a worker inherits it
        os.environ[variable] = f"{given} {options}".strip()


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> SharedClusterScheduling:
    """Keep the files of a shared cluster in one worker."""
    return SharedClusterScheduling(config, log)


_TURNS = (("long",), ("spark", "connect"), ("prometheus", "controllers"), ("apiserver",))
_LAST = len(_TURNS)


@pytest.hookimpl(tryfirst=True)  # before -m chooses
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark each test with its tier, and begin with what takes long, so that no worker is left with it at the end.

    What takes long is what shares a stage, then files by their markers.
    """
    _take_share(config, items)
    for item in items:
        needs = {marker.name for marker in item.iter_markers()} | set(getattr(item, "fixturenames", ()))
        item.add_marker(E2E if PULSAR in item.path.parents else tier_of(needs))
    if smoke_lacks(config):
        smoke = [item for item in items if item.get_closest_marker("smoke")]
        items[:] = [item for item in items if item not in smoke]
        config.hook.pytest_deselected(items=smoke)
    turns: dict[Path, int] = {}
    for item in items:
        turns[item.path] = min(_turn(item), turns.get(item.path, _LAST))
    items.sort(key=lambda item: turns[item.path])  # stable: inside a file, and among equals, as written


def _take_share(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the files that are not in the share `K/N` of `$TRIMTAB_SHARE`, with which CI runs on a slow machine."""
    if share := os.environ.get(SHARE, ""):
        number, parts = map(int, share.split("/"))
        others = [item for item in items if zlib.crc32(item.path.name.encode()) % parts != number]
        left_out = set(others)
        items[:] = [item for item in items if item not in left_out]
        config.hook.pytest_deselected(items=others)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Say that the smoke tests did not run, and why; and that only a share of the files was run."""
    if share := os.environ.get(SHARE, ""):
        terminalreporter.write_line(f"Only a share of the test files was run: ${SHARE}={share}", yellow=True)
    if lacks := smoke_lacks(config):
        terminalreporter.write_line(f"The smoke tests did not run: {lacks}", yellow=True)


def smoke_lacks(config: pytest.Config) -> str:
    """What this machine lacks to run the smoke tests of `make test`; empty when it has all, or elsewhere."""
    if config.getoption("-m") != SMOKE_TOO:
        return ""
    try:
        find.find_kube()
        find.find_prometheus()
        require_java()
    except (MissingToolError, JavaMissingError) as error:
        return str(error)
    return ""


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Hold each test of the quick tier to Python alone."""
    if item.get_closest_marker(QUICK) is None:
        return (yield)
    with python_only(item.nodeid):
        return (yield)


def _turn(item: pytest.Item) -> int:
    path = item.nodeid.split("::", 1)[0]
    if part_of(path) != path:
        return -1
    return next((n for n, names in enumerate(_TURNS) if any(item.get_closest_marker(m) for m in names)), _LAST)


@pytest.fixture(scope="session")
def kube_binaries() -> KubeBinaries:
    """etcd, kube-apiserver and kubectl."""
    return find.find_kube()


@pytest.fixture(scope="session")
def prometheus_binary() -> Path:
    """The Prometheus server program."""
    return find.find_prometheus()


@pytest.fixture(scope="session")
def control_plane(kube_binaries: KubeBinaries, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A control plane that all tests share: leave it running, and work in a `kube_namespace`."""
    with ControlPlane(kube_binaries, tmp_path_factory.mktemp("control-plane")) as running:
        yield running


@pytest.fixture(scope="session")
def full_control_plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A shared control plane with kube-controller-manager: owners collect, namespaces end, Deployments make pods."""
    work_dir = tmp_path_factory.mktemp("full-control-plane")
    with ControlPlane(find.find_kube(controllers=True), work_dir, controllers=True) as running:
        yield running


@pytest.fixture
def own_control_plane(kube_binaries: KubeBinaries, tmp_path: Path) -> Iterator[ControlPlane]:
    """A control plane for one test alone, which may stop and restart it; audit log on, our CRDs applied."""
    with ControlPlane(kube_binaries, tmp_path / "control-plane", audit=True) as running:
        _apply_crds(running)
        yield running


@pytest.fixture(scope="session")
def trimtab_crds(control_plane: ControlPlane) -> ControlPlane:
    """The shared control plane with the CRDs of ``crds/`` applied."""
    _apply_crds(control_plane)
    return control_plane


@pytest.fixture
def kube_namespace(control_plane: ControlPlane) -> str:
    """Name of a fresh Kubernetes namespace of the shared control plane."""
    name = f"test-{os.getpid()}-{next(_numbers)}"
    control_plane.rest.create_namespace(name)
    return name


def _apply_crds(control_plane: ControlPlane) -> None:
    files = sorted(CRDS.glob("*.yaml"))
    assert files, f"no CRDs in {CRDS}: `make crds` renders them"
    control_plane.rest.apply_crds([document for file in files for document in yaml.safe_load_all(file.read_text())])


@pytest.fixture
def run_policy(trimtab_crds: ControlPlane, kube_namespace: str) -> RunPolicy:
    return partial(run_scenario, trimtab_crds, kube_namespace)
