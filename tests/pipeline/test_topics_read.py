"""Topics that a shard reads: where bundles have no metrics, of hot bundles, and of the brokers' own statistics."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any
from zlib import crc32

import pyarrow as pa
import pytest

from admin_server import AdminServer, topic_statistics
from trimtab_pipeline.api import PrometheusSettings, StatisticsSettings
from trimtab_pipeline.columns import BUNDLE_SAMPLES, TRAFFIC
from trimtab_pipeline.prometheus import broker_statistics
from trimtab_pipeline.prometheus.broker_statistics import StatisticsAnswer, ask_brokers
from trimtab_pipeline.prometheus.queries import TOPICS, topics_in
from trimtab_pipeline.prometheus.read_request import ReadRequest, Secrets, ShardRequest
from trimtab_pipeline.prometheus.sample_batches import full_names
from trimtab_pipeline.prometheus.samples import Samples
from trimtab_pipeline.prometheus.shard_reader import read_bundles, read_shard, read_topics

BUNDLE, WHOLE = "t/a/0x00000000_0x40000000", "t/a/0x00000000_0xffffffff"
QUERIES = {name: f'max by (topic, partition, pod) ({name}{{topic=~"$topics"}})' for name in TOPICS.columns}
Loads = Mapping[tuple[str, str], tuple[float, ...]]
Rows = list[dict[str, Any]]


class World:
    """A server that knows topics by (topic, pod), and bundles by (bundle, pod)."""

    def __init__(self, topics: Loads, bundles: Loads | None = None, **shard: Any) -> None:
        self.topics, self.bundles = topics, bundles or {}
        self.asked: list[str] = []
        asked = {"rate_in": "BUNDLE 0", "rate_out": "BUNDLE 1"}
        wanted = replace(ShardRequest(("p",), bundles=asked, topics=QUERIES), **shard)
        self.request = ReadRequest("http://x", 100.0, 5.0, (wanted,))

    def fetch(self, promql: str, _: float) -> Samples:
        self.asked.append(promql)
        if promql.startswith("BUNDLE"):
            return self._samples("bundle", self.bundles, int(promql[-1]))
        column = promql.removeprefix("max by (topic, partition, pod) (").partition("{")[0]
        return self._samples("topic", self.topics, TOPICS.columns.index(column))

    @staticmethod
    def _samples(key: str, rows: Loads, column: int) -> Samples:
        names, pods = (pa.array([row[k] for row in rows], pa.string()) for k in (0, 1))
        return Samples({key: names, "pod": pods}, pa.array([load[column] for load in rows.values()], pa.float64()))

    def read(self) -> tuple[Rows, dict[str, Any]]:
        """What is read of bundles, and the report."""
        return taken(read_bundles(self.request, 0, self.fetch))

    def inside(self, *bundles: str) -> tuple[Rows, dict[str, Any]]:
        """What is read of topics in these bundles, and the report."""
        return taken(read_topics(replace(self.request, bundles=bundles), 0, self.fetch))


def taken(batches: Iterable[pa.RecordBatch]) -> tuple[Rows, dict[str, Any]]:
    table = pa.Table.from_batches(batches)
    assert table.schema.equals(BUNDLE_SAMPLES)
    *rows, last = table.to_pylist()
    return rows, json.loads(last["report"])


def topic(k: int) -> str:
    return f"persistent://t/a/{k}"


def test_topics_are_read_where_no_bundle_has_metrics() -> None:
    rows, report = World({(topic(1), "p"): (1.0, 2.0, 30.0, 40.0, 5.0, 6.0)}).read()
    assert [{name: value for name, value in row.items() if value is not None} for row in rows] == [
        {"policy": "", "shard": 0, "topic": topic(1), "pod": "p"}
        | dict(zip(TOPICS.columns, (1.0, 2.0, 30.0, 40.0, 5.0, 6.0), strict=True))
    ]
    assert (report["bundles"], report["answered"]) == (0, None)


def test_nan_of_a_topic_is_dropped() -> None:
    rows, report = World({(topic(1), "p"): (float("nan"), 1, 1, 1, 1, 1)}).read()
    assert rows[0]["rate_in"] is None
    assert report["dropped"] == {"NaN": 1}


STRANGE = ("topic://t/a/x", "later://t/a/x", "persistent://t/c/a/x", "bare", "later://t/a/y")
KINDS = "*, later://*/*/*, persistent://*/*/*/* and 1 more"


def test_topics_with_names_of_an_unknown_kind_are_counted_and_told() -> None:
    segment = "segment://t/a/x/0000-7fff-1"
    rows, report = World({(name, "p"): (1.0,) * 6 for name in (*STRANGE, topic(1), segment)}).read()
    assert [row["topic"] for row in rows] == [topic(1), segment]
    assert report["dropped"] == {"UnknownName": len(STRANGE)}
    (note,) = report["notes"]
    assert note.startswith(f"topics named like {KINDS} are not measured")


def test_names_of_an_unknown_kind_in_brokers_statistics_are_counted_and_told() -> None:
    columns = {"topic": pa.array(STRANGE), "partition": pa.array([""] * 5), "pod": pa.array(["p"] * 5)}
    told = StatisticsAnswer({**columns, **{name: pa.array([1.0] * 5) for name in TOPICS.columns}}, ("p",))
    world = World({}, statistics={"p": "http://p"})
    rows, report = taken(read_bundles(world.request, 0, world.fetch, lambda: None, lambda _: told))
    assert (rows, report["dropped"], report["answered"]) == ([], {"UnknownName": 5}, ["p"])
    assert KINDS in report["notes"][0]


def test_a_topic_that_two_pods_report_has_a_row_of_each() -> None:
    rows, _ = World({(topic(1), "p"): (1.0,) * 6, (topic(1), "q"): (2.0,) * 6}).read()
    assert [(row["pod"], row["rate_in"]) for row in rows] == [("p", 1.0), ("q", 2.0)]


def test_where_bundles_have_metrics_topics_are_not_asked_for() -> None:
    world = World({(topic(1), "p"): (1.0,) * 6}, bundles={(BUNDLE, "p"): (7.0, 8.0)})
    rows, report = world.read()
    assert [row["bundle"] for row in rows] == [BUNDLE]
    assert report["bundles"] == 1
    assert not any("topic" in promql for promql in world.asked)


def test_topics_are_not_read_where_they_are_not_summed() -> None:
    rows, report = World({(topic(1), "p"): (1.0,) * 6}, summing=False).read()
    assert (rows, report["bundles"]) == ([], 0)


@pytest.mark.parametrize(
    ("metrics", "wanted", "bundles", "topics"),
    [
        ("auto", True, 7, True),
        ("auto", False, 7, False),
        ("topic", True, 0, True),
        ("bundle", True, 7, False),
        ("statistics", True, 0, True),
    ],
)
def test_the_settings_say_what_is_read(metrics: str, wanted: bool, bundles: int, topics: bool) -> None:  # noqa: FBT001
    settings = PrometheusSettings("http://x", "pulsar", bundle_metrics=metrics)
    shard = ShardRequest.of(settings, ["p"], {"p": "http://p"}, summing=wanted)
    assert (len(shard.bundles), shard.summing) == (bundles, topics)
    assert len(shard.topics) == (0 if metrics == "statistics" else 6)
    assert shard.statistics == ({"p": "http://p"} if metrics == "statistics" else {})


def test_of_hot_bundles_only_the_topics_of_their_namespaces_are_asked_for() -> None:
    world = World({(topic(k), "p"): (1.0,) * 6 for k in range(3)})
    rows, report = world.inside(WHOLE, "u/b.c/0x00000000_0xffffffff")
    assert {row["topic"] for row in rows} == {topic(k) for k in range(3)}
    assert (report["ok"], report["table"]) == (True, "topics")
    assert len(world.asked) == len(TRAFFIC), "clients are not needed"
    assert all(r'topic=~"((non-)?persistent://|segment://)(t/a|u/b\\.c)/.+"' in promql for promql in world.asked)


def test_topics_outside_the_hot_bundles_are_dropped_from_each_answer_before_the_next_is_asked_for() -> None:
    half = "t/a/0x80000000_0xffffffff"
    inside = {topic(k) for k in range(40) if crc32(topic(k).encode()) >= 0x80000000}
    world = World({(topic(k), "p"): (float(k),) * 6 for k in range(40)})
    asked: list[str] = []

    def fetch(promql: str, within: float) -> Samples:
        asked.append(threading.current_thread().name)
        return world.fetch(promql, within)

    rows, _ = taken(read_topics(replace(world.request, bundles=(half,)), 0, fetch))
    assert {row["topic"] for row in rows} == inside
    assert all(row["topic"] == topic(round(row["rate_out"])) for row in rows)
    assert asked == ["query-0"] * len(TRAFFIC), "one answer at a time"


def test_a_partition_in_its_own_label_decides_the_bundle_of_a_topic() -> None:
    world = World({(topic(1), "p"): (1.0,) * 6})

    def fetch(promql: str, within: float) -> Samples:
        answer = world.fetch(promql, within)
        return replace(answer, labels={**answer.labels, "partition": pa.array(["3"])})

    hash_of = crc32(f"{topic(1)}-partition-3".encode())
    for lower, expected in ((hash_of, [f"{topic(1)}-partition-3"]), (hash_of + 1, [])):
        rows, _ = taken(read_topics(replace(world.request, bundles=(f"t/a/0x{lower:08x}_0xffffffff",)), 0, fetch))
        assert [row["topic"] for row in rows] == expected


def test_topics_of_brokers_outside_the_hot_bundles_are_dropped() -> None:
    names = [topic(k) for k in range(40)]
    topics = {"topic": pa.array(names), "partition": pa.array([""] * 40), "pod": pa.array(["p"] * 40)}
    told = StatisticsAnswer({**topics, **{name: pa.array([1.0] * 40) for name in TOPICS.columns}}, ("p",))
    world = World({}, statistics={"p": "http://p"})
    rows, report = taken(
        read_topics(replace(world.request, bundles=(BUNDLE,)), 0, world.fetch, lambda: None, lambda _: told)
    )
    assert [row["topic"] for row in rows] == [name for name in names if crc32(name.encode()) < 0x40000000]
    assert report["answered"] == ["p"]


def test_where_series_are_repeated_the_newest_of_each_pod_counts() -> None:
    world = World({(topic(1), "p"): (1.0,) * 6}, repeated=True)
    world.inside(WHOLE)
    assert all(" and (timestamp(" in promql for promql in world.asked)


def test_the_topics_of_a_namespace_are_named_literally() -> None:
    assert topics_in('x{topic=~"$topics"}', ["t/a.b"]) == r'x{topic=~"((non-)?persistent://|segment://)(t/a\\.b)/.+"}'
    assert topics_in('x{topic=~"$topics"}') == 'x{topic=~".+"}'


def test_a_partition_in_a_label_of_its_own_belongs_to_the_name() -> None:
    topics, partitions = pa.array(["a", "b", "c"]), pa.array(["3", "-1", ""])
    assert full_names(topics, partitions).to_pylist() == ["a-partition-3", "b", "c"]
    assert full_names(topics, pa.array(["", "", ""])) is topics


def test_topics_that_brokers_tell_themselves_are_rows_and_the_report_says_who_answered() -> None:
    topics = {"topic": pa.array([topic(1)]), "partition": pa.array([""]), "pod": pa.array(["p"])}
    told = StatisticsAnswer(
        {**topics, **{name: pa.array([1.0]) for name in TOPICS.columns}}, ("p", "q"), {"r": "gone", "s": "gone"}
    )
    world = World({}, statistics={"p": "http://p"})
    rows, report = taken(read_bundles(world.request, 0, world.fetch, statistics=lambda _: told))
    assert [(row["topic"], row["pod"], row["rate_in"], row["topics"]) for row in rows] == [(topic(1), "p", 1.0, None)]
    assert report["answered"] == ["p", "q"]
    assert report["notes"] == ["bundles of r, s are not measured: gone"]
    assert not world.asked


def test_where_brokers_tell_their_topics_those_of_hot_bundles_come_from_them_too() -> None:
    topics = {"topic": pa.array([topic(1)]), "partition": pa.array([""]), "pod": pa.array(["p"])}
    told = StatisticsAnswer({**topics, **{name: pa.array([1.0]) for name in TOPICS.columns}}, ("p",))
    world = World({}, statistics={"p": "http://p"})
    wanted = replace(world.request, bundles=(WHOLE,))
    rows, report = taken(read_topics(wanted, 0, world.fetch, statistics=lambda _: told))
    assert [(row["topic"], row["pod"], row["rate_in"]) for row in rows] == [(topic(1), "p", 1.0)]
    assert (report["ok"], report["table"]) == (True, "topics")
    assert not world.asked


def test_a_broker_is_read_for_the_topics_of_the_wanted_namespaces() -> None:
    told = {name: topic_statistics(1.0) for name in (topic(1), "persistent://t/b/1", "persistent://u/a/1")}
    with AdminServer(told) as admin:
        answers = ask_brokers({"p": admin.url}, StatisticsSettings(), ("t/a", "t/c"))
    assert answers.topics["topic"].to_pylist() == [topic(1)]


def test_the_answers_of_brokers_are_parsed_one_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    parsing, together, parse = threading.Lock(), list[bool](), broker_statistics.json_of

    def alone(body: bytes) -> Any:
        free = parsing.acquire(blocking=False)
        together.append(not free)
        time.sleep(0.05)
        found = parse(body)
        if free:
            parsing.release()
        return found

    monkeypatch.setattr(broker_statistics, "json_of", alone)
    with AdminServer({topic(1): topic_statistics(1.0)}) as admin:
        answers = ask_brokers(dict.fromkeys("abcd", admin.url), StatisticsSettings())
    assert (sorted(answers.pods), together) == (["a", "b", "c", "d"], [False] * 4)


def test_no_broker_is_asked_after_the_deadline_of_the_measurement() -> None:
    with AdminServer({topic(1): topic_statistics(1.0)}) as admin:
        wanted = ShardRequest(("p",), statistics={"p": admin.url})
        request = ReadRequest("http://x", 100.0, 5.0, (wanted,), left=-1.0)
        rows, report = taken(read_shard("bundles", request, 0, Secrets()))
        assert not admin.asked
    assert (rows, report["answered"]) == ([], [])
    assert "there was no time left" in report["notes"][0]


def test_topics_of_hot_bundles_that_brokers_tell_too_late_are_left_out() -> None:
    with AdminServer({topic(1): topic_statistics(1.0)}) as admin:
        admin.delay = 3.0
        wanted = ShardRequest(("p",), statistics={"p": admin.url})
        request = ReadRequest("http://x", 100.0, 5.0, (wanted,), budget=0.6, bundles=(WHOLE,))
        begin = time.monotonic()
        rows, report = taken(read_shard("topics", request, 0, Secrets()))
        assert time.monotonic() - begin < 2
    assert (rows, report["ok"], report["answered"]) == ([], True, [])
