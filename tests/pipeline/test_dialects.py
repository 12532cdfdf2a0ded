"""Thanos, Mimir and VictoriaMetrics by their documented answers, written down by hand; none of them runs here."""

from __future__ import annotations

import json

import pytest

from guarded_server import Asked, GuardedServer, vector
from trimtab_pipeline.api import Credentials, PrometheusSettings
from trimtab_pipeline.prometheus.client import PrometheusClient, PrometheusStatusError
from trimtab_pipeline.prometheus.samples import parse_vector

SERIES = '{"metric":{"pod":"a"},"value":[1,"2"]}'
THANOS_WARNING = "fetch series for {cluster: c} : rpc error: code = Unavailable desc = connection refused"


@pytest.mark.parametrize(
    ("body", "warnings"),
    [
        (f'{{"status":"success","data":{{"resultType":"vector","result":[{SERIES}]}},"warnings":["late"]}}', ("late",)),
        # Thanos: beside the result, and a query analysis behind it
        (
            f'{{"status":"success","data":{{"resultType":"vector","result":[{SERIES}],"warnings":["late"]}}}}',
            ("late",),
        ),
        (f'{{"status":"success","data":{{"resultType":"vector","result":[{SERIES}],"analysis":{{}}}}}}', ()),
        # the same text in both places is one warning
        (
            f'{{"status":"success","data":{{"resultType":"vector","result":[{SERIES}],"warnings":["x"]}},"warnings":["x"]}}',
            ("x",),
        ),
        # Prometheus 3 and Mimir: hints about a query are no sign of missing data
        (f'{{"status":"success","data":{{"resultType":"vector","result":[{SERIES}]}},"infos":["PromQL info: x"]}}', ()),
        (
            f'{{"status":"success","warnings":["late"],"infos":["x"],"data":{{"resultType":"vector","result":[{SERIES}]}}}}',
            ("late",),
        ),
        # VictoriaMetrics
        (
            f'{{"status":"success","isPartial":true,"data":{{"resultType":"vector","result":[{SERIES}]}},"stats":{{}}}}',
            ("the server says that its answer is partial",),
        ),
        (f'{{"status":"success","isPartial":false,"data":{{"resultType":"vector","result":[{SERIES}]}}}}', ()),
    ],
)
def test_what_an_answer_says_is_missing_is_reported_in_every_dialect(body: str, warnings: tuple[str, ...]) -> None:
    samples = parse_vector(body.encode())
    assert samples.label("pod").to_pylist() == ["a"]
    assert samples.values.to_pylist() == [2.0]
    assert samples.warnings == warnings


def thanos(asked: Asked) -> tuple[int, str]:
    """A querier of which one store does not answer: it warns, or fails if it may not leave the store out."""
    if asked.parameters.get("partial_response", "true") == "true":
        return 200, json.dumps({**json.loads(vector(a=1)), "warnings": [THANOS_WARNING]})
    return 422, json.dumps(
        {"status": "error", "errorType": "execution", "error": f"expanding series: {THANOS_WARNING}"}
    )


@pytest.mark.parametrize("allowed", [None, True])
def test_a_store_that_thanos_leaves_out_makes_the_answer_partial(allowed: bool | None) -> None:  # noqa: FBT001
    with GuardedServer(thanos) as server, PrometheusClient(server.url, 5, partial_response=allowed) as client:
        assert client.query("up", 1.0).warnings == (THANOS_WARNING,)
    assert server.asked[0].parameters.get("partial_response") == (None if allowed is None else "true")


def test_a_store_that_thanos_may_not_leave_out_fails_the_query() -> None:
    with (
        GuardedServer(thanos) as server,
        PrometheusClient(server.url, 5, partial_response=False) as client,
        pytest.raises(PrometheusStatusError, match=r"422: expanding series: .*connection refused"),
    ):
        client.query("up", 1.0)


def mimir(asked: Asked) -> tuple[int, str]:
    """Answers below its prefix, to a tenant it knows."""
    if asked.path != "/prometheus/api/v1/query":
        return 404, "404 page not found"
    tenant = asked.headers.get("X-Scope-OrgID")
    return (200, vector(a=1)) if tenant == "messaging" else (401, "no org id" if tenant is None else "unknown tenant")


def test_mimir_is_asked_below_its_prefix_in_the_name_of_a_tenant() -> None:
    tenant = Credentials(headers=(("X-Scope-OrgID", "messaging"),))
    with GuardedServer(mimir) as server, PrometheusClient(f"{server.url}/prometheus/", 5, tenant) as client:
        assert len(client.query("up", 1.0)) == 1


@pytest.mark.parametrize(
    ("path", "headers", "told"),
    [
        ("/prometheus", (), "401.*no org id"),
        ("/prometheus", (("X-Scope-OrgID", "another"),), "401.*unknown tenant.*correct the source's credentials"),
        ("", (("X-Scope-OrgID", "messaging"),), "404.*page not found"),
    ],
)
def test_a_wrong_tenant_or_prefix_is_reported(path: str, headers: tuple[tuple[str, str], ...], told: str) -> None:
    with (
        GuardedServer(mimir) as server,
        PrometheusClient(server.url + path, 5, Credentials(headers=headers)) as client,
        pytest.raises(PrometheusStatusError, match=told),
    ):
        client.query("up", 1.0)


def test_a_server_that_refuses_post_is_asked_by_get() -> None:
    with GuardedServer(lambda asked: (200 if asked.method == "GET" else 405, vector(a=1))) as server:
        with PrometheusClient(server.url, 5, method="GET") as client:
            assert len(client.query("up", 1.0)) == 1
        assert server.asked[0].parameters == {"query": "up", "time": "1.000", "timeout": "5000ms"}
        with PrometheusClient(server.url, 5) as client, pytest.raises(PrometheusStatusError, match="405"):
            client.query("up", 1.0)


def test_another_method_is_refused() -> None:
    with pytest.raises(ValueError, match="method 'PUT' must be POST or GET"):
        PrometheusSettings("http://x", "pulsar", method="PUT")
