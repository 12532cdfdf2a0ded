"""Sources on threads of this process or on one Spark session for all tests, and a world of two brokers to observe."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from fake_prometheus import FakePrometheus, add_broker, add_bundle
from trimtab_pipeline.api import LoadSource, PrometheusSettings
from trimtab_pipeline.sources.direct import DirectLoadSources
from trimtab_pipeline.sources.policy_sources import PolicySources
from trimtab_pipeline.sources.spark import SparkLoadSources


@pytest.fixture(scope="session")
def shared_spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkLoadSources]:
    """Sources on an embedded session with two cores: two shards. It is warm, so that tests may be impatient."""
    made = SparkLoadSources(tmp_path_factory.mktemp("history"), master="local[2]", deadline=60)
    made.warm_up().result(timeout=200)
    yield made
    made.close()


@pytest.fixture
def sources(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[PolicySources]:
    """On the Spark session for a test marked `spark`; otherwise on threads of this process."""
    if request.node.get_closest_marker("spark"):
        yield request.getfixturevalue("shared_spark")
        return
    with closing(DirectLoadSources(tmp_path / "history")) as made:
        yield made


@pytest.fixture
def fake() -> Iterator[FakePrometheus]:
    """Brokers a and b, each in a shard of its own, and a bundle on each."""
    with FakePrometheus() as server:
        for pod, bundle in {"a": "t/n/0x00000000_0x80000000", "b": "t/n/0x80000000_0xffffffff"}.items():
            add_broker(server, pod)
            add_bundle(server, bundle, pod)
        yield server


@pytest.fixture
def state_folder(sources: PolicySources, request: pytest.FixtureRequest) -> Path:
    """The folder of the state of the policy that `observing` opens."""
    return Path(sources.history_dir, "state", "tests", request.node.originalname)


@pytest.fixture
def observing(sources: PolicySources, request: pytest.FixtureRequest) -> Callable[[str], LoadSource]:
    """Opens a source with a history of the test's own."""

    def open_source(url: str, **settings: float | str) -> LoadSource:
        return sources.open(f"tests/{request.node.originalname}", PrometheusSettings(url, "pulsar", **settings))

    return open_source
