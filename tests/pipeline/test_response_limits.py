"""Answers without an end, of any depth, or a byte at a time: each is an error in time, and takes little memory."""

from __future__ import annotations

import gzip
import itertools
import time
import tracemalloc
from collections.abc import Callable, Iterable

import pytest

from raw_server import OK, RawServer
from trimtab_pipeline.api import NO_CREDENTIALS, PrometheusSettings, StatisticsSettings
from trimtab_pipeline.prometheus import broker_statistics as statistics, read_request
from trimtab_pipeline.prometheus.broker_statistics import ask_brokers
from trimtab_pipeline.prometheus.client import (
    LARGEST,
    PrometheusClient,
    PrometheusError,
    PrometheusFormatError,
    PrometheusStatusError,
    PrometheusUnreachableError,
)
from trimtab_pipeline.prometheus.read_request import ReadRequest, ShardRequest, TableName
from trimtab_pipeline.prometheus.response_limits import DEEPEST, INFLATED, TooDeepError, TooLargeError, joined, json_of
from trimtab_pipeline.prometheus.samples import MalformedBodyError, parse_vector

DEEP = b"[" * 100_000
VECTOR = b'{"status":"success","data":{"resultType":"vector","result":[%s]%s}}'


def within(seconds: float, doing: Callable[[], object]) -> None:
    """Do it, and see that it took no longer."""
    begin = time.monotonic()
    doing()
    assert time.monotonic() - begin < seconds


@pytest.mark.parametrize("body", [DEEP, b'{"a":' * 100_000, b"[" * (DEEPEST + 2) + b"]" * (DEEPEST + 2)])
def test_json_of_any_depth_is_an_error(body: bytes) -> None:
    with pytest.raises(TooDeepError, match=f"nested deeper than {DEEPEST} levels"):
        json_of(body)


def test_json_of_a_usual_depth_is_read() -> None:
    body = "[" * DEEPEST + '{"a": 1}' + "]" * DEEPEST
    assert str(json_of(body)) == body.replace('"', "'")


def test_no_piece_is_asked_for_past_the_bound() -> None:
    pieces = iter([b"abc"] * 9)
    with pytest.raises(TooLargeError, match="larger than 0 KiB"):
        joined(pieces, 10)
    assert len(list(pieces)) == 5


@pytest.mark.parametrize(
    "body", [DEEP, VECTOR % (b"", b',"x":' + DEEP), VECTOR % (b'{"metric":{"a":"b"},"value":[1,"2"]}', b',"x":' + DEEP)]
)
def test_a_vector_of_any_depth_is_malformed(body: bytes) -> None:
    with pytest.raises(MalformedBodyError, match="nested deeper"):
        parse_vector(body)


def asked(server: RawServer, timeout: float = 5.0, largest: int = 2**20) -> PrometheusError:
    """What comes of a query."""
    with PrometheusClient(server.url, timeout, largest=largest) as client, pytest.raises(PrometheusError) as caught:
        client.query("up", 1.0)
    return caught.value


def compressed(body: bytes, layers: int = 1) -> bytes:
    """An answer that is compressed although nobody asked for that."""
    for _ in range(layers):
        body = gzip.compress(body, 9)
    return (
        OK
        + b"Content-Encoding: "
        + b", ".join([b"gzip"] * layers)
        + b"\r\nContent-Length: %d\r\n\r\n" % len(body)
        + body
    )


@pytest.mark.parametrize("layers", [1, 2])
def test_an_answer_that_unpacks_to_very_much_is_given_up_early(layers: int) -> None:
    bomb = compressed(VECTOR % (b" " * 2**27, b""), layers)
    with RawServer(lambda: [bomb]) as server:
        tracemalloc.start()
        error = asked(server, timeout=30.0, largest=LARGEST)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert type(error) is PrometheusFormatError
    assert str(error) == (
        f"{server.url}: the answer is compressed to less than 1/{INFLATED} of its size: see what the url leads to"
    )
    assert peak < 32 * 2**20


def test_a_compressed_answer_of_a_usual_kind_is_read() -> None:
    """Even if its series are alike."""
    topic = (
        b'{"metric":{"__name__":"pulsar_rate_in","topic":"persistent://public/default/t-%d"},"value":[1750000000,"0"]}'
    )
    body = compressed(VECTOR % (b",".join(topic % k for k in range(30_000)), b""))
    with RawServer(lambda: [body]) as server, PrometheusClient(server.url, 30.0) as client:
        assert len(client.query("up", 1.0).values) == 30_000


def endless(head: bytes) -> Callable[[], Iterable[bytes]]:
    return lambda: itertools.chain([head], itertools.repeat(b" " * 65536))


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (b"200 OK", PrometheusFormatError),
        (b"302 Found\r\nLocation: http://127.0.0.1:9/", PrometheusStatusError),
        (b"503 Busy", PrometheusStatusError),
        (b"422 Wrong", PrometheusStatusError),
    ],
)
def test_an_answer_without_an_end_is_given_up_at_its_bound(status: bytes, kind: type[PrometheusError]) -> None:
    with RawServer(endless(b"HTTP/1.1 " + status + b"\r\n\r\n")) as server:
        error = asked(server, timeout=30.0)

    assert type(error) is kind
    assert server.sent < 2**25, "what was on its way, and no more"
    if kind is PrometheusFormatError:
        assert str(error) == f"{server.url}: the answer is larger than 1 MiB: see what the url leads to"


def trickle(head: bytes) -> Callable[[], Iterable[bytes]]:
    return lambda: itertools.chain([head], itertools.repeat(b"1"))


@pytest.mark.parametrize(
    "head",
    [
        b"",
        OK + b"X-Long: ",
        OK + b"\r\n",
        OK + b"Content-Length: 1000000\r\n\r\n",
        OK + b"Transfer-Encoding: chunked\r\n\r\n",
        OK + b"Transfer-Encoding: chunked\r\n\r\nfffff\r\n",
    ],
    ids=["status", "header", "body", "known length", "length of a chunk", "chunk"],
)
def test_an_answer_that_trickles_is_given_up_after_the_timeout(head: bytes) -> None:
    with RawServer(trickle(head), pause=0.05) as server:
        errors = list[PrometheusError]()
        within(3.0, lambda: errors.append(asked(server, timeout=0.5)))

    assert type(errors[0]) is PrometheusUnreachableError
    assert "did not answer within 0.5 s" in str(errors[0])


def test_a_deep_complaint_is_reported_as_it_begins() -> None:
    body = b'{"error":' + DEEP
    head = b"HTTP/1.1 422 Wrong\r\nContent-Length: %d\r\n\r\n" % len(body)
    with RawServer(lambda: [head + body]) as server:
        assert 'answered 422: \'{"error":[[[' in str(asked(server))


@pytest.mark.parametrize(
    "head", [b"", OK + b"\r\n", OK + b"Content-Length: 1000000\r\n\r\n"], ids=["status", "body", "known length"]
)
def test_statistics_that_trickle_are_given_up_after_the_timeout(head: bytes) -> None:
    told = "did not answer within 0.5 s; raise spec.pulsar.timeout"
    with RawServer(trickle(head), pause=0.05) as server:
        within(3.0, lambda: statistics_of(server, told, timeout=0.5))


def test_statistics_without_an_end_or_of_any_depth_are_no_statistics(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(statistics, "LARGEST", 2**20)
    with RawServer(endless(OK + b"\r\n")) as server:
        statistics_of(server, "larger than 1 MiB")
    with RawServer(endless(b"HTTP/1.1 307 Away\r\nLocation: http://127.0.0.1:9/\r\n\r\n")) as server:
        statistics_of(server, "answered 307")
    with RawServer(lambda: [OK + b"Content-Length: %d\r\n\r\n" % len(DEEP) + DEEP]) as server:
        statistics_of(server, "nested deeper")


def statistics_of(server: RawServer, told: str, timeout: float = 30.0) -> None:
    assert told in ask_brokers({"a": server.url}, StatisticsSettings(timeout=timeout)).failed["a"]


@pytest.mark.parametrize(
    ("table", "told"),
    [("brokers", "larger than 1 MiB"), ("bundles", "larger than 2 MiB"), ("topics", "larger than 2 MiB")],
)
def test_an_answer_about_brokers_alone_has_a_bound_of_its_own(
    monkeypatch: pytest.MonkeyPatch,
    table: TableName,
    told: str,
) -> None:
    monkeypatch.setattr(read_request, "LARGEST_OF_BROKERS", 2**20)
    monkeypatch.setattr(read_request, "LARGEST", 2**21)
    with RawServer(endless(OK + b"\r\n")) as server:
        settings = PrometheusSettings(server.url, "pulsar")
        request = ReadRequest.of(settings, 1.0, [ShardRequest.of(settings, ("a",))])
        with request.server(NO_CREDENTIALS, table) as client, pytest.raises(PrometheusFormatError, match=told):
            client.query("up", 1.0)
