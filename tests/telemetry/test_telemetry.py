"""The operator's metrics, and the page that serves them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from pathlib import Path

import aiohttp
import pytest

from trimtab_operator.aio import measure_delay
from trimtab_operator.telemetry import AddressInUseError
from trimtab_operator.telemetry.http import serve
from trimtab_operator.telemetry.metrics import Metrics

DOCS = Path(__file__).parents[2] / "docs" / "metrics.md"


def labels(metrics: Metrics) -> Iterable[str]:
    for family in metrics.registry.collect():
        for sample in family.samples:
            yield from sample.labels


async def fetch(port: int, *paths: str) -> list[tuple[int, str]]:
    answers = []
    async with aiohttp.ClientSession() as session:
        for path in paths:
            async with session.get(f"http://127.0.0.1:{port}{path}") as response:
                answers.append((response.status, await response.text()))
    return answers


def test_every_registered_metric_is_described_under_the_name_it_is_scraped_by() -> None:
    metrics = Metrics()
    scraped = {family.name for family in metrics.registry.collect()}

    assert {described.name.removesuffix("_total") for described in metrics.described} == scraped
    assert all(f"| `{described.name}` |" in DOCS.read_text() for described in metrics.described)


def test_no_metric_has_a_label_per_bundle() -> None:
    metrics = Metrics()
    metrics.moves.labels("main", "Overloaded", "Landed").inc()
    metrics.broker_usage.labels("main", "broker-0", "cpu").set(0.5)
    metrics.observe_request("list", "200", 0.02)
    assert "bundle" not in set(labels(metrics))


def test_two_sets_of_metrics_do_not_meet() -> None:
    one, other = Metrics(), Metrics()
    one.cycles.labels("main", "Balanced").inc()
    assert b'trimtab_cycles_total{outcome="Balanced",policy="main"} 1.0' in one.text()
    assert b"Balanced" not in other.text()


def test_a_request_is_counted_with_its_verb_and_code() -> None:
    metrics = Metrics()
    metrics.observe_request("patch", "409", 0.3)
    assert b'trimtab_api_request_seconds_bucket{code="409",le="0.5",verb="patch"} 1.0' in metrics.text()
    assert b'trimtab_api_request_seconds_bucket{code="409",le="0.25",verb="patch"} 0.0' in metrics.text()


def test_the_page_serves_metrics_health_and_readiness() -> None:
    state = [(False, "bundles are not listed yet"), (True, "complete")]

    async def scenario() -> list[tuple[int, str]]:
        async with serve("127.0.0.1", 0, Metrics(), lambda: state.pop(0)) as port:
            return await fetch(port, "/metrics", "/healthz", "/readyz", "/readyz", "/other")

    metrics, health, starting, ready, other = asyncio.run(scenario())
    assert metrics[0] == 200
    assert "trimtab_build_info{" in metrics[1]
    assert health == (200, "ok\n")
    assert starting == (503, "bundles are not listed yet\n")
    assert ready == (200, "complete\n")
    assert other[0] == 404


def test_nothing_is_said_of_a_pulsar_that_is_not_linked() -> None:
    metrics = Metrics()
    metrics.linked.set(0)

    metrics.unlink()

    assert {b"trimtab_pulsar_linked NaN", b"trimtab_pulsar_crosscheck_ratio NaN"} <= set(metrics.text().splitlines())


def test_a_loop_that_is_held_up_is_reported() -> None:
    metrics = Metrics()

    async def scenario() -> None:
        watching = asyncio.create_task(measure_delay(metrics.loop_delay.observe, every=0.01))
        await asyncio.sleep(0.03)
        time.sleep(0.3)  # noqa: ASYNC251 - that is what must not happen in the operator
        await asyncio.sleep(0.03)
        watching.cancel()

    asyncio.run(scenario())

    counted = metrics.registry.get_sample_value
    looks = counted("trimtab_event_loop_delay_seconds_count")
    assert looks is not None
    assert looks >= 2
    assert counted("trimtab_event_loop_delay_seconds_bucket", {"le": "0.25"}) < looks


def test_a_port_that_is_taken_is_reported_with_the_fix() -> None:
    async def scenario() -> None:
        async with serve("127.0.0.1", 0, Metrics(), lambda: (True, "")) as port:
            with pytest.raises(AddressInUseError, match=rf"127\.0\.0\.1:{port}: .*; choose another --http-port"):
                async with serve("127.0.0.1", port, Metrics(), lambda: (True, "")):
                    pass

    asyncio.run(scenario())


def test_the_port_is_free_again_after_a_failure() -> None:
    ports: list[int] = []

    async def serve_and_fail(port: int) -> None:
        async with serve("127.0.0.1", port, Metrics(), lambda: (True, "")) as found:
            ports.append(found)
            raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop"):
        asyncio.run(serve_and_fail(0))
    with pytest.raises(RuntimeError, match="stop"):
        asyncio.run(serve_and_fail(ports[0]))
    assert ports == [ports[0]] * 2
