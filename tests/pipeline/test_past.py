"""A past minute, measured later, is what a cycle of that minute had measured; against a real Prometheus."""

from __future__ import annotations

import itertools
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from pipeline_clusters import topology
from recorded_past import RecordedPast
from trimtab_pipeline.api import MeasuresPast, PrometheusSettings, SourceUnavailableError, Topology
from trimtab_pipeline.factory import direct_sources
from trimtab_pipeline.sources.direct import DirectLoadSources
from trimtab_pipeline.transform.relations import BUNDLE_LOAD, Cycle
from trimtab_pipeline.transform.snapshot import fresh
from trimtab_strategies.shedding.trim.samples import CycleSamples

NOW = 1_750_000_000.0
MINUTES, SCRAPE, SEEDS = 14, 10, 3
PODS = ("pod-0", "pod-1", "pod-2", "pod-3")
NAMES = tuple(f"t/n/0x{k * 2**29:08x}_0x{min((k + 1) * 2**29, 2**32 - 1):08x}" for k in range(8))
TOPICS = tuple(
    next(
        name for k in itertools.count() if zlib.crc32((name := f"persistent://t/n/topic-{k}").encode()) >> 29 == number
    )
    for number in range(8)
)
"""A topic in each bundle."""
SETTINGS = PrometheusSettings("http://x", "messaging", nic_speed=1e8)


@dataclass(frozen=True)
class DrawnPast:
    """Brokers that miss scrapes and restart, and bundles that change their load and their owner.

    owners: (MINUTES + 1, m) pod of each bundle in each minute, the last one now; -1 while it is nowhere.
    """

    recorded: RecordedPast
    owners: np.ndarray[tuple[int, int], np.dtype[np.int64]]

    @classmethod
    def of(cls, seed: int, *, topics: bool = False) -> DrawnPast:
        """The past of a seed. topics: whether brokers export topics and no bundles, and no bundle moves."""
        rng, recorded, n, m = np.random.default_rng(seed), RecordedPast(), len(PODS), len(NAMES)
        show = recorded.topic if topics else recorded.bundle
        owners = np.cumsum(rng.random((MINUTES + 1, m)) < 0.15, axis=0) + rng.integers(0, n, m)
        owners = (
            np.where(rng.random(owners.shape) < 0.05, -1, owners % n)
            if not topics
            else owners[:1].repeat(MINUTES + 1, 0) % n
        )
        seconds, messages, silent_until = np.zeros(n), np.zeros(n), np.zeros(n)
        for time in np.arange(-60 * MINUTES - 300, 1, SCRAPE):
            minute = min(max(int(np.ceil(time / 60)) + MINUTES, 0), MINUTES)  # of the cycle that sees this scrape
            load = rng.lognormal(3, 1, m)
            restarts = rng.random(n) < 0.02
            silent_until = np.where(rng.random(n) < 0.04, time + rng.choice([20, 50, 90, 200]), silent_until)
            seconds, messages = np.where(restarts, 0, seconds), np.where(restarts, 0, messages)
            seconds += rng.uniform(0, 4, n) * SCRAPE
            messages += rng.uniform(0, 1000, n) * SCRAPE
            late = time + 1 + rng.random(n)
            for pod in np.flatnonzero(time >= silent_until):
                recorded.broker(PODS[pod], NOW - 60 + late[pod], seconds[pod], messages[pod], 10.0 + pod)
                for bundle in np.flatnonzero(owners[minute] == pod):
                    show(TOPICS[bundle] if topics else NAMES[bundle], PODS[pod], NOW - 60 + late[pod], load[bundle])
        return cls(recorded, owners)

    def topology(self, minute: int) -> Topology:
        """The resources in that minute; the last one is now."""
        owned = (f"broker-{pod}" if pod >= 0 else "" for pod in self.owners[minute].tolist())
        return topology({f"broker-{k}": pod for k, pod in enumerate(PODS)}, dict(zip(NAMES, owned, strict=True)))


@pytest.fixture
def direct(tmp_path: Path) -> Iterator[DirectLoadSources]:
    made = direct_sources(tmp_path / "history")
    assert isinstance(made, DirectLoadSources)
    yield made
    made.close()


def lived(direct: DirectLoadSources, settings: PrometheusSettings, past: DrawnPast) -> list[CycleSamples]:
    """The samples of one cycle a minute, each with the owners of its time."""
    source, found = direct.open("tests/lived", settings), []
    for minute in range(MINUTES):
        at = NOW - 60.0 * (MINUTES - minute)
        load = source.observe(past.topology(minute), at).result(timeout=60).load
        found.append(CycleSamples.of(at, load.brokers, load.bundles.names, load.bundles.newest))
    return found


@pytest.mark.prometheus
@pytest.mark.parametrize("metrics", ["bundle", "topic"])
@pytest.mark.parametrize("seed", range(SEEDS))
def test_the_past_is_what_cycles_had_measured_and_nothing_where_they_had_nothing(
    prometheus_binary: Path, tmp_path: Path, direct: DirectLoadSources, seed: int, metrics: str
) -> None:
    past = DrawnPast.of(seed, topics=metrics == "topic")
    with past.recorded.served(prometheus_binary, tmp_path / "server") as server:
        settings = replace(SETTINGS, url=server.url, bundle_metrics=metrics)
        expected = lived(direct, settings, past)
        source = direct.open("tests/past", settings)
        assert isinstance(source, MeasuresPast)
        now = past.topology(MINUTES)
        for one in reversed(expected):
            found = source.observe_past(now, one.time).result(timeout=60)
            if found is None:
                assert not np.isfinite(one.load).any()
                assert not np.isfinite(one.cpu).any()
                continue
            np.testing.assert_array_equal(found.load, one.load)
            np.testing.assert_array_equal(found.cpu, one.cpu)
            np.testing.assert_array_equal(found.traffic, one.traffic)
            assert (found.time, found.bundles, found.brokers) == (one.time, one.bundles, one.brokers)
        assert source.observe_past(now, NOW - 7200).result(timeout=60) is None
    known = np.isfinite([one.cpu for one in expected])
    assert 0.1 < known.mean() < 0.98, "some brokers are not believed"
    assert np.isfinite([one.load for one in expected]).mean() > 0.3


@pytest.mark.prometheus
def test_the_past_leaves_no_trace_in_the_history(
    prometheus_binary: Path, tmp_path: Path, direct: DirectLoadSources
) -> None:
    past = DrawnPast.of(0)
    with past.recorded.served(prometheus_binary, tmp_path / "server") as server:
        source = direct.open("tests/past", replace(SETTINGS, url=server.url))
        assert source.observe_past(past.topology(MINUTES), NOW - 120).result(timeout=60) is not None
    assert not any((tmp_path / "history").rglob("*.parquet"))


def test_statistics_of_brokers_have_no_past(direct: DirectLoadSources) -> None:
    world = topology({"broker-a": "a"}, {})
    source = direct.open("tests/now", replace(SETTINGS, url="http://127.0.0.1:9", bundle_metrics="statistics"))
    assert source.observe_past(world, NOW).result(timeout=0) is None
    nobody = direct.open("tests/nobody", replace(SETTINGS, url="http://127.0.0.1:9"))
    assert nobody.observe_past(topology({}, {}), NOW).result(timeout=0) is None


def test_a_past_that_no_server_tells_is_an_error(direct: DirectLoadSources) -> None:
    source = direct.open("tests/nowhere", replace(SETTINGS, url="http://127.0.0.1:9", timeout=2.0))
    with pytest.raises(SourceUnavailableError, match=r"127\.0\.0\.1:9"):
        source.observe_past(topology({"broker-a": "a"}, {}), NOW).result(timeout=30)


def test_samples_that_were_too_old_then_count_for_nothing() -> None:
    """A pod that is gone stays readable for minutes: its bundles are those of the pod that serves them then."""
    rows = pa.Table.from_pylist(
        [{"bundle": name, "time": time} for name, time in (("old", 879.0), ("young", 880.0), ("unknown", None))],
        BUNDLE_LOAD,
    )
    assert fresh(rows, Cycle.of("", SETTINGS, 1000.0))["bundle"].to_pylist() == ["young", "unknown"]
