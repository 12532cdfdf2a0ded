"""The HTTP layer against a server that misbehaves."""

from __future__ import annotations

import time

import pytest

from fake_prometheus import FakePrometheus, Faults
from trimtab_pipeline.prometheus import (
    Prometheus,
    PrometheusFormatError,
    PrometheusStatusError,
    PrometheusUnreachableError,
)

CPU = 'max by (pod) (pulsar_lb_cpu_usage{namespace="pulsar",pod=~"a"})'


def test_a_query_is_posted_with_its_time_and_a_limit(fake: FakePrometheus) -> None:
    fake.put("pulsar_lb_cpu_usage", 42, namespace="pulsar", pod="a")
    with Prometheus(fake.url + "/", timeout=5) as server:
        answer = server.query(CPU, at=1750000000.1234)
    assert answer.label("pod").to_pylist() == ["a"]
    assert answer.values.to_pylist() == [42.0]
    assert fake.queries == [{"query": CPU, "time": "1750000000.123", "timeout": "5000ms"}]


def test_a_busy_server_is_asked_a_few_times_and_then_told_with_url_status_and_text(fake: FakePrometheus) -> None:
    fake.faults = Faults(status=503)
    with (
        Prometheus(fake.url, timeout=5) as server,
        pytest.raises(PrometheusStatusError, match=f"{fake.url}.*503.*out of"),
    ):
        server.query(CPU, at=1.0)
    assert len(fake.queries) == 3


def test_a_refused_query_is_not_asked_again(fake: FakePrometheus) -> None:
    fake.faults = Faults(status=422)
    with Prometheus(fake.url, timeout=5) as server, pytest.raises(PrometheusStatusError, match="422"):
        server.query(CPU, at=1.0)
    assert len(fake.queries) == 1


def test_a_slow_server_is_given_up_on_after_the_timeout(fake: FakePrometheus) -> None:
    fake.faults = Faults(delay=1.0)
    begin = time.monotonic()
    with Prometheus(fake.url, timeout=0.2) as server, pytest.raises(PrometheusUnreachableError, match=r"within 0\.2 s"):
        server.query(CPU, at=1.0)
    assert time.monotonic() - begin < 0.9


def test_a_server_that_is_not_there_is_named() -> None:
    with (
        Prometheus("http://127.0.0.1:9", timeout=1) as server,
        pytest.raises(PrometheusUnreachableError, match=":9 did"),
    ):
        server.query(CPU, at=1.0)


def test_an_answer_that_is_no_vector_is_told(fake: FakePrometheus) -> None:
    fake.faults = Faults(text="<html>please log in</html>")
    with Prometheus(fake.url, timeout=5) as server, pytest.raises(PrometheusFormatError, match="please log in"):
        server.query(CPU, at=1.0)
