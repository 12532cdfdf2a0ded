"""What a Spark task does, without Spark."""

from __future__ import annotations

import json
from collections.abc import Mapping

import pyarrow as pa

from trimtab_pipeline.prometheus.client import PrometheusStatusError
from trimtab_pipeline.prometheus.read_request import ReadRequest, ShardRequest
from trimtab_pipeline.prometheus.samples import Samples
from trimtab_pipeline.prometheus.shard_reader import SCHEMA, pivot, read_shard

REQUEST = ReadRequest(
    "http://x", 100.0, 5.0, (ShardRequest({"cpu": "CPU", "rate_in": "TOTAL"}, {"rate_in": "IN", "topics": "TOPICS"}),)
)


def samples(values: Mapping[str, float], warnings: tuple[str, ...] = ()) -> Samples:
    """Series by bundle, all on one pod."""
    pods = pa.array(["p"] * len(values), pa.string())
    names = pa.array(list(values), pa.string())
    return Samples({"bundle": names, "pod": pods}, pa.array(list(values.values()), pa.float64()), warnings)


def read(**answers: Samples) -> tuple[list[dict[str, object]], dict[str, object], dict[str, object]]:
    """Bundle rows, the first broker row, and the report; no series where no answer is given."""
    brokers, bundles, report = read_shard(REQUEST, 0, lambda promql: answers.get(promql, samples({})))
    assert brokers.schema.equals(SCHEMA)
    broker = next(iter(brokers["broker"].to_pylist()), {})
    return bundles.to_pylist(), broker, json.loads(report["report"][0].as_py())


def test_answers_become_one_row_per_bundle() -> None:
    rows, _, report = read(IN=samples({"x": 1, "y": 2}), TOPICS=samples({"x": 10, "y": 20}))
    assert [(r["bundle"], r["pod"], r["rate_in"], r["topics"], r["at"]) for r in rows] == [
        ("x", "p", 1.0, 10.0, 100.0),
        ("y", "p", 2.0, 20.0, 100.0),
    ]
    assert report["ok"]


def test_brokers_travel_beside_the_bundles() -> None:
    _, broker, _ = read(CPU=samples({"": 1.5}), TOTAL=samples({"": 7}))
    assert (broker["pod"], broker["cpu"], broker["rate_in"], broker["cpu_limit"]) == ("p", 1.5, 7.0, None)


def test_series_in_another_order_or_missing_still_meet_their_row() -> None:
    rows, _, _ = read(IN=samples({"x": 1, "y": 2}), TOPICS=samples({"z": 30, "y": 20}))
    assert {r["bundle"]: (r["rate_in"], r["topics"]) for r in rows} == {"x": (1, None), "y": (2, 20), "z": (None, 30)}


def test_what_no_rate_can_be_is_dropped_and_counted() -> None:
    bad = {"a": float("nan"), "b": float("inf"), "c": -1.0, "d": 0.0, "e": float("-inf")}
    rows, _, report = read(IN=samples(bad))
    assert [r["rate_in"] for r in rows] == [None, None, None, 0.0, None]
    assert report["dropped"] == {"NaN": 1, "Infinite": 2, "Negative": 1}


def test_warnings_are_reported_once() -> None:
    _, _, report = read(IN=samples({}, ("partial",)), TOPICS=samples({}, ("partial", "late")))
    assert report["warnings"] == ["late", "partial"]


def test_a_shard_that_fails_ends_with_a_report_instead_of_an_error() -> None:
    def fetch(promql: str) -> Samples:
        if promql == "TOPICS":
            raise PrometheusStatusError("http://x answered 503: out of order")
        return samples({"x": 1.0})

    (only,) = read_shard(REQUEST, 0, fetch)
    report = json.loads(only["report"][0].as_py())
    assert (report["ok"], report["shard"], report["error"]) == (False, 0, "http://x answered 503: out of order")


def test_keys_in_the_same_order_are_taken_as_they_are() -> None:
    first = samples({"x": 1.0})
    keys, values = pivot([first, samples({"x": 2.0})], ("bundle", "pod"))
    assert keys[0] is first.labels["bundle"]
    assert [v.to_pylist() for v in values] == [[1.0], [2.0]]
