"""Bundles whose load brokers tell themselves, as their Prometheus is told of no topics."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from admin_server import AdminServer, topic_statistics
from fake_prometheus import FakePrometheus, Faults
from pipeline_clusters import AT, FIRST, SECOND, WITH_IDLE
from trimtab_pipeline.api import Credentials, LoadSource, PrometheusSettings, StatisticsSettings, Topology
from trimtab_pipeline.prometheus.broker_statistics import ask_brokers
from trimtab_pipeline.prometheus.read_request import ReadRequest, Secrets, ShardRequest
from trimtab_pipeline.prometheus.shard_reader import read_shard
from trimtab_pipeline.sources.direct import DirectLoadSources
from trimtab_pipeline.sources.spark import SparkLoadSources
from trimtab_strategies.hash_ring import topic_hash
from trimtab_strategies.model import RATE_IN, RATE_OUT, ClusterLoad

NAMES = [f"{domain}://t/n/{name}" for domain in ("persistent", "non-persistent") for name in ("x", "y", "z")]
NAMES += [f"persistent://t/n/parts-partition-{k}" for k in range(4)]
RATES = {name: 1.0 + k for k, name in enumerate(NAMES)}
LOWS = {name for name in NAMES if topic_hash(name) < 0x80000000}


@pytest.fixture
def admins(fake: FakePrometheus) -> Iterator[tuple[AdminServer, AdminServer]]:
    """Brokers a and b; Prometheus knows no bundle and no topic of theirs."""
    for bundle in (FIRST, SECOND):
        fake.drop(bundle=bundle)
    told = {name: topic_statistics(rate) for name, rate in RATES.items()}
    with (
        AdminServer({n: told[n] for n in LOWS}) as one,
        AdminServer({n: told[n] for n in told if n not in LOWS}) as two,
    ):
        yield one, two


@pytest.fixture
def direct(tmp_path: Path) -> Iterator[DirectLoadSources]:
    made = DirectLoadSources(tmp_path / "history", deadline=30)
    yield made
    made.close()


def asking(*admins: AdminServer) -> Topology:
    return replace(WITH_IDLE, admin=tuple(admin.url for admin in admins))


def settings(fake: FakePrometheus, **statistics: object) -> PrometheusSettings:
    told = StatisticsSettings(**statistics)
    return PrometheusSettings(fake.url, "pulsar", bundle_metrics="statistics", hot_bundles=1, statistics=told)


def look(source: LoadSource, world: Topology, at: float = AT) -> ClusterLoad:
    return source.observe(world, at).result(timeout=60).load


def topics_of(load: ClusterLoad) -> dict[str, tuple[int, int, list[float]]]:
    """Bundle, place and traffic of each topic of the hot bundles."""
    topics = load.topics
    rows = zip(topics.bundle.tolist(), topics.place.tolist(), topics.traffic.tolist(), strict=True)
    return dict(zip(topics.names, rows, strict=True))


def test_bundles_carry_what_their_brokers_tell_of_their_topics(
    fake: FakePrometheus, direct: DirectLoadSources, admins: tuple[AdminServer, AdminServer]
) -> None:
    load = look(direct.open("tests/told", settings(fake)), asking(*admins))
    low = sum(RATES[name] for name in LOWS)
    sums = [low, sum(RATES.values()) - low, 0.0]
    assert load.bundles.short[:, RATE_IN].tolist() == sums
    assert load.bundles.short[:, RATE_OUT].tolist() == [2 * value for value in sums]
    assert load.bundles.topics.tolist() == [len(LOWS), len(NAMES) - len(LOWS), 0]
    assert load.bundles.sessions.tolist() == [3.0 * len(LOWS), 3.0 * (len(NAMES) - len(LOWS)), 0.0]
    assert not load.quality.dropped
    assert not load.quality.notes
    hottest = max((FIRST, SECOND), key=lambda bundle: sums[bundle == SECOND])
    assert set(load.topics.names) == {name for name in NAMES if (name in LOWS) == (hottest == FIRST)}
    assert [len(admin.asked) for admin in admins] == [1 + (hottest == FIRST), 1 + (hottest == SECOND)]


@pytest.mark.spark
def test_spark_measures_the_same_and_averages_it(
    fake: FakePrometheus,
    direct: DirectLoadSources,
    sources: SparkLoadSources,
    admins: tuple[AdminServer, AdminServer],
) -> None:
    here, there = direct.open("tests/told", settings(fake)), sources.open("tests/told", settings(fake))
    for cycle in range(2):
        one, other = (look(source, asking(*admins), AT + 60 * cycle) for source in (here, there))
        for name in ("short", "long", "topics", "sessions"):
            np.testing.assert_array_equal(getattr(one.bundles, name), getattr(other.bundles, name))
        assert topics_of(one) == topics_of(other)
        assert len(one.topics.names)
        admins[0].topics["persistent://t/n/x"] = topic_statistics(1000.0)
    assert one.bundles.short[0, RATE_IN] < 1000 + sum(RATES.values())


@pytest.mark.parametrize("fault", ["refuses", "is slow", "leads elsewhere", "talks nonsense", "is unknown", "is gone"])
def test_a_broker_that_does_not_tell_costs_its_own_bundles_their_load_and_nothing_else(
    fake: FakePrometheus, direct: DirectLoadSources, admins: tuple[AdminServer, AdminServer], fault: str
) -> None:
    other, broken = admins
    broken.status = {"refuses": 403, "leads elsewhere": 307}.get(fault, 200)
    broken.location = f"{other.url}/admin/v2/broker-stats/topics" if fault == "leads elsewhere" else ""
    broken.body = '{"t/n": {"b": [1]}}' if fault == "talks nonsense" else ""
    broken.delay = 3.0 if fault == "is slow" else 0.0
    world = asking(other, broken)
    if fault in {"is unknown", "is gone"}:
        world = replace(world, admin=(other.url, "" if fault == "is unknown" else "http://127.0.0.1:9"))
    load = look(direct.open("tests/told", replace(settings(fake, timeout=1.0), hot_bundles=0)), world)
    assert load.bundles.short[0, RATE_IN] == sum(RATES[name] for name in LOWS)
    assert np.isnan(load.bundles.short[1:]).all()
    assert load.brokers.trusted.all()
    assert not load.quality.partial
    assert load.quality.missing_bundles == 2
    (note,) = load.quality.notes
    assert note.startswith("bundles of b are not measured: ")
    assert len(other.asked) == 1


def test_a_broker_that_does_not_tell_the_topics_of_its_hot_bundle_costs_nothing_else(
    fake: FakePrometheus, direct: DirectLoadSources, admins: tuple[AdminServer, AdminServer]
) -> None:
    for admin in admins:
        admin.answers = 1
    load = look(direct.open("tests/told", settings(fake)), asking(*admins))
    assert sorted(len(admin.asked) for admin in admins) == [1, 2]
    assert load.bundles.short[:2, RATE_IN].sum() == sum(RATES.values())
    assert not load.quality.partial
    assert not load.topics.names
    (note,) = load.quality.notes
    assert re.fullmatch(r"topics of (a|b) are not measured: http://\S+ answered 503", note)


def test_topics_of_hot_bundles_that_the_server_does_not_answer_cost_a_note(
    fake: FakePrometheus, direct: DirectLoadSources
) -> None:
    fake.faults = Faults(where=lambda promql: "persistent://" in promql, status=503, text="too busy")
    load = look(direct.open("tests/told", PrometheusSettings(fake.url, "pulsar", hot_bundles=1)), WITH_IDLE)
    assert load.brokers.trusted.all()
    assert not load.quality.partial
    (note,) = load.quality.notes
    assert note.startswith("topics of hot bundles are not measured: ")
    assert "503" in note


def test_what_a_broker_reported_before_is_remembered_until_it_is_too_old(
    fake: FakePrometheus, direct: DirectLoadSources, admins: tuple[AdminServer, AdminServer]
) -> None:
    source = direct.open("tests/told", replace(settings(fake), max_age=120.0))
    known = look(source, asking(*admins)).bundles.short[1, RATE_IN]
    admins[1].status = 500
    assert look(source, asking(*admins), AT + 60).bundles.short[1, RATE_IN] == known
    assert np.isnan(look(source, asking(*admins), AT + 300).bundles.short[1, RATE_IN])


def test_brokers_learn_who_asks_and_the_secret_is_repeated_nowhere(admins: tuple[AdminServer, AdminServer]) -> None:
    admins[1].body = '{"t/n": {"b": {"persistent": {"persistent://t/n/x": {"msgRateIn": "s3cret"}}}}}'
    who = StatisticsSettings(Credentials(bearer_token="s3cret"))
    told = ask_brokers({"a": admins[0].url, "b": admins[1].url}, who)
    assert [admin.asked[0]["Authorization"] for admin in admins] == ["Bearer s3cret"] * 2
    assert list(told.failed) == ["b"]
    assert "s3cret" not in told.failed["b"] + repr(who)


def test_a_broker_refresh_asks_none_of_them(
    fake: FakePrometheus, direct: DirectLoadSources, admins: tuple[AdminServer, AdminServer]
) -> None:
    source = direct.open("tests/told", settings(fake))
    assert source.observe_brokers(asking(*admins), AT).result(timeout=20).load.brokers.trusted.all()
    assert not admins[0].asked


def test_brokers_that_are_silent_for_one_reason_are_reported_together(fake: FakePrometheus) -> None:
    asked = settings(fake)
    request = ReadRequest.of(asked, AT, [ShardRequest.of(asked, ("a", "b"))])
    *_, report = read_shard("bundles", request, 0, Secrets())
    (note,) = json.loads(report["report"][0].as_py())["notes"]
    assert note.startswith("bundles of a, b are not measured: Pulsar does not list it as active")
