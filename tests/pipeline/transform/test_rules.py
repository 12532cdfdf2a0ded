"""What each SQL rule says, on small frames, and against pandas. `test_doubts.py` has the rule of trust."""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

import drawn_relations as drawn
from trimtab_pipeline.api import PrometheusSettings
from trimtab_pipeline.columns import BROKER_SAMPLES, BUNDLE_SAMPLES, TRAFFIC, USAGE
from trimtab_pipeline.transform import frames
from trimtab_pipeline.transform.brokers import expected_samples, joined
from trimtab_pipeline.transform.relations import POD_TIMES, SIGNAL_LOADS, SIGNALS, STATE, TARGETS, Cycle, table
from trimtab_pipeline.transform.topic_to_bundle import HashRanges

pytestmark = pytest.mark.spark

AT = 1_750_000_000.0
CYCLE = Cycle.of("x", PrometheusSettings("http://x", "ns"), AT)
Row = dict[str, Any]


def applied(session: SparkSession, name: str, cycle: Cycle = CYCLE, **relations: pa.Table) -> list[Row]:
    """The rows that a rule gives for these relations and this cycle."""
    tables = relations | {"cycles": table([cycle])}
    framed = {view: session.createDataFrame(rows) for view, rows in tables.items()}
    found: list[Row] = frames.applied(name, **framed).toArrow().to_pylist()
    return found


def relation(schema: pa.Schema, rows: Sequence[Row]) -> pa.Table:
    return pa.Table.from_pylist([{"policy": "x", **row} for row in rows], schema)


# -- rates --


def series(signal: str, points: Sequence[tuple[float, float]], kind: str = "counter", **more: str) -> list[Row]:
    """A series of pod p with its samples: seconds before now, and values."""
    key = {"shard": 0, "pod": "p", "signal": signal, "kind": kind, "part": "", "series": "0", **more}
    return [{**key, "time": AT - ago, "value": value} for ago, value in points]


def timeless(signal: str, kind: str, value: float | None = None) -> Row:
    """The answer to an instant query about pod p, or what is expected of it."""
    return {"shard": 0, "pod": "p", "signal": signal, "kind": kind, "part": "", "series": "", "value": value}


def steady(rate: float, *, since: int = 300, until: int = 0, begin: float = 1e6) -> list[tuple[float, float]]:
    return [(float(ago), begin + rate * (since - ago)) for ago in range(since, until - 1, -15)]


def test_rates(session: SparkSession) -> None:
    rows = [
        *series("cpu", steady(2.0)),
        *series("network_in", steady(3.0), part="eth0"),
        *series("network_in", steady(4.0), part="eth1"),
        *series("network_in", steady(100.0, until=60), part="gone"),
        *series("network_out", [*steady(1.0, until=30), (15, 5.0), (0, 20.0)]),
        *series("memory", [(15, 7.0), (0, 8.0)], "gauge"),
        *series("memory", [(16, 70.0), (1, 80.0)], "gauge", series="1"),
        *series("rate_in", [(15, 7.0), (0, math.nan)], "gauge"),
        *series("rate_out", [(45, -math.inf), (30, 0.5), (15, 3.05), (0, 4.2)]),
        timeless("network_in", "expected"),
        timeless("direct_memory", "expected"),
        timeless("cpu_limit", "value", 4.0),
        {"shard": 0, "report": "{}"},
    ]
    found = {
        (row["pod"], row["signal"]): row for row in applied(session, "rates", samples=relation(BROKER_SAMPLES, rows))
    }
    columns = ("value", "interval", "cover", "samples", "resets", "copies")

    def of(signal: str, pod: str = "p") -> list[float | None]:
        return [found[pod, signal][name] for name in columns]

    assert of("cpu") == [2.0, 15.0, 60.0, 4.0, 0.0, 1.0]
    assert of("network_in") == [7.0, 15.0, 60.0, 4.0, 0.0, 1.0]  # the sum of the parts that are there now
    assert of("network_out") == [1.0, 15.0, 45.0, 4.0, 1.0, 1.0]  # nothing is known of the pair with the reset
    assert of("memory") == [8.0, 15.0, None, 2.0, None, 2.0]  # the newest series; the other is a copy
    assert of("rate_in")[0] is None  # not a number
    assert of("rate_out")[:3] == [None, 15.0, 30.0]  # not a number, then values that a new process may have counted
    assert of("direct_memory") == [None] * 6  # expected, but not measured
    assert of("cpu_limit") == [4.0, *[None] * 5]
    assert found[None, None]["report"] == "{}"


def test_rates_are_those_of_pandas(session: SparkSession) -> None:
    """Increase over covered time, computed by pandas for counters without a reset."""
    rng = np.random.default_rng(5)
    counters = []
    for pod in range(20):
        times = AT - np.sort(rng.choice(np.arange(300), int(rng.integers(25, 40)), replace=False)).astype(float)[::-1]
        values = 1e7 + np.cumsum(rng.uniform(0, 50, len(times)))
        counters.append(pd.DataFrame({"pod": f"p{pod}", "time": times, "value": values}))
    samples = pd.concat(counters)
    rows = [
        {"shard": 0, "signal": "cpu", "kind": "counter", "part": "", "series": "0", **row}
        for row in samples.to_dict("records")
    ]
    found = {row["pod"]: row for row in applied(session, "rates", samples=relation(BROKER_SAMPLES, rows))}
    for pod, one in samples.groupby("pod"):
        pairs = one.assign(step=one["time"].diff(), gained=one["value"].diff())
        counted = pairs[(pairs["time"] > one["time"].max() - 60) & (pairs["step"] <= 60)]
        usual = min(pairs["step"].max(), 2 * pairs["step"].median())
        assert found[pod]["value"] == pytest.approx(counted["gained"].sum() / counted["step"].sum(), rel=1e-9)
        assert (found[pod]["cover"], found[pod]["interval"]) == (counted["step"].sum(), usual)


# -- brokers --


def signals(pod: str, **values: Any) -> list[Row]:
    """The signals of a pod: a value each, or their columns."""
    columns = {name: value if isinstance(value, dict) else {"value": value} for name, value in values.items()}
    return [{"pod": pod, "signal": name, **row} for name, row in columns.items()]


def sampled(value: float, **more: float) -> Row:
    """A signal of raw samples."""
    return {"value": value, "time": AT - 20, "interval": 15.0, "samples": 4.0, "copies": 1.0, **more}


NOTHING: Row = {"value": None}
EXPECTED: Row = {**dict.fromkeys(USAGE, NOTHING), "brokers": 1.0, "shard": 0.0}
"""What is known of any pod of a topology."""
OF_A_TOPOLOGY: list[Row] = [
    *signals(
        "p",
        **EXPECTED
        | {"cpu": sampled(2.0, cover=60.0, resets=1.0), "cpu_limit": 4.0}
        | {"memory_declared": 6.0, "memory_limit": 8.0}
        | {"resource_time": AT - 10, "traffic_time": {"value": AT - 5, "copies": 2.0}},
    ),
    *signals("q", **EXPECTED | {"last_resource_time": AT - 90, "last_traffic_time": AT - 95}),
    *signals("r", **EXPECTED | {"shard": 1.0}),
    *signals("of another cluster", cpu=2.0, resource_time=AT, traffic_time=AT),
    {"report": json.dumps({"shard": 0, "ok": True})},
    {"report": json.dumps({"shard": 1, "ok": False})},
]


def of_signals(session: SparkSession, rows: Sequence[Row], cycle: Cycle = CYCLE) -> dict[tuple[str, str], Row]:
    """What the rule says of the signals of each pod, and of the reports of the shards."""
    found = applied(session, "brokers", cycle, signals=relation(SIGNALS, rows))
    return {(row["pod"], row["signal"] or row["report"]): row for row in found}


def test_brokers(session: SparkSession) -> None:
    found = of_signals(session, OF_A_TOPOLOGY)
    assert {pod for pod, _ in found} == {"p", "q", "r", None}
    assert {name for pod, name in found if pod is None} == {row["report"] for row in OF_A_TOPOLOGY[-2:]}
    verdicts = {(pod, row["answered"], row["present"], row["age"]) for (pod, _), row in found.items() if pod}
    assert verdicts == {("p", True, True, 20.0), ("q", True, False, 95.0), ("r", False, False, None)}
    names = ("value", "time", "interval", "cover", "samples", "resets", "copies", "all_resets")
    assert [found["p", "cpu"][name] for name in names] == [2.0, AT - 20, 15.0, 60.0, 4.0, 1.0, 1.0, 1.0]
    limits = {name: found["p", name]["limit"] for name in USAGE}
    assert list(limits.values()) == [4.0, 6.0, None, 1.25e9, 1.25e9]  # reported, declared, and what a NIC has
    assert found["p", "cpu_limit"]["limit"] is None  # only usage has a limit


@pytest.mark.parametrize(
    ("facts", "percent", "limits"),
    [
        ({"network_limit": 7.0}, False, [None, None, None, 7.0, 7.0]),
        ({"network_limit": 7.0, "network_out_declared": 3.0}, False, [None, None, None, 7.0, 3.0]),
        ({"cpu_limit": 4.0, "cpu_declared": 2.0, "direct_memory_declared": 1.0}, True, [100.0] * 5),
    ],
)
def test_limits(session: SparkSession, facts: Row, percent: bool, limits: list[float | None]) -> None:  # noqa: FBT001
    found = of_signals(session, signals("p", **EXPECTED | facts), replace(CYCLE, percent=percent))
    assert [found["p", name]["limit"] for name in USAGE] == limits


def test_values_of_a_pod_that_is_gone_are_masked(session: SparkSession) -> None:
    """A server shows raw samples for minutes, but no times: those of usage and of traffic each hide their own."""
    measured: Row = {
        "cpu": sampled(2.0, cover=60.0, resets=0.0),
        "memory": sampled(3.0),
        "rate_in": sampled(5.0),
        "cpu_limit": 4.0,  # the answer to an instant query, which shows no pods that are gone
    }
    times = {"resource_time": {"resource_time": AT}, "traffic_time": {"traffic_time": AT}}
    pods: dict[str, Row] = {"gone": {}, "idle": times["resource_time"], "unscraped": times["traffic_time"]}
    pods["there"] = times["resource_time"] | times["traffic_time"]
    found = of_signals(
        session, [row for pod, known in pods.items() for row in signals(pod, **EXPECTED | measured | known)]
    )
    values = {pod: [found[pod, name]["value"] for name in measured] for pod in pods}
    assert values == {
        "gone": [None, None, None, 4.0],
        "idle": [2.0, 3.0, None, 4.0],
        "unscraped": [None, None, 5.0, 4.0],
        "there": [2.0, 3.0, 5.0, 4.0],
    }
    assert {pod: found[pod, "cpu"]["present"] for pod in pods} == {
        "gone": False,
        "idle": True,
        "unscraped": False,
        "there": True,
    }
    columns = ("time", "interval", "cover", "samples", "resets", "copies")
    assert [found["gone", "cpu"][name] for name in columns] == [AT - 20, 15.0, 60.0, 4.0, 0.0, 1.0]


def test_signals_are_joined_to_brokers(session: SparkSession) -> None:
    """A row per broker, also if several name a pod, and one per report."""
    brokers: list[Row] = [
        {"shard": 0, "broker": "one", "pod": "p", "memory_declared": 6.0},
        {"shard": 0, "broker": "two", "pod": "q", "last_resource_time": AT - 90, "last_traffic_time": AT - 95},
        {"shard": 1, "broker": "three", "pod": "r"},
        {"shard": 0, "broker": "four", "pod": "p", "memory_declared": 6.0},
    ]
    loads = relation(SIGNAL_LOADS, applied(session, "brokers", signals=relation(SIGNALS, OF_A_TOPOLOGY)))
    found = joined(loads, relation(TARGETS, brokers)).to_pylist()
    rows = {row["broker"]: row for row in found if row["broker"]}
    names = ("cpu", "cpu_cover", "samples", "resets", "copies", "limit_cpu", "limit_memory", "limit_network_in", "age")
    for broker in ("one", "four"):
        assert [rows[broker][name] for name in names] == [2.0, 60.0, 4.0, 1.0, 2.0, 4.0, 6.0, 1.25e9, 20.0]
    verdicts = {name: (row["answered"], row["present"], row["age"]) for name, row in rows.items()}
    there = (True, True, 20.0)
    assert verdicts == {"one": there, "two": (True, False, 95.0), "three": (False, False, None), "four": there}
    times = {name: (row["resource_time"], row["traffic_time"]) for name, row in rows.items()}
    assert times["one"] == (AT - 10, AT - 5)
    assert times["two"] == (AT - 90, AT - 95)  # those of the last state
    assert [row["shard"] for row in found if row["report"]] == [0, 1]


def test_a_topology_is_expected_as_samples(session: SparkSession) -> None:
    """The rates of what is expected of a pod are what is known of it before it is measured."""
    brokers: list[Row] = [
        {"shard": 0, "broker": "one", "pod": "p", "memory_declared": 6.0},
        {"shard": 0, "broker": "two", "pod": "p", "memory_declared": 6.0},
        {"shard": 1, "broker": "three", "pod": "q", "last_resource_time": AT - 90, "started": AT - 900},
        {"broker": "four", "pod": ""},
    ]
    measured = relation(BROKER_SAMPLES, series("memory", [(15, 7.0), (0, 8.0)], "gauge"))
    samples = pa.concat_tables([measured, expected_samples(relation(TARGETS, brokers))])
    rows = applied(session, "rates", samples=samples)
    found = {(row["pod"], row["signal"]): row["value"] for row in rows}
    assert {pod: [found[pod, name] for name in USAGE] for pod in ("p", "q", "")} == {
        "p": [None, 8.0, None, None, None],
        "q": [None] * 5,
        "": [None] * 5,
    }
    known = {key: value for key, value in found.items() if key[1] not in USAGE and value is not None}
    assert known == {
        ("p", "shard"): 0.0,
        ("p", "brokers"): 2.0,
        ("p", "memory_declared"): 6.0,
        ("q", "shard"): 1.0,
        ("q", "brokers"): 1.0,
        ("q", "last_resource_time"): AT - 90,
        ("q", "started"): AT - 900,
        ("", "brokers"): 1.0,
    }


# -- topics and averages --


def test_bundles_are_those_of_pandas(session: SparkSession) -> None:
    """Sums of topics by the CRC-32 of their names, and averages by time, computed by pandas."""
    rng = np.random.default_rng(3)
    bounds = [0, 2**30, 2**31, 2**32 - 1]
    names = [f"t/a/0x{low:08x}_0x{high:08x}" for low, high in pairwise(bounds)]
    named = [f"segment://t/a/{k}/0000-7fff-{k}" if k % 3 else f"persistent://t/a/{k}" for k in range(300)]
    topics = pd.DataFrame({"topic": named, "pod": rng.choice(["p", "q"], 300)})
    topics[list(TRAFFIC)] = rng.uniform(0, 100, (300, 4))
    topics["bundle"] = [names[sum(zlib.crc32(name.encode()) >= b for b in bounds[1:3])] for name in topics["topic"]]
    past = pd.DataFrame({"bundle": names, "short_rate_in": 5.0, "time": AT - 60, "seen": AT - 60, "count": 2000.0})

    rows = [
        {"shard": 0, "topic": r["topic"], "pod": r["pod"], **{t: r[t] for t in TRAFFIC}}
        for r in topics.to_dict("records")
    ]
    views: dict[str, DataFrame] = {
        "bundle_samples": session.createDataFrame(relation(BUNDLE_SAMPLES, rows)),
        "cycles": session.createDataFrame(table([CYCLE])),
        "times": session.createDataFrame(relation(POD_TIMES, [{"pod": pod, "traffic_time": AT - 3} for pod in "pq"])),
        "state": session.createDataFrame(relation(STATE, past.to_dict("records"))),
        "ranges": session.createDataFrame(HashRanges.of(names).table("x")),
    }
    found = {(row["bundle"], row["pod"]): row for row in frames.bundle_load(**views).toArrow().to_pylist()}
    expected = topics.groupby(["bundle", "pod"])[list(TRAFFIC)].sum()
    assert set(found) == set(expected.index)
    for key, sums in expected.iterrows():
        assert [found[key][name] for name in TRAFFIC] == [pytest.approx(sums[name], rel=1e-12) for name in TRAFFIC]
        weight = 1 - math.exp(-57 / CYCLE.short_tau)
        assert found[key]["short_rate_in"] == pytest.approx(5 + weight * (sums["rate_in"] - 5), rel=1e-12)


def test_topics_and_averages_are_rules_by_themselves(session: SparkSession) -> None:
    one = drawn.bundles(4, "x")
    bundles = applied(session, "topics", bundle_samples=one.samples, ranges=one.ranges.table("x"), times=one.times)
    samples = pa.Table.from_pylist(bundles, BUNDLE_SAMPLES)
    found = applied(session, "averages", bundles=samples, times=one.times, state=one.state)
    assert {row["bundle"] for row in found} >= {row["bundle"] for row in bundles}


def test_a_large_table_is_converted_by_tasks_and_not_in_the_driver(session: SparkSession) -> None:
    def plan(rows: int) -> str:
        frame = session.createDataFrame(pa.table({"row": np.arange(rows), "load": np.ones(rows)}))
        return str(frame._jdf.queryExecution().executedPlan().toString())

    assert "LocalTableScan" in plan(100)
    assert "LocalTableScan" not in plan(60_000)
