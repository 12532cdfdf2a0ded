"""Samples of Prometheus on a real Spark session: rows, failures, and credentials that are shown nowhere."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from fake_prometheus import FakePrometheus
from guarded_server import CREDENTIALS, TENANT, TOKEN, Asked, GuardedServer
from spark_reader import SparkReader
from trimtab_pipeline.api import Credentials, PrometheusSettings
from trimtab_pipeline.columns import BROKER_SAMPLES, BUNDLE_SAMPLES
from trimtab_pipeline.prometheus.read_request import ReadRequest, Secrets, ShardRequest, TableName
from trimtab_pipeline.prometheus.sample_reader import packed
from trimtab_pipeline.prometheus.shard_reader import read_shard

pytestmark = pytest.mark.spark

AT = 1_750_000_000.0
SCHEMAS: dict[TableName, pa.Schema] = {"brokers": BROKER_SAMPLES, "bundles": BUNDLE_SAMPLES, "topics": BUNDLE_SAMPLES}


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkReader]:
    with SparkReader(tmp_path_factory.mktemp("spark")) as reader:
        yield reader


def request(url: str, policy: str, **settings: Any) -> ReadRequest:
    """Brokers a and b, a shard each."""
    chosen = PrometheusSettings(url, "pulsar", **settings)
    shards = [ShardRequest.of(chosen, [pod]) for pod in ("a", "b")]
    return ReadRequest.of(chosen, AT, shards, policy=policy, now=AT, bundles=["t/n/0x00000000_0xffffffff"])


def without_times(table: pa.Table) -> list[str]:
    """The rows as text, in order; reports without the time that they took."""
    rows = table.to_pylist()
    for row in rows:
        if row["report"] is not None:
            row["report"] = {name: value for name, value in json.loads(row["report"]).items() if name != "seconds"}
    return sorted(map(str, rows))


@pytest.mark.parametrize("table", SCHEMAS)
def test_spark_reads_what_the_reader_reads_for_all_policies_and_shards(
    fake: FakePrometheus, spark: SparkReader, table: TableName
) -> None:
    requests = [request(fake.url, "ns/one"), request(fake.url, "ns/two", resources="pulsar")]
    found = spark.read(table, requests, [Secrets()] * 2).rows
    here = [batch for r in requests for shard in (0, 1) for batch in read_shard(table, r, shard, Secrets())]
    assert found.schema.equals(SCHEMAS[table])
    assert without_times(found) == without_times(pa.Table.from_batches(here))
    assert len(found["report"].drop_null()) == 4


def test_a_shard_that_fails_is_a_report_and_the_others_have_their_rows(
    fake: FakePrometheus, spark: SparkReader
) -> None:
    there, gone = request(fake.url, "ns/there"), request("http://127.0.0.1:9", "ns/gone")
    odd = replace(request(fake.url, "ns/odd"), shards=(None, None))  # no request at all
    rows = spark.read("brokers", [there, gone, odd], [Secrets()] * 3).rows.to_pylist()
    reports = {(row["policy"], row["shard"]): json.loads(row["report"]) for row in rows if row["report"] is not None}
    assert [report["ok"] for _, report in sorted(reports.items())] == [False, False, False, False, True, True]
    assert "refused the connection" in reports["ns/gone", 1]["error"]
    assert reports["ns/odd", 0]["error"].startswith("the shard can't be read: AttributeError: ")
    assert {row["policy"] for row in rows if row["report"] is None} == {"ns/there"}


def test_credentials_reach_the_tasks_and_are_found_in_no_plan_no_log_no_event_and_no_error(
    fake: FakePrometheus, spark: SparkReader
) -> None:
    def answer(asked: Asked) -> tuple[int, str]:
        sent = asked.headers.get("Authorization"), asked.headers.get("X-Scope-OrgID")
        if sent != (f"Bearer {TOKEN}", TENANT):
            return 401, f"who is {sent}?"
        if refusing:
            return 403, f"{sent} may not do that"
        return 200, fake.answer(asked.parameters["query"], float(asked.parameters["time"]))

    refusing: list[bool] = []
    secrets = [Secrets(CREDENTIALS, Credentials(username="admin", password=TENANT))]
    with GuardedServer(answer) as server:
        allowed = spark.read("brokers", [request(server.url, "ns/p")], secrets)
        refusing.append(True)
        refused = spark.read("brokers", [request(server.url, "ns/p")], secrets)

    assert len(allowed.rows) > 2
    reports = [json.loads(text) for text in refused.rows["report"].drop_null().to_pylist()]
    for report in reports:
        assert re.search(r"answered 403: .*\*\*\*.* may not do that", report["error"])
    assert "MapInArrow read_prometheus" in allowed.plans
    written = {path.name: path.read_text(errors="replace") for path in spark.folder.rglob("*") if path.is_file()}
    assert "INFO org.apache.spark" in written["spark.log"]
    assert any("MapInArrow read_prometheus" in text for name, text in written.items() if name.startswith("events_"))
    shown = [allowed.plans, refused.plans, str(reports), *written.values()]
    for secret in (TOKEN, TENANT, *spellings(packed(tuple(secrets)))):
        assert not any(secret in text for text in shown)


def spellings(sent: bytes) -> list[str]:
    """How a text could show the middle of these bytes: in hexadecimal or decimal numbers, or base64."""
    middle = sent[len(sent) // 2 - 12 : len(sent) // 2 + 12]
    coded = [base64.b64encode(middle[begin : begin + 21]).decode() for begin in range(3)]
    return [middle.hex(), ", ".join(str(int.from_bytes([byte], signed=True)) for byte in middle), *coded]
