"""Readers of the answers of Prometheus, and of brokers' statistics."""

from __future__ import annotations

import json
from contextlib import suppress

from fuzz_target import BETWEEN, Target
from trimtab_pipeline.prometheus.broker_statistics import _table, rows_in
from trimtab_pipeline.prometheus.client import _ahead
from trimtab_pipeline.prometheus.response_limits import json_of
from trimtab_pipeline.prometheus.sample_batches import (
    good,
    pivot,
    rated_series,
    raw_rows,
    repeated_pods,
    unusable,
    value_rows,
)
from trimtab_pipeline.prometheus.samples import MalformedBodyError, Samples, VectorParser


def read_answers(data: bytes) -> None:
    """The answers to the queries of one read. One parser parses each of them twice.

    The second time, the parser may know the labels.
    """
    parser = VectorParser()
    for body in data.split(BETWEEN):
        for _ in range(2):
            with suppress(MalformedBodyError):
                _use(parser.parse(body))


def _use(answer: Samples) -> None:
    """Use an answer as the reader of a shard does."""
    good(answer.values)
    pivot([answer, answer.of_pods(["a"])], ("pod", "bundle"))
    value_rows([("cpu", answer), ("", answer)])
    series = rated_series(answer.of_pods(answer.label("pod").to_pylist()), "cpu") if answer.points else []
    raw_rows(series)
    unusable(series, 60.0)
    repeated_pods(series)


def _answers() -> list[bytes]:
    vector = [
        {"metric": {"pod": f"broker-{k}", "bundle": "t/n/0x00000000_0x80000000"}, "value": [1.5, f"{k}.25"]}
        for k in range(3)
    ]
    matrix = [{"metric": {"pod": "broker-0"}, "values": [[1.0, "1"], [2.0, "NaN"]]}]
    odd = [{"metric": {"pod": "brök\\er"}, "value": [1, "+Inf"]}, {"metric": {}, "value": [1, "-1"]}]
    bodies = [_answer("vector", vector), _answer("matrix", matrix), _answer("vector", odd), _answer("vector", [])]
    warned = _answer("vector", vector)[:-1] + b',"warnings":["a store did not answer"],"isPartial":true}'
    failed = json.dumps({"status": "error", "errorType": "bad_data", "error": "parse error"}).encode()
    return [*bodies, warned, failed, BETWEEN.join((bodies[0], warned))]


def _answer(kind: str, result: object) -> bytes:
    answer = {"status": "success", "data": {"resultType": kind, "result": result}}
    return json.dumps(answer, separators=(",", ":")).encode()


def read_statistics(data: bytes) -> None:
    """A broker's statistics of its topics."""
    _table({"broker-0": rows_in(json_of(data))})


def _statistics() -> list[bytes]:
    topic = {"msgRateIn": 1.5, "msgRateOut": 2, "msgThroughputIn": 1e3, "msgThroughputOut": 2e3, "producerCount": 1}
    stats = {**topic, "subscriptions": {"s": {"consumers": [{}]}}}
    kinds = {"persistent": {"persistent://t/n/a": stats}}
    return [json.dumps({"t/n": {"0x00000000_0xffffffff": kinds}}).encode(), b"{}"]


def read_date(data: bytes) -> None:
    """The header ``Date`` of an answer."""
    _ahead(data.decode("latin-1"), 1e9)


TARGETS = (
    Target("prometheus", read_answers, (), _answers),
    Target(
        "statistics",
        read_statistics,
        (AttributeError, KeyError, OverflowError, TypeError, ValueError),  # `_rows_of` reports these
        _statistics,
    ),
    Target("date", read_date, (), lambda: [b"Wed, 25 Nov 2026 12:00:00 GMT", b"1 Jan 0001 00:00:00 -0000", b""]),
)
