"""Topics among bundles: the ring of each namespace, sums, idle bundles, and the insides of the hottest."""

from __future__ import annotations

import re
import zlib
from collections.abc import Mapping

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, strategies as st

from pipeline_clusters import topology
from trimtab_pipeline.columns import BUNDLE_SAMPLES, TRAFFIC
from trimtab_pipeline.sources.pipeline import ShardResult, with_idle
from trimtab_pipeline.transform.relations import BROKER_LOAD, POD_TIMES
from trimtab_pipeline.transform.topic_to_bundle import HashRanges, Summing, namespaces_of
from trimtab_pipeline.transform.topics import bundle_sums, hottest, topics_inside
from trimtab_strategies.hash_ring import LAST_HASH, bundle_names, default_boundaries, find_bundle, topic_hash

NAMES = (*bundle_names("t/b", default_boundaries(3)), *bundle_names("t/a", default_boundaries(4)))
RANGES = HashRanges.of(NAMES)
TEXT = st.text(st.characters(blacklist_categories=["Cs"], blacklist_characters="\n/"), min_size=1, max_size=20)


def place(ranges: HashRanges, *topics: str) -> list[str]:
    """Bundle of each topic, "" none."""
    rows, _ = ranges.place(pa.array(topics, pa.string()))
    return [ranges.names(np.array([row]))[0] if row >= 0 else "" for row in rows]


# -- where a topic belongs --


@pytest.mark.parametrize(
    ("names", "owner", "left"),
    [
        (["0x00000000_0x80000000", "0x10000000_0x20000000"], [0, -1], [0]),
        (["0x00000000_0x80000000", "0x10000000_0x20000000"], [-1, 0], [1]),
        (["0x10000000_0x20000000", "0x00000000_0x80000000"], [0, 0], [1]),
        (["0x00000000_0x80000000", "0x00000000_0x80000000", "0x80000000_0xffffffff"], [-1, 1, -1], [1, 2]),
        (["0x00000000_0x80000000", "0x80000000_0xffffffff"], [0, 1], [0, 1]),
    ],
)
def test_a_hash_has_one_range_also_where_bundles_overlap(names: list[str], owner: list[int], left: list[int]) -> None:
    other = "t/b/0x00000000_0x80000000"
    ranges = HashRanges.of([*(f"t/a/{name}" for name in names), other]).owned(("p", "q"), np.array([*owner, 0]))

    assert ranges.row.tolist() == [*left, len(names)]
    assert ranges.owner.tolist() == [*(owner[row] for row in left), 0]
    assert ranges.names(np.arange(len(ranges))) == [*(f"t/a/{names[row]}" for row in left), other]


@given(st.lists(st.tuples(st.sampled_from(["t/a", "t/b"]), TEXT), max_size=20))
def test_a_topic_is_placed_as_the_ring_of_its_namespace_says(topics: list[tuple[str, str]]) -> None:
    names = [f"persistent://{namespace}/{text}" for namespace, text in topics]
    for (namespace, _), name, found in zip(topics, names, place(RANGES, *names), strict=True):
        boundaries = default_boundaries(4 if namespace == "t/a" else 3)
        assert found == bundle_names(namespace, boundaries)[int(find_bundle(boundaries, topic_hash(name)))]


@pytest.mark.parametrize(
    "name",
    [
        "persistent://t/c/x",
        "persistent://t/a",
        "t/a/x",
        "",
        "persistent://t//x",
        "/////",
        "persistent://u/a/x",
        "persistent://t/a/v1/legacy",
        "topic://t/a/x",
        "segment://t/a/x",
        "segment://t/a/x/bad-descriptor",
        "segment://t/a/0000-7fff-1",
        "x-segment://t/a/x/0000-7fff-1",
        "later://t/a/x",
        "//t/a/x",
        "a/b/t/a/x",
        "://t/a",
    ],
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
    column = pa.array(["persistent://x/y/1", "non-persistent://t/a/b", "no", "persistent://t/b/2", "p://t/a/b/c"])
    assert namespaces_of(column[1:]).to_pylist() == ["t/a", "", "t/b", ""]


DOMAINS = ("persistent://", "non-persistent://", "segment://", "topic://", "://", "")


@given(st.lists(st.tuples(st.sampled_from(DOMAINS), st.text("/a\n-0", max_size=12)), max_size=20))
def test_namespaces_are_those_of_a_regular_expression_on_whole_names(parts: list[tuple[str, str]]) -> None:
    names = ["".join(part) for part in parts]
    topic = re.compile(r"(?:non-)?persistent://([^/]+/[^/]+)/[^/]+")
    segment = re.compile(r"(?s)segment://([^/]+/[^/]+)/.+/[0-9a-f]+-[0-9a-f]+-[0-9]+")
    found = [topic.fullmatch(name) or segment.fullmatch(name) for name in names]
    assert namespaces_of(pa.array(names, pa.string())).to_pylist() == [one[1] if one else "" for one in found]


@given(st.sampled_from(["t/a", "t/b"]), TEXT, st.integers(0, 0xFFFF), st.integers(0, 0xFFFF), st.integers(0))
def test_a_segment_of_a_scalable_topic_is_placed_by_its_whole_name(
    namespace: str, text: str, first: int, last: int, number: int
) -> None:
    name = f"segment://{namespace}/{text}/{first:04x}-{last:04x}-{number}"
    boundaries = default_boundaries(4 if namespace == "t/a" else 3)
    assert place(RANGES, name) == [bundle_names(namespace, boundaries)[int(find_bundle(boundaries, topic_hash(name)))]]


def test_ranges_arrive_at_a_task_as_they_were_sent() -> None:
    owned = RANGES.owned(("p", "q"), np.zeros(7, np.int64))
    sent = HashRanges.unpacked(owned.packed)
    assert sent.labels.equals(owned.labels)
    names = [f"persistent://t/{space}/{k}" for space in "abc" for k in range(30)]
    assert place(sent, *names) == place(RANGES, *names)
    assert RANGES.packed is owned.packed, "ranges that differ only in owners are packed once"
    assert HashRanges.unpacked(owned.packed) is sent, "and unpacked once"


def test_ranges_without_the_overlapping_ones_are_packed_anew() -> None:
    whole = HashRanges.of(["t/a/0x00000000_0x80000000", "t/a/0x10000000_0x20000000"])
    assert HashRanges.unpacked(whole.packed).labels.to_pylist() == list(whole.names(np.arange(2)))
    assert HashRanges.unpacked(whole.owned(("p",), np.array([0, -1])).packed).labels.to_pylist() == [
        "t/a/0x00000000_0x80000000"
    ]


# -- what a shard makes of them --

COLUMNS = (*TRAFFIC, "producers", "consumers")
Loads = Mapping[tuple[str, str], tuple[float, ...]]
ONE = [1.0, 1.0, 1.0, 1.0, 2.0, 1.0]
"""Traffic, sessions and number of topics of a bundle with one topic whose figures are all 1."""


def sums(
    topics: Loads, ranges: HashRanges = RANGES, young: str = "p", answered: list[str] | None = None
) -> dict[tuple[str | None, str | None], list[float]]:
    """Load and number of topics of each (bundle, pod), from topics by (topic, pod); pod q is in shard 1."""
    shards = []
    for shard in "pq":
        rows = [
            {"topic": name, "pod": pod, **dict(zip(COLUMNS, load, strict=True))}
            for (name, pod), load in topics.items()
            if pod == shard
        ]
        table = bundle_sums(pa.Table.from_pylist(rows, BUNDLE_SAMPLES), ranges)
        shards.append(ShardResult(BROKER_LOAD.empty_table(), table, ({"answered": answered},)))
    times = [{"shard": k, "pod": pod, "young": pod in young} for k, pod in enumerate("pq")]
    found = with_idle(shards, ranges, pa.Table.from_pylist(times, POD_TIMES))
    names = (*TRAFFIC, "sessions", "topics")
    rows = [(row["bundle"], row["pod"], [row[name] for name in names]) for row in found.to_pylist()]
    merged: dict[tuple[str | None, str | None], list[float]] = {}
    for bundle, pod, load in rows:
        before = merged.get((bundle, pod), [0.0] * len(names))
        merged[bundle, pod] = [one + other for one, other in zip(before, load, strict=True)]
    return merged


def topic(k: int) -> str:
    return f"persistent://t/a/{k}"


def of(name: str) -> str:
    return place(RANGES, name)[0]


def test_a_bundle_carries_the_sum_of_its_topics() -> None:
    loads = {(topic(k), "p"): (1.0 + k, 2.0, 30.0, 40.0, 5.0, 6.0) for k in range(20)}
    found = sums(loads)
    assert len(found) == 4
    for bundle in NAMES[3:]:
        inside = np.array([load for (name, _), load in loads.items() if of(name) == bundle])
        *traffic, producers, consumers = inside.sum(axis=0).tolist()
        assert found[bundle, "p"] == [*traffic, producers + consumers, len(inside)]


def test_topics_outside_are_counted_in_a_row_of_their_own() -> None:
    ones = (1.0,) * 6
    found = sums({("persistent://x/y/z", "p"): ones, ("odd", "p"): ones, (topic(1), "p"): ones})
    assert found == {(None, None): [2.0 * load for load in ONE], (of(topic(1)), "p"): ONE}


def test_an_unknown_signal_of_a_topic_adds_nothing() -> None:
    found = sums({(topic(1), "p"): (None, 1, 1, 1, 1, 1)})  # type: ignore[dict-item]
    assert found == {(of(topic(1)), "p"): [0, 1, 1, 1, 2, 1]}


def test_an_idle_bundle_of_a_pod_that_answers_carries_nothing_and_one_of_another_pod_is_unknown() -> None:
    owned = RANGES.owned(("p", "q"), np.array([1, 1, 1, 0, 0, 0, 1]))
    busy = of(topic(1))
    found = sums({(topic(1), "q"): (1.0,) * 6, ("odd", "p"): (0.0,) * 6}, owned)
    idle = {bundle for bundle in NAMES[3:6] if bundle != busy}
    assert {bundle for (bundle, pod), load in found.items() if pod == "" and not any(load)} == idle
    assert found[busy, "q"] == ONE


def test_a_bundle_that_another_pod_reports_is_not_idle_on_its_owner() -> None:
    owned = RANGES.owned(("p", "q"), np.zeros(7, np.int64))
    found = sums({(topic(1), "q"): (1.0,) * 6, (topic(1), "p"): (1.0,) * 6}, owned)
    assert {pod for bundle, pod in found if bundle == of(topic(1))} == {"p", "q"}
    assert len(found) == 8


def test_where_a_shard_reports_no_topic_none_of_its_bundles_is_taken_for_idle() -> None:
    owned = RANGES.owned(("p", "q"), np.zeros(7, np.int64))
    assert sums({}, owned) == {}
    assert sums({(topic(1), "q"): (1.0,) * 6}, owned, young="pq") == {(of(topic(1)), "q"): ONE}
    assert len(sums({("persistent://x/y/z", "p"): (1.0,) * 6}, owned)) == 8


def test_bundles_of_brokers_that_told_their_topics_are_idle_even_without_any() -> None:
    owned = RANGES.owned(("p", "q"), np.array([0, 0, 0, 1, 1, 1, 1]))
    assert {bundle for bundle, _ in sums({}, owned, young="", answered=["p"])} == set(NAMES[:3])


def test_a_bundle_that_two_pods_report_has_a_row_of_each() -> None:
    found = sums({(topic(1), "p"): (1.0,) * 6, (topic(1), "q"): (2.0,) * 6})
    assert found == {(of(topic(1)), "p"): ONE, (of(topic(1)), "q"): [2.0, 2.0, 2.0, 2.0, 4.0, 1.0]}


def test_bundles_with_metrics_of_their_own_pass_through() -> None:
    own = {"bundle": NAMES[0], "pod": "p", "rate_in": 7.0, "topics": 3.0, "producers": 1.0, "consumers": 4.0}
    samples = pa.Table.from_pylist([own], BUNDLE_SAMPLES)
    for ranges in (RANGES, None):
        (row,) = bundle_sums(samples, ranges).to_pylist()
        known = {"bundle": NAMES[0], "pod": "p", "rate_in": 7.0, "topics": 3.0, "sessions": 5.0, "summed": False}
        assert {name: value for name, value in row.items() if value is not None} == known


def test_bundles_of_a_shard_whose_bundles_have_metrics_of_their_own_are_not_taken_for_idle() -> None:
    """Shards are told apart: one has topics, the other bundles; only the first reports every bundle that it serves."""
    owned = RANGES.owned(("p", "q"), np.array([0, 0, 0, 1, 1, 1, 1]))
    rows: list[dict[str, object]] = [{"topic": "persistent://t/b/1", "pod": "p"}, {"bundle": NAMES[3], "pod": "q"}]
    tables = [bundle_sums(pa.Table.from_pylist([row], BUNDLE_SAMPLES), owned) for row in rows]
    shards = [ShardResult(BROKER_LOAD.empty_table(), table, ({"answered": None},)) for table in tables]
    times = [{"shard": k, "pod": pod, "young": True} for k, pod in enumerate("pq")]
    found = with_idle(shards, owned, pa.Table.from_pylist(times, POD_TIMES))
    assert set(found["bundle"].to_pylist()) == {*NAMES[:3], NAMES[3]}


def test_the_insides_of_bundles_are_topics_with_their_places() -> None:
    rows = [{"topic": topic(k), "pod": "p", "rate_in": 1.0 + k} for k in range(20)]
    hot = of(topic(1))
    inside = topics_inside(pa.Table.from_pylist(rows, BUNDLE_SAMPLES), HashRanges.of([hot])).to_pylist()
    assert {row["topic"] for row in inside} == {topic(k) for k in range(20) if of(topic(k)) == hot}
    for row in inside:
        assert (row["bundle"], row["pod"], row["rate_out"]) == (hot, "p", 0.0)
        assert row["place"] == topic_hash(row["topic"])


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
