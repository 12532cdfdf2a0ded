"""Shards on a real Spark session: their results, failures, and credentials that are shown nowhere."""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Literal

import pyarrow as pa
import pytest

from fake_prometheus import FakePrometheus
from guarded_server import CREDENTIALS, TENANT, TOKEN, Asked, GuardedServer
from pipeline_clusters import FIRST, TWO_BROKERS
from spark_reader import SparkReader
from trimtab_pipeline.api import Credentials, PrometheusSettings, StatisticsSettings
from trimtab_pipeline.sources.pipeline import ShardResult, reduced
from trimtab_pipeline.sources.policy_cycle import PolicyCycle, ShardOrders
from trimtab_pipeline.sources.shard_tasks import ShardTasks
from trimtab_pipeline.transform.relations import Cycle
from trimtab_pipeline.transform.topic_to_bundle import HashRanges

pytestmark = pytest.mark.spark

AT = 1_750_000_000.0
Tables = Literal["brokers", "bundles", "topics"]


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkReader]:
    with SparkReader(tmp_path_factory.mktemp("spark")) as reader:
        yield reader


def orders(url: str, policy: str, tables: Tables = "brokers", *, reading: float = 9.0, **settings: Any) -> ShardOrders:
    """Brokers a and b, a shard each. reading: seconds that the last cycle read."""
    chosen = PrometheusSettings(url, "pulsar", **settings)
    ranges = HashRanges.of(TWO_BROKERS.bundles).owned(TWO_BROKERS.pods, TWO_BROKERS.owner)
    one = PolicyCycle(Cycle.of(policy, chosen, AT), chosen, TWO_BROKERS, 0.0, 1e12, ranges=ranges, reading=reading)
    found = one.orders(2, bundles=tables != "brokers")
    hot = pa.table({"bundle": [FIRST], "pod": ["a"]})
    return one.topic_orders(found, hot) if tables == "topics" else found


def plain(result: ShardResult) -> dict[str, Any]:
    """The result; reports without the time that the reads took."""
    reports = [{name: value for name, value in report.items() if name != "seconds"} for report in result.reports]
    return {"brokers": result.brokers.to_pylist(), "bundles": result.bundles.to_pylist(), "reports": reports}


@pytest.mark.parametrize("tables", ["brokers", "bundles", "topics"])
def test_spark_measures_what_a_thread_measures_for_all_policies_and_shards(
    fake: FakePrometheus, spark: SparkReader, tables: Tables
) -> None:
    for pod, topic in {"a": "persistent://t/n/0", "b": "persistent://t/n/2"}.items():
        for name in ("rate_in", "rate_out", "throughput_in", "throughput_out"):
            fake.put(f"pulsar_{name}", 7, namespace="t/n", pod=pod, topic=topic)
    asked = [
        orders(fake.url, "ns/one", tables),
        orders(fake.url, "ns/two", tables, resources="pulsar", bundle_metrics="topic"),
    ]
    found = spark.run(asked).results
    here = [[reduced(one, shard) for shard in range(len(one.read.shards))] for one in asked]
    assert [[plain(shard) for shard in shards] for shards in found] == [
        [plain(shard) for shard in shards] for shards in here
    ]
    assert [len(shards) for shards in found] == [1 if tables == "topics" else 2] * 2
    assert all(one.bundles.schema.equals(other.bundles.schema) for one, other in zip(found[0], here[0], strict=True))
    assert (tables == "brokers") == (not any(len(shard.bundles) for shards in found for shard in shards))


def test_few_brokers_that_are_read_soon_take_one_task_and_others_one_for_each_shard(
    fake: FakePrometheus, spark: SparkReader
) -> None:
    asked = [orders(fake.url, "ns/soon", "bundles", reading=0.1), orders(fake.url, "ns/long", "bundles")]
    found = spark.run(asked)
    assert "splits=Some(3)" in found.plans
    for one, shards in zip(asked, found.results, strict=True):
        assert [plain(shard) for shard in shards] == [plain(reduced(one, shard)) for shard in range(2)]


def test_a_shard_that_fails_is_a_report_and_the_others_have_their_rows(
    fake: FakePrometheus, spark: SparkReader
) -> None:
    there, gone = orders(fake.url, "ns/there"), orders("http://127.0.0.1:9", "ns/gone")
    fake.put("pulsar_rate_in", 7, namespace="t/n", pod="a", topic="persistent://t/n/0")
    odd, strange = orders(fake.url, "ns/odd"), orders(fake.url, "ns/strange", "bundles", bundle_metrics="topic")
    odd = replace(odd, read=replace(odd.read, shards=(None, None)))  # no request at all
    assert strange.ranges is not None
    strange = replace(strange, ranges=replace(strange.ranges, lower=strange.ranges.lower[:0], derived={}))
    results = spark.run([there, gone, odd, strange]).results
    reports = [[report for shard in shards for report in shard.reports] for shards in results]
    assert [[report["ok"] for report in those] for those in reports] == [[True] * 2, *[[False] * 2] * 3]
    assert "refused the connection" in reports[1][1]["error"]
    assert reports[2][0]["error"].startswith("the shard can't be measured: AttributeError: ")
    assert reports[3][0]["error"].startswith("the shard can't be measured: ValueError: ")  # from a rule
    first = [[row["doubts"][0] for shard in shards for row in shard.brokers.to_pylist()] for shards in results]
    assert first == [["unknown_direct_memory"] * 2, *[["partial"] * 2] * 3]


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
    statistics = StatisticsSettings(Credentials(username="admin", password=TENANT))
    with GuardedServer(answer) as server:
        asked = [orders(server.url, "ns/p", credentials=CREDENTIALS, statistics=statistics)]
        allowed = spark.run(asked)
        refusing.append(True)
        refused = spark.run(asked)

    assert all(report["ok"] for report in reports_of(allowed.results))
    for report in (reports := reports_of(refused.results)):
        assert re.search(r"answered 403: .*\*\*\*.* may not do that", report["error"])
    assert "MapInArrow measure_shards" in allowed.plans
    written = {path.name: path.read_text(errors="replace") for path in spark.folder.rglob("*") if path.is_file()}
    assert "INFO org.apache.spark" in written["spark.log"]
    assert any("MapInArrow measure_shards" in text for name, text in written.items() if name.startswith("events_"))
    shown = [allowed.plans, refused.plans, str(reports), *written.values()]
    for secret in (TOKEN, TENANT, *spellings(ShardTasks.of(asked).orders)):
        assert not any(secret in text for text in shown)


def reports_of(results: list[list[ShardResult]]) -> list[Mapping[str, Any]]:
    return [report for shards in results for shard in shards for report in shard.reports]


def spellings(sent: bytes) -> list[str]:
    """How a text could show the middle of these bytes: in hexadecimal or decimal numbers, or base64."""
    middle = sent[len(sent) // 2 - 12 : len(sent) // 2 + 12]
    coded = [base64.b64encode(middle[begin : begin + 21]).decode() for begin in range(3)]
    return [middle.hex(), ", ".join(str(int.from_bytes([byte], signed=True)) for byte in middle), *coded]
