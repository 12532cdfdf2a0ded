"""Pages of real brokers of both load managers, scraped by a real Prometheus, become the load that was sent."""

from __future__ import annotations

import json
import time
import zlib
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from exposition_reader import samples_of
from observed_load import observed
from page_server import PageServer
from pipeline_clusters import topology
from trimtab_pipeline.api import PrometheusSettings
from trimtab_pipeline.columns import TRAFFIC
from trimtab_pipeline.prometheus.read_request import ReadRequest, Secrets, ShardRequest
from trimtab_pipeline.prometheus.shard_reader import read_shard
from trimtab_pipeline.transform.topic_to_bundle import HashRanges
from trimtab_pipeline.transform.topics import topics_inside
from trimtab_testbed.servers.prometheus import PrometheusServer, Target

pytestmark = pytest.mark.prometheus

RECORDINGS = Path(__file__).parent / "recordings"
PODS = ("pulsar-0", "pulsar-1")
COLUMNS = (*TRAFFIC, "sessions", "topics")
Rows = dict[tuple[str, str], list[float]]


class Recording:
    """The brokers of one load manager, as they were."""

    def __init__(self, manager: str) -> None:
        folder = RECORDINGS / f"pulsar-4.0.8-{manager}"
        self.pages = {pod: (folder / f"broker-{k}.prom").read_text() for k, pod in enumerate(PODS)}
        self.facts: dict[str, Any] = json.loads((folder / "facts.json").read_text())
        edges = {space: list(pairwise(b)) for space, b in self.facts["boundaries"].items()}
        self.bundles = [f"{space}/{lower}_{upper}" for space, pairs in edges.items() for lower, upper in pairs]

    def bundle_of(self, topic: str) -> str:
        """The plain way, "" outside."""
        space, place = "/".join(topic.split("/")[2:4]), zlib.crc32(topic.encode())
        ours = (name for name in self.bundles if name.rpartition("/")[0] == space)
        bounds = {name: [int(bound, 16) for bound in name.rpartition("/")[2].split("_")] for name in ours}
        return next((name for name, (lower, upper) in bounds.items() if lower <= place < upper), "")

    def summed(self) -> Rows:
        """Load of each (bundle, pod), added up from the raw pages."""
        places = {f"pulsar_{name}": COLUMNS.index(name) for name in TRAFFIC}
        places |= dict.fromkeys(("pulsar_producers_count", "pulsar_consumers_count"), COLUMNS.index("sessions"))
        rows: Rows = defaultdict(lambda: [0.0] * len(COLUMNS))
        for pod, page in self.pages.items():
            for name, labels, value, _ in samples_of(page):
                if name in places and (bundle := self.bundle_of(labels["topic"])):
                    rows[bundle, pod][places[name]] += value
                    rows[bundle, pod][-1] += name == "pulsar_rate_in"
        return dict(rows)

    def told(self) -> Rows:
        """Load of each (bundle, pod) as the pages tell it of bundles."""
        rows: Rows = defaultdict(lambda: [0.0] * len(COLUMNS))
        places = {f"msg_{name}": COLUMNS.index(name) for name in TRAFFIC}
        places |= {"producer_count": 4, "consumer_count": 4, "topics_count": 5}
        for pod, page in self.pages.items():
            for name, labels, value, _ in samples_of(page):
                if (word := name.removeprefix("pulsar_bundle_")) in places and labels["bundle"] in self.bundles:
                    rows[labels["bundle"], pod][places[word]] += value
        return dict(rows)


@pytest.fixture(scope="module", params=["modular", "extensible"])
def recording(request: pytest.FixtureRequest) -> Recording:
    return Recording(request.param)


@pytest.fixture(scope="module")
def server(
    recording: Recording, prometheus_binary: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[PrometheusServer]:
    """A Prometheus that scrapes the recorded pages as those of two pods."""
    with ExitStack() as running:
        pages = {
            pod: running.enter_context(PageServer(lambda text=text: text)) for pod, text in recording.pages.items()
        }
        targets = [Target(page.address, {"namespace": "pulsar", "pod": pod}) for pod, page in pages.items()]
        folder = tmp_path_factory.mktemp("prometheus")
        server = running.enter_context(PrometheusServer(prometheus_binary, folder, targets, scrape_interval=0.5))
        deadline = time.monotonic() + 30
        while not all(len(page.served) > 2 for page in pages.values()):
            assert time.monotonic() < deadline, "the pages are not scraped"
            time.sleep(0.1)
        yield server


def read(
    server: PrometheusServer, recording: Recording, *, own: bool
) -> tuple[Rows, pa.Table, Mapping[str, Any], float]:
    """Bundles, the brokers, the report, the number of topics outside all bundles."""
    metrics, at = "auto" if own else "topic", round(time.time(), 3)
    settings = PrometheusSettings(server.url, "pulsar", "pulsar", bundle_metrics=metrics)
    seen = observed(settings, topology({pod: pod for pod in PODS}, dict.fromkeys(recording.bundles, "")), at)
    told = seen.bundles.to_pylist()
    rows = {(row["bundle"], row["pod"]): [row[name] for name in COLUMNS] for row in told if row["bundle"] is not None}
    return rows, seen.brokers, seen.report, sum(row["topics"] for row in told if row["bundle"] is None)


def topics_of(server: PrometheusServer, recording: Recording) -> list[dict[str, Any]]:
    """The topics inside all bundles."""
    settings, at = PrometheusSettings(server.url, "pulsar", "pulsar"), round(time.time(), 3)
    ranges = HashRanges.of(recording.bundles)
    request = ReadRequest.of(settings, at, [ShardRequest.of(settings, PODS)], bundles=recording.bundles)
    *rows, _ = read_shard("topics", request, 0, Secrets())
    found: list[dict[str, Any]] = topics_inside(pa.Table.from_batches(rows), ranges).to_pylist()
    return found


def same(found: Rows, expected: Rows, rel: float = 1e-9) -> bool:
    return set(found) == set(expected) and all(found[key] == pytest.approx(expected[key], rel=rel) for key in found)


def test_topics_become_the_bundles_that_numpy_adds_up(server: PrometheusServer, recording: Recording) -> None:
    rows, _, _, outside = read(server, recording, own=False)
    expected = recording.summed()
    assert same(rows, expected)
    assert len({bundle for bundle, _ in rows}) >= 6
    others = {
        labels["topic"]
        for page in recording.pages.values()
        for name, labels, *_ in samples_of(page)
        if name == "pulsar_rate_in" and not recording.bundle_of(labels["topic"])
    }
    assert outside == len(others)


def test_bundles_carry_what_was_sent(server: PrometheusServer, recording: Recording) -> None:
    rows, _, _, _ = read(server, recording, own=True)
    sent: dict[str, float] = defaultdict(float)
    for topic, rate in recording.facts["sent"].items():
        sent[recording.bundle_of(topic)] += rate
    found = {bundle: load[0] for (bundle, _), load in rows.items() if bundle in recording.bundles and load[0]}
    assert found == pytest.approx(dict(sent), rel=0.02)


def test_what_bundles_say_of_themselves_is_taken_where_they_do(server: PrometheusServer, recording: Recording) -> None:
    rows, _, report, _ = read(server, recording, own=True)
    if told := recording.told():  # the modular manager alone
        assert report["bundles"] >= len(told)
        assert same({key: load for key, load in rows.items() if key[0] in recording.bundles}, told)
        assert same(recording.summed(), told, rel=1e-2)
    else:
        assert report["bundles"] == 0
        assert same(rows, recording.summed())


def test_topics_lie_in_the_bundles_in_which_the_brokers_keep_them(
    server: PrometheusServer, recording: Recording
) -> None:
    inside = topics_of(server, recording)
    kept = {topic: bundle for bundle, topics in recording.facts["stats"].items() for topic in topics}
    found = {row["topic"]: row["bundle"] for row in inside}
    assert {topic: bundle for topic, bundle in found.items() if topic in recording.facts["sent"]} == {
        topic: kept[topic] for topic in recording.facts["sent"]
    }
    for row in inside:
        stats = recording.facts["stats"][row["bundle"]].get(row["topic"], {})
        assert row["rate_in"] == pytest.approx(stats.get("msgRateIn", 0.0), abs=0.5)


def test_usage_is_what_the_brokers_say_of_themselves(server: PrometheusServer, recording: Recording) -> None:
    _, found, _, _ = read(server, recording, own=True)
    for row in found.to_pylist():
        raw = {name: value for name, _, value, _ in samples_of(recording.pages[row["pod"]])}
        assert raw["pulsar_lb_cpu_usage"] < 0.001  # recorded before the brokers had looked at their hosts twice
        assert row["cpu"] is None
        assert row["memory"] == raw["pulsar_lb_memory_usage"]
        assert row["direct_memory"] == raw["pulsar_lb_directMemory_usage"]
        assert [row["network_in"], row["network_out"]] == [0.0, 0.0]
        assert row["rate_in"] == raw["pulsar_broker_rate_in"]
        assert np.isfinite(row["resource_time"])
    assert set(found["pod"].drop_null().to_pylist()) == set(PODS)
