"""Topics among bundles: the ring of each namespace, sums, idle bundles, and the insides of the hottest."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, strategies as st

from pipeline_clusters import topology
from trimtab_pipeline.prometheus.queries import TOPICS, topics_in
from trimtab_pipeline.prometheus.read_request import ReadRequest, ShardRequest
from trimtab_pipeline.prometheus.samples import Samples
from trimtab_pipeline.prometheus.shard_reader import read_shard
from trimtab_pipeline.transform.topic_to_bundle import HashRanges, Summing, namespaces_of
from trimtab_pipeline.transform.topics import full_names, hottest
from trimtab_strategies.hash_ring import LAST_HASH, bundle_names, default_boundaries, find_bundle, topic_hash

NAMES = (*bundle_names("t/b", default_boundaries(3)), *bundle_names("t/a", default_boundaries(4)))
RANGES = HashRanges.of(NAMES)
TEXT = st.text(st.characters(blacklist_categories=["Cs"]), min_size=1, max_size=20).filter(lambda t: "\n" not in t)


def place(ranges: HashRanges, *topics: str) -> list[str]:
    """Bundle of each topic, "" none."""
    rows, _ = ranges.place(pa.array(topics, pa.string()))
    return [ranges.names(np.array([row]))[0] if row >= 0 else "" for row in rows]


# -- where a topic belongs --


@given(st.lists(st.tuples(st.sampled_from(["t/a", "t/b"]), TEXT), max_size=20))
def test_a_topic_is_placed_as_the_ring_of_its_namespace_says(topics: list[tuple[str, str]]) -> None:
    names = [f"persistent://{namespace}/{text}" for namespace, text in topics]
    for (namespace, _), name, found in zip(topics, names, place(RANGES, *names), strict=True):
        boundaries = default_boundaries(4 if namespace == "t/a" else 3)
        assert found == bundle_names(namespace, boundaries)[int(find_bundle(boundaries, topic_hash(name)))]


@pytest.mark.parametrize(
    "name",
    ["persistent://t/c/x", "persistent://t/a", "t/a/x", "", "persistent://t//x", "/////", "persistent://u/a/x"],
)
def test_a_name_outside_the_known_namespaces_belongs_nowhere(name: str) -> None:
    assert place(RANGES, name, "persistent://t/a/x", name)[::2] == ["", ""]
    assert place(RANGES, name, "persistent://t/a/x", name)[1]


def test_the_last_hash_belongs_to_the_last_bundle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zlib, "crc32", lambda _: LAST_HASH)
    rows, hashes = RANGES.place(pa.array(["persistent://t/a/x"]))
    assert RANGES.names(rows) == [bundle_names("t/a", default_boundaries(4))[-1]]
    assert hashes.tolist() == [LAST_HASH]


def test_a_hole_in_a_ring_belongs_to_no_broker() -> None:
    half = HashRanges.of([name for name in NAMES if name.endswith("0x40000000")])
    names = [f"persistent://t/a/{k}" for k in range(40)]
    assert [bool(found) for found in place(half, *names)] == [topic_hash(name) < 0x40000000 for name in names]


def test_without_bundles_every_topic_is_outside() -> None:
    assert place(HashRanges.of(()), "persistent://t/a/x") == [""]
    assert RANGES.place(pa.array([], pa.string()))[0].tolist() == []


def test_namespaces_are_cut_from_a_slice_of_a_column_too() -> None:
    column = pa.array(["persistent://x/y/1", "non-persistent://t/a/b/c", "no", "persistent://t/b/2"])
    assert namespaces_of(column[1:]).to_pylist() == ["t/a", "", "t/b"]


def test_ranges_survive_their_journey() -> None:
    owned = RANGES.owned(("p", "q"), np.array([0, 1, -1, 0, 0, 1, 1]))
    back = HashRanges.from_text(owned.to_text())
    assert (back.namespaces, back.pods) == (("t/a", "t/b"), ("p", "q"))
    assert back.owner.tolist() == [0, 0, 1, 1, 0, 1, -1]
    assert back.names(np.arange(7)) == [*NAMES[3:], *NAMES[:3]]


def test_a_partition_in_a_label_of_its_own_belongs_to_the_name() -> None:
    topics, partitions = pa.array(["a", "b", "c"]), pa.array(["3", "-1", ""])
    assert full_names(topics, partitions).to_pylist() == ["a-partition-3", "b", "c"]
    assert full_names(topics, pa.array(["", "", ""])) is topics


# -- what a shard makes of them --

QUERIES = {name: f'{name}{{topic=~"$topics"}}' for name in TOPICS.columns}
Loads = Mapping[tuple[str, str], tuple[float, ...]]


class World:
    """A server that knows topics by (topic, pod), bundles by (bundle, pod), and that pod p's own metrics are young."""

    def __init__(self, topics: Loads, bundles: Loads | None = None, hot: int = 0) -> None:
        self.topics, self.bundles = topics, bundles or {}
        self.asked: list[str] = []
        shard = ShardRequest({"traffic_time": "TIME"}, {"rate_in": "BUNDLE 0", "rate_out": "BUNDLE 1"}, QUERIES)
        self.request = ReadRequest("http://x", 100.0, 5.0, (shard,), hot_bundles=hot, max_age=30)

    def fetch(self, promql: str) -> Samples:
        self.asked.append(promql)
        if promql == "TIME":
            return Samples({"pod": pa.array(["p"])}, pa.array([99.0]))
        if promql.startswith("BUNDLE"):
            return self._samples("bundle", self.bundles, int(promql[-1]))
        return self._samples("topic", self.topics, TOPICS.columns.index(promql.partition("{")[0]))

    @staticmethod
    def _samples(key: str, rows: Loads, column: int) -> Samples:
        names, pods = (pa.array([row[k] for row in rows], pa.string()) for k in (0, 1))
        return Samples({key: names, "pod": pods}, pa.array([load[column] for load in rows.values()], pa.float64()))

    def read(
        self, ranges: HashRanges | None
    ) -> tuple[dict[tuple[str, str], list[float]], dict[str, object], list[object]]:
        """Load of each (bundle, pod); the report; the topics inside the hot bundles."""
        _, bundles, report = read_shard(self.request, 0, self.fetch, ranges)
        columns = (*TOPICS.columns, "topics")
        found = {(r["bundle"], r["pod"]): [r[name] for name in columns] for r in bundles.to_pylist()}
        return found, json.loads(report["report"][0].as_py()), report["inside"][0].as_py() or []


def topic(k: int) -> str:
    return f"persistent://t/a/{k}"


def of(name: str) -> str:
    return place(RANGES, name)[0]


def test_a_bundle_carries_the_sum_of_its_topics() -> None:
    loads = {(topic(k), "p"): (1.0 + k, 2.0, 30.0, 40.0, 5.0, 6.0) for k in range(20)}
    found, report, _ = World(loads).read(RANGES)
    for bundle in NAMES[3:]:
        inside = np.array([load for (name, _), load in loads.items() if of(name) == bundle])
        assert found[bundle, "p"] == [*inside.sum(axis=0).tolist(), len(inside)]
    assert report["dropped"] == {}


def test_topics_outside_are_counted_and_nan_is_dropped() -> None:
    nothing = (0.0,) * 6
    world = World(
        {("persistent://x/y/z", "p"): nothing, ("odd", "p"): nothing, (topic(1), "p"): (np.nan, 1, 1, 1, 1, 1)}
    )
    found, report, _ = world.read(RANGES)
    assert report["dropped"] == {"Unknown": 2, "NaN": 1}
    assert found == {(of(topic(1)), "p"): [0, 1, 1, 1, 1, 1, 1]}


def test_an_idle_bundle_of_a_pod_that_answers_carries_nothing_and_one_of_another_pod_is_unknown() -> None:
    owned = RANGES.owned(("p", "q"), np.array([1, 1, 1, 0, 0, 0, 1]))
    busy = of(topic(1))
    found, _, _ = World({(topic(1), "q"): (1.0,) * 6}).read(owned)
    idle = {bundle for bundle in NAMES[3:6] if bundle != busy}
    assert {bundle for (bundle, pod), load in found.items() if pod == "" and not any(load)} == idle
    assert found[busy, "q"] == [1.0] * 7


def test_where_no_topic_is_reported_no_bundle_is_taken_for_idle() -> None:
    owned = RANGES.owned(("p",), np.zeros(7, np.int64))
    assert World({}).read(owned)[0] == {}
    assert len(World({("persistent://x/y/z", "p"): (1.0,) * 6}).read(owned)[0]) == 7


def test_a_bundle_that_two_pods_report_has_a_row_of_each() -> None:
    found, _, _ = World({(topic(1), "p"): (1.0,) * 6, (topic(1), "q"): (2.0,) * 6}).read(RANGES)
    assert found == {(of(topic(1)), "p"): [1.0] * 7, (of(topic(1)), "q"): [2.0] * 6 + [1.0]}


def test_where_bundles_have_metrics_topics_are_not_asked_for() -> None:
    world = World({(topic(1), "p"): (1.0,) * 6}, bundles={(NAMES[0], "p"): (7.0, 8.0)})
    found, report, _ = world.read(RANGES)
    assert list(found) == [(NAMES[0], "p")]
    assert report["bundles"] == 1
    assert not any("topics" in promql or "persistent" in promql for promql in world.asked)


def test_without_ranges_topics_are_not_summed() -> None:
    found, report, _ = World({(topic(1), "p"): (1.0,) * 6}).read(None)
    assert (found, report["bundles"]) == ({}, 0)


def test_the_insides_of_the_hottest_bundles_are_reported_with_their_places() -> None:
    loads = {(topic(k), "p"): (1.0 + k, 0.0, 1.0, 0.0, 0.0, 0.0) for k in range(20)}
    found, _, inside = World(loads, hot=1).read(RANGES)
    most = {max(found, key=lambda key: found[key][0])[0], max(found, key=lambda key: found[key][2])[0]}
    assert {row["topic"] for row in inside} == {name for name, _ in loads if of(name) in most}
    for row in inside:
        assert (row["bundle"], row["pod"]) == (of(row["topic"]), "p")
        assert row["place"] == topic_hash(row["topic"])
        assert row["rate_in"] == loads[row["topic"], "p"][0]


def test_where_bundles_have_metrics_only_the_namespaces_of_the_hottest_are_asked_for_topics() -> None:
    cold = bundle_names("u/cold", default_boundaries(1))[0]
    hot = of(topic(1))
    loads = {(topic(k), "p"): (1.0,) * 6 for k in range(20)}
    world = World(loads, bundles={(hot, "p"): (9.0, 9.0), (cold, "p"): (1.0, 1.0), ("no bundle", "p"): (99, 99)}, hot=2)
    _, _, inside = world.read(None)
    asked = [promql for promql in world.asked if "persistent" in promql]
    assert len(asked) == len(TOPICS.columns)
    assert all('topic=~"(non-)?persistent://(t/a)/.+"' in promql for promql in asked)
    assert {row["topic"] for row in inside} == {name for name, _ in loads if of(name) == hot}


def test_the_topics_of_a_namespace_are_named_literally() -> None:
    assert topics_in('x{topic=~"$topics"}', ["t/a.b"]) == r'x{topic=~"(non-)?persistent://(t/a\\.b)/.+"}'
    assert topics_in('x{topic=~"$topics"}') == 'x{topic=~".+"}'


def test_the_hottest_have_the_most_messages_or_the_most_bytes() -> None:
    load = {
        "rate_in": np.array([1, 9, 2, np.nan]),
        "rate_out": np.array([1, 0, 2, 0]),
        "throughput_in": np.array([5, 1, 1, 1]),
        "throughput_out": np.zeros(4),
    }
    assert hottest(load, 1).tolist() == [0, 1]
    assert hottest(load, 0).tolist() == []
    assert hottest(load, 9).tolist() == [0, 1, 2, 3]


# -- when topics are summed --


@pytest.mark.parametrize(
    ("metrics", "own", "wanted"),
    [
        ("auto", [], True),
        ("auto", [0], True),
        ("auto", [5], False),
        ("auto", [5, 0], True),
        ("topic", [5], True),
        ("bundle", [0], False),
    ],
)
def test_topics_are_summed_while_no_bundle_speaks_for_itself(metrics: str, own: list[int], wanted: bool) -> None:  # noqa: FBT001
    summing, world = Summing(metrics), topology({"a": "p"}, {NAMES[0]: "a", NAMES[1]: ""})
    for count in own:
        summing.saw(count)
    ranges = summing.ranges(world)
    assert (ranges is not None) is wanted
    if ranges is not None:
        assert (ranges.pods, ranges.owner.tolist()) == (("p",), [0, -1])
