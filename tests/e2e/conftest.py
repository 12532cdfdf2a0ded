"""Real Pulsar clusters for the tests here, one load manager after the other: `make e2e` runs them.

A cluster takes some 15 seconds to start and a gigabyte of memory, so all tests of a load manager share one, with the
operator before it, and each finds it without policies and namespaces.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from pulsar_stage import PulsarStage
from trimtab_testbed.binaries import KubeBinaries
from trimtab_testbed.pulsar import distribution
from trimtab_testbed.pulsar.cluster import PulsarCluster
from trimtab_testbed.pulsar.exporter import Limits
from trimtab_testbed.pulsar.settings import LoadManager

HERE = Path(__file__).parent

TIMEOUT = 600
"""Seconds for a test with what it starts: where others use the cores too, a cluster takes minutes."""

FIGURES = pytest.StashKey[list[str]]()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark all tests of this folder: whoever forgets it would have real brokers in `make test`.

    All of one load manager, then all of the other, then the rest. Settling comes first of each: it measures moves onto
    brokers that have served nothing yet, which cost more.
    """
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.e2e)
            item.add_marker(pytest.mark.timeout(TIMEOUT))
    items.sort(key=_turn)


def _turn(item: pytest.Item) -> tuple[int, bool]:
    if not item.path.is_relative_to(HERE):
        return 0, False
    callspec = getattr(item, "callspec", None)
    manager = callspec.params.get("load_manager") if callspec is not None else None
    managers = list(LoadManager)
    return managers.index(manager) if manager in managers else len(managers), item.path.stem != "test_settling"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Show what was measured, also when all went well."""
    if figures := config.stash.get(FIGURES, []):
        terminalreporter.section("what moves cost clients (median / maximum)")
        for line in figures:
            terminalreporter.line(line)


@pytest.fixture
def record_figures(pytestconfig: pytest.Config) -> Callable[[Sequence[str]], None]:
    """Keeps lines that are shown at the end of the run."""
    return pytestconfig.stash.setdefault(FIGURES, []).extend


@pytest.fixture(scope="session")
def pulsar_distribution() -> Path:
    """Pulsar's jars."""
    return distribution.find()


@pytest.fixture(scope="session", params=list(LoadManager), ids=str)
def load_manager(request: pytest.FixtureRequest) -> LoadManager:
    """Each of the two; pytest takes all tests of the one first."""
    manager: LoadManager = request.param
    return manager


@pytest.fixture(scope="session")
def pulsar_cluster(
    pulsar_distribution: Path, load_manager: LoadManager, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[PulsarCluster]:
    """Three brokers, with nothing beside them."""
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
) -> Iterator[PulsarStage]:
    """Everything running, with no policy. A few hundred msg/s use most of the CPU that counts as 100 %."""
    work_dir = tmp_path_factory.mktemp("pulsar-stage")
    with PulsarStage(kube_binaries, prometheus_binary, work_dir, pulsar_cluster, limits=Limits(cores=0.15)) as stage:
        yield stage


@pytest.fixture
def stage(whole_pulsar_stage: PulsarStage) -> Iterator[PulsarStage]:
    """The stage at the beginning of its story; put back afterwards."""
    yield whole_pulsar_stage
    whole_pulsar_stage.reset()


@pytest.fixture(scope="session")
def guarded_cluster(pulsar_distribution: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[PulsarCluster]:
    """One broker that lets nobody in without a token (`PulsarCluster.token`)."""
    work_dir = tmp_path_factory.mktemp("guarded-cluster")
    with PulsarCluster(pulsar_distribution, work_dir, LoadManager.MODULAR, brokers=1, tokens=True) as cluster:
        yield cluster
