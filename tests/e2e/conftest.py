"""Real Pulsar clusters for the tests here. `make e2e` runs three of them at the same time.

A cluster takes about 15 seconds to start and a gigabyte of memory. So the tests of a load manager share one or two,
each with an operator, and each test starts without policies and namespaces.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling

from real_pulsar import distribution
from real_pulsar.cluster import PulsarCluster
from real_pulsar.security import TlsSecurity
from real_pulsar.settings import LoadManagerKind
from real_pulsar_cluster import SMALL_BROKERS, RealPulsarCluster
from trimtab_testbed.programs.find import KubeBinaries

HERE = Path(__file__).parent

REST = "rest"
"""Scope of tests with a cluster of their own."""

SECOND = frozenset({"migrate", "moves", "own_balancer", "splits", "sync", "trim"})
"""Files (``test_NAME.py``) whose tests on modular brokers have a second cluster, because one would take too long."""

TIMEOUT = 600
"""Seconds for a test including start-up: on a shared machine a cluster takes minutes."""

FIGURE = "figure"
"""Property of a test's report, with a line of figures from the worker process."""


class ByCluster(LoadScopeScheduling):  # type: ignore[misc]  # pytest-xdist says no types
    """All tests that share a cluster run in one process, one after the other."""

    def _split_scope(self, nodeid: str) -> str:
        manager = next((str(manager) for manager in LoadManagerKind if f"[{manager}" in nodeid), REST)
        file = Path(nodeid.split("::", 1)[0]).stem.removeprefix("test_")
        return f"{manager}, second" if manager == LoadManagerKind.MODULAR and file in SECOND else manager


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> ByCluster:
    """All clusters at once, where there are enough processes."""
    return ByCluster(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give all tests of this folder their time limit and their order.

    First come all tests of one load manager, then all of the other, then the rest. Settling by rate comes first of
    each: it measures moves to brokers that have served nothing yet, which cost more. Settling by CPU comes late: while
    all clusters start, every broker looks busy. The board comes last: it shows what all tests did.
    """
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.timeout(TIMEOUT))
    items.sort(key=_turn)


def _turn(item: pytest.Item) -> tuple[int, int]:
    if not item.path.is_relative_to(HERE):
        return 0, 0
    callspec = getattr(item, "callspec", None)
    manager = callspec.params.get("load_manager") if callspec is not None else None
    managers = list(LoadManagerKind)
    run = {"test_settling": 2 if callspec is not None and callspec.params.get("name") == "cpu" else 0, "test_board": 3}
    return managers.index(manager) if manager in managers else len(managers), run.get(item.path.stem, 1)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print the measured figures, also when all tests passed."""
    reports = [report for found in ("passed", "failed") for report in terminalreporter.getreports(found)]
    if figures := [line for report in reports for name, line in report.user_properties if name == FIGURE]:
        terminalreporter.section("what moves cost clients (median / maximum)")
        for line in figures:
            terminalreporter.line(str(line))


@pytest.fixture
def record_figures(record_property: Callable[[str, object], None]) -> Callable[[Sequence[str]], None]:
    """Collects lines that are printed at the end of the run."""

    def keep(lines: Sequence[str]) -> None:
        for line in lines:
            record_property(FIGURE, line)

    return keep


@pytest.fixture(scope="session")
def pulsar_distribution() -> Path:
    """Pulsar's jars."""
    return distribution.find()


@pytest.fixture(scope="session", params=list(LoadManagerKind), ids=str)
def load_manager(request: pytest.FixtureRequest) -> LoadManagerKind:
    """Each load manager; pytest runs all tests of the first one before the second."""
    manager: LoadManagerKind = request.param
    return manager


@pytest.fixture(scope="session")
def pulsar_cluster(
    pulsar_distribution: Path, load_manager: LoadManagerKind, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[PulsarCluster]:
    """Three brokers and nothing else."""
    with PulsarCluster(
        pulsar_distribution, tmp_path_factory.mktemp(f"{load_manager}-cluster"), load_manager
    ) as cluster:
        yield cluster


@pytest.fixture(scope="session")
def whole_pulsar_stage(
    kube_binaries: KubeBinaries,
    prometheus_binary: Path,
    pulsar_cluster: PulsarCluster,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[RealPulsarCluster]:
    """Everything running, with no policy."""
    work_dir = tmp_path_factory.mktemp("pulsar-stage")
    with RealPulsarCluster(kube_binaries, prometheus_binary, work_dir, pulsar_cluster, limits=SMALL_BROKERS) as stage:
        yield stage


@pytest.fixture
def stage(whole_pulsar_stage: RealPulsarCluster) -> Iterator[RealPulsarCluster]:
    """The cluster at its start; restored afterwards."""
    yield whole_pulsar_stage
    whole_pulsar_stage.reset()


@pytest.fixture
def own_stage(
    kube_binaries: KubeBinaries, prometheus_binary: Path, pulsar_cluster: PulsarCluster, tmp_path: Path
) -> Callable[..., AbstractContextManager[RealPulsarCluster]]:
    """Makes stages of the same brokers, each with an operator of its own, from options of `RealPulsarCluster`."""

    @contextmanager
    def made(**options: Any) -> Iterator[RealPulsarCluster]:
        with RealPulsarCluster(kube_binaries, prometheus_binary, tmp_path, pulsar_cluster, **options) as stage:
            yield stage
            stage.reset()

    return made


@pytest.fixture(scope="session")
def guarded_cluster(pulsar_distribution: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[PulsarCluster]:
    """Two brokers that speak only TLS and require a token or a certificate (`security.TlsSecurity`)."""
    work_dir = tmp_path_factory.mktemp("guarded-cluster")
    with PulsarCluster(
        pulsar_distribution,
        work_dir,
        LoadManagerKind.MODULAR,
        brokers=2,
        guard=TlsSecurity(work_dir / "keys"),
        persistent=False,
        boxed=False,
    ) as cluster:
        yield cluster
