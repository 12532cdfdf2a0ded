"""Credentials on their way through Spark: they arrive, and are found nowhere else."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from fake_prometheus import FakePrometheus
from guarded_server import CREDENTIALS, TENANT, TOKEN, Asked, GuardedServer
from pipeline_clusters import topology
from trimtab_pipeline.api import LoadSource, PrometheusSettings, SourceUnavailableError, StatisticsSettings
from trimtab_pipeline.sources.policy_cycle import PolicyCycle
from trimtab_pipeline.sources.shard_tasks import SparkShards
from trimtab_pipeline.sources.spark import SparkLoadSources
from trimtab_pipeline.transform.relations import Cycle

pytestmark = pytest.mark.spark

WORLD = topology({"a": "a", "b": "b"}, {"t/n/0x00000000_0x80000000": "a", "t/n/0x80000000_0xffffffff": "b"})


def shown_below(folder: Path) -> list[str]:
    """Files that hold a secret."""
    secrets = (TOKEN.encode(), TENANT.encode())
    files = (path for path in folder.rglob("*") if path.is_file())
    return [str(path) for path in files if any(secret in path.read_bytes() for secret in secrets)]


def test_credentials_reach_the_tasks_and_are_found_in_no_log_no_error_no_plan_and_no_history(
    fake: FakePrometheus,
    sources: SparkLoadSources,
    observing: Callable[..., LoadSource],
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    def answer(asked: Asked) -> tuple[int, str]:
        sent = asked.headers.get("Authorization"), asked.headers.get("X-Scope-OrgID")
        if sent != (f"Bearer {TOKEN}", TENANT):
            return 401, f"who is {sent}?"
        if "throughput_in" in asked.parameters["query"] and refusing:
            return 403, f"{sent} may not do that"
        return 200, fake.answer(asked.parameters["query"], float(asked.parameters["time"]))

    refusing: list[bool] = []
    caplog.set_level(logging.DEBUG)
    with GuardedServer(answer) as server:
        source = observing(server.url, credentials=CREDENTIALS)
        observation = source.observe(WORLD, 1_750_000_000.0).result(timeout=120)
        assert observation.load.brokers.trusted.all()
        refusing.append(True)
        with pytest.raises(SourceUnavailableError, match=r"answered 403: .*\*\*\*.* may not do that") as caught:
            source.observe(WORLD, 1_750_000_060.0).result(timeout=120)
        plan = plan_of(sources, server.url)

    assert "measure_shards" in plan
    told = [str(caught.value), repr(observation), plan, *caplog.messages, *capfd.readouterr()]
    assert not any(secret in text for secret in (TOKEN, TENANT) for text in told)
    assert not shown_below(sources.history_dir)
    assert not shown_below(sources._engine._folder)


def plan_of(sources: SparkLoadSources, url: str) -> str:
    """All plans of a read with credentials, as Spark shows them."""

    def explain(spark: SparkSession) -> str:
        settings = PrometheusSettings(url, "pulsar", credentials=CREDENTIALS)
        settings = replace(settings, statistics=StatisticsSettings(CREDENTIALS))
        one = PolicyCycle(Cycle.of("x", settings, 1.0), settings, WORLD, 0.0, 0.0)
        frame: Any = SparkShards(spark, 1).frame([one.orders(1, bundles=True)])
        return str(frame._jdf.queryExecution().toString())

    return sources._engine.run(explain, 60).result(timeout=60)
