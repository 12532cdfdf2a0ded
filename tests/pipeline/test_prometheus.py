"""The HTTP layer against a server that misbehaves."""

from __future__ import annotations

import re
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest

from fake_prometheus import FakePrometheus, Faults
from trimtab_pipeline.prometheus.client import (
    PrometheusClient,
    PrometheusFormatError,
    PrometheusStatusError,
    PrometheusUnreachableError,
)

CPU = 'max by (pod) (pulsar_lb_cpu_usage{namespace="pulsar",pod=~"a"})'


def test_a_query_is_posted_with_its_time_and_a_limit(fake: FakePrometheus) -> None:
    fake.put("pulsar_lb_cpu_usage", 42, namespace="pulsar", pod="a")
    with PrometheusClient(fake.url + "/", timeout=5) as server:
        answer = server.query(CPU, at=1750000000.1234)
    assert answer.label("pod").to_pylist() == ["a"]
    assert answer.values.to_pylist() == [42.0]
    assert fake.queries == [{"query": CPU, "time": "1750000000.123", "timeout": "5000ms"}]


def test_a_busy_server_is_asked_a_few_times_and_then_reported_with_url_status_and_text(fake: FakePrometheus) -> None:
    fake.faults = Faults(status=503)
    with (
        PrometheusClient(fake.url, timeout=5) as server,
        pytest.raises(PrometheusStatusError, match=f"{fake.url}.*503.*out of"),
    ):
        server.query(CPU, at=1.0)
    assert len(fake.queries) == 3


def test_a_refused_query_is_not_asked_again(fake: FakePrometheus) -> None:
    fake.faults = Faults(status=422)
    with PrometheusClient(fake.url, timeout=5) as server, pytest.raises(PrometheusStatusError, match="422"):
        server.query(CPU, at=1.0)
    assert len(fake.queries) == 1


def test_a_slow_server_is_given_up_on_after_the_timeout(fake: FakePrometheus) -> None:
    fake.faults = Faults(delay=1.0)
    begin = time.monotonic()
    with (
        PrometheusClient(fake.url, timeout=0.2) as server,
        pytest.raises(PrometheusUnreachableError, match=r"within 0\.2 s"),
    ):
        server.query(CPU, at=1.0)
    assert time.monotonic() - begin < 0.9


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("http://127.0.0.1:9", "refused the connection; start the server, or correct the source's url"),
        ("http://nowhere.invalid:9090", "has a host name that can't be resolved; correct the source's url"),
        ("prometheus:9090", "can't be asked: .*; correct the source's url"),
        ("http://[::1", "can't be asked: .*; correct the source's url"),
    ],
)
def test_a_server_that_cant_be_asked_is_named_with_the_cause_and_the_fix(url: str, told: str) -> None:
    with PrometheusClient(url, timeout=5) as server, pytest.raises(PrometheusUnreachableError) as caught:
        server.query(CPU, at=1.0)
    assert re.fullmatch(f"{re.escape(url)} {told}", str(caught.value))
    assert len(str(caught.value)) < 200


def test_a_server_that_drops_its_packets_is_tried_once() -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=0) as deaf, ExitStack() as waiting:
        for _ in range(2):  # fills the queue of connections, so that the next gets no answer at all
            client = waiting.enter_context(socket.socket())
            client.settimeout(0.0)
            client.connect_ex(deaf.getsockname())
        begin = time.monotonic()
        with (
            PrometheusClient(f"http://127.0.0.1:{deaf.getsockname()[1]}", timeout=0.3) as server,
            pytest.raises(PrometheusUnreachableError, match=r"within 0\.3 s"),
        ):
            server.query(CPU, at=1.0)
        assert time.monotonic() - begin < 0.9


def test_an_answer_that_breaks_off_is_no_answer() -> None:
    def break_off(listener: socket.socket) -> None:
        connection, _ = listener.accept()
        with connection:
            connection.recv(65536)
            connection.sendall(b'HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n{"status":"success"')

    with socket.create_server(("127.0.0.1", 0)) as listener, ThreadPoolExecutor() as pool:
        pool.submit(break_off, listener)
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        with (
            PrometheusClient(url, timeout=5) as server,
            pytest.raises(PrometheusUnreachableError, match="can't be read"),
        ):
            server.query(CPU, at=1.0)


def test_what_prometheus_says_is_wrong_is_reported_without_its_wrapping(fake: FakePrometheus) -> None:
    fake.faults = Faults(status=422, text='{"status":"error","errorType":"execution","error":"too many samples"}')
    with (
        PrometheusClient(fake.url, timeout=5) as server,
        pytest.raises(PrometheusStatusError, match=r"422: too many samples$"),
    ):
        server.query(CPU, at=1.0)


def test_an_answer_that_is_no_vector_is_reported(fake: FakePrometheus) -> None:
    fake.faults = Faults(text="<html>please log in</html>")
    with PrometheusClient(fake.url, timeout=5) as server, pytest.raises(PrometheusFormatError, match="please log in"):
        server.query(CPU, at=1.0)
