"""What each SQL rule says, on frames that can be read, and against pandas."""

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
from trimtab_pipeline.columns import BROKER_SAMPLES, BUNDLE_SAMPLES, TRAFFIC
from trimtab_pipeline.transform.cycle import Cycle, table
from trimtab_pipeline.transform.frames import bundle_load, rule
from trimtab_pipeline.transform.relations import BROKER_LOAD, POD_TIMES, SIGNALS, STATE, TARGETS
from trimtab_pipeline.transform.topic_to_bundle import HashRanges

pytestmark = pytest.mark.spark

AT = 1_750_000_000.0
CYCLE = Cycle.of("x", PrometheusSettings("http://x", "ns"), AT)
Row = dict[str, Any]


def applied(session: SparkSession, name: str, **views: pa.Table) -> list[Row]:
    """The rows that a rule gives for these views, as anyone may run it."""
    for view, rows in {"cycles": table([CYCLE]), **views}.items():
        session.createDataFrame(rows).createOrReplaceTempView(view)
    found: list[Row] = session.sql(rule(name)).toArrow().to_pylist()
    return found


def relation(schema: pa.Schema, rows: Sequence[Row]) -> pa.Table:
    return pa.Table.from_pylist([{"policy": "x", **row} for row in rows], schema)


# -- rates --


def series(signal: str, points: Sequence[tuple[float, float]], kind: str = "counter", **more: str) -> list[Row]:
    """A series of pod p with its samples: seconds before now, and values."""
    key = {"shard": 0, "pod": "p", "signal": signal, "kind": kind, "part": "", "series": "0", **more}
    return [{**key, "time": AT - ago, "value": value} for ago, value in points]


def shown(pod: str = "p") -> list[Row]:
    key = {"shard": 0, "pod": pod, "kind": "value", "part": "", "series": ""}
    return [{**key, "signal": name, "value": AT} for name in ("resource_time", "traffic_time")]


def steady(rate: float, *, since: int = 300, until: int = 0, begin: float = 1e6) -> list[tuple[float, float]]:
    return [(float(ago), begin + rate * (since - ago)) for ago in range(since, until - 1, -15)]


def test_rates(session: SparkSession) -> None:
    rows = [
        *shown(),
        *series("cpu", steady(2.0)),
        *series("network_in", steady(3.0), part="eth0"),
        *series("network_in", steady(4.0), part="eth1"),
        *series("network_in", steady(100.0, until=60), part="gone"),
        *series("network_out", [*steady(1.0, until=30), (15, 5.0), (0, 20.0)]),
        *series("memory", [(15, 7.0), (0, 8.0)], "gauge"),
        *series("memory", [(16, 70.0), (1, 80.0)], "gauge", series="1"),
        *series("rate_in", [(15, 7.0), (0, math.nan)], "gauge"),
        *series("cpu", steady(2.0), pod="invisible"),
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
    assert of("cpu", "invisible") == [None, 15.0, 60.0, 4.0, 0.0, 1.0]  # gone, though its samples are readable
    assert found[None, None]["report"] == "{}"


def test_rates_are_those_of_pandas(session: SparkSession) -> None:
    """Increase over covered time, computed by pandas for counters without a reset."""
    rng = np.random.default_rng(5)
    frames = []
    for pod in range(20):
        times = AT - np.sort(rng.choice(np.arange(300), int(rng.integers(25, 40)), replace=False)).astype(float)[::-1]
        values = 1e7 + np.cumsum(rng.uniform(0, 50, len(times)))
        frames.append(pd.DataFrame({"pod": f"p{pod}", "time": times, "value": values}))
    samples = pd.concat(frames)
    rows = [
        {"shard": 0, "signal": "cpu", "kind": "counter", "part": "", "series": "0", **row}
        for row in samples.to_dict("records")
    ]
    rows += [row for pod in range(20) for row in shown(f"p{pod}")]
    found = {
        row["pod"]: row
        for row in applied(session, "rates", samples=relation(BROKER_SAMPLES, rows))
        if row["signal"] == "cpu"
    }
    for pod, one in samples.groupby("pod"):
        pairs = one.assign(step=one["time"].diff(), gained=one["value"].diff())
        counted = pairs[(pairs["time"] > one["time"].max() - 60) & (pairs["step"] <= 60)]
        usual = min(pairs["step"].max(), 2 * pairs["step"].median())
        assert found[pod]["value"] == pytest.approx(counted["gained"].sum() / counted["step"].sum(), rel=1e-9)
        assert (found[pod]["cover"], found[pod]["interval"]) == (counted["step"].sum(), usual)


# -- brokers --


def test_brokers(session: SparkSession) -> None:
    def signal(pod: str, name: str, **columns: float) -> Row:
        return {"pod": pod, "signal": name, **columns}

    signals = [
        signal("p", "cpu", value=2.0, time=AT - 20, interval=15.0, cover=60.0, samples=4.0, resets=1.0, copies=1.0),
        signal("p", "cpu_limit", value=4.0),
        signal("p", "memory_limit", value=8.0),
        signal("p", "resource_time", value=AT - 10),
        signal("p", "traffic_time", value=AT - 5, copies=2.0),
        {"report": json.dumps({"shard": 0, "ok": True})},
        {"report": json.dumps({"shard": 1, "ok": False})},
    ]
    targets = [
        {"shard": 0, "broker": "one", "pod": "p", "memory_declared": 6.0},
        {"shard": 0, "broker": "two", "pod": "q", "last_resource_time": AT - 90, "last_traffic_time": AT - 95},
        {"shard": 1, "broker": "three", "pod": "r"},
    ]
    found = applied(session, "brokers", signals=relation(SIGNALS, signals), targets=relation(TARGETS, targets))
    rows = {row["broker"]: row for row in found if row["broker"]}
    names = ("cpu", "cpu_cover", "samples", "resets", "copies", "limit_cpu", "limit_memory", "limit_network_in", "age")
    assert [rows["one"][name] for name in names] == [2.0, 60.0, 4.0, 1.0, 2.0, 4.0, 6.0, 1.25e9, 20.0]
    verdicts = {name: (row["answered"], row["present"], row["age"]) for name, row in rows.items()}
    assert verdicts == {"one": (True, True, 20.0), "two": (True, False, 95.0), "three": (False, False, None)}
    assert len([row for row in found if row["report"]]) == 2


# -- trust --

HEALTHY = {
    "shard": 0,
    "cpu": 1.0,
    "memory": 1.0,
    "limit_cpu": 4.0,
    "limit_memory": 4.0,
    "samples": 4.0,
    "resets": 0.0,
    **dict(zip(("cpu_time", "cpu_interval", "cpu_cover"), (AT - 5, 15.0, 60.0), strict=True)),
    "age": 5.0,
    "answered": True,
    "present": True,
}
DOUBTS: list[tuple[str | None, Row]] = [
    (None, {}),
    ("partial", {"answered": False, "age": None}),
    ("shared_pod", {"pod": "a"}),
    ("never", {"present": False, "age": None}),
    ("gone", {"present": False}),
    ("time_unknown", {"age": None}),
    ("old", {"age": 121.0, "ahead": 1.0}),
    ("ahead", {"ahead": 1.0, "resets": 9.0}),
    ("resets", {"resets": 9.0, "samples": 1.0}),
    ("few_samples", {"samples": None}),
    ("stopped_cpu", {"cpu_time": AT - 23, "cpu_cover": 1.0}),
    ("cover_cpu", {"cpu_cover": 44.0, "limit_cpu": None}),
    ("no_limit_cpu", {"limit_cpu": 0.0, "memory": None}),
    ("unknown_memory", {"memory": None}),
    ("above_memory", {"memory": 41.0}),
    ("unknown_network_in", {"network_in": None}),
]


def test_trust(session: SparkSession) -> None:
    """The first problem counts: each case is a policy, with a healthy broker a, and a broker b that is changed."""
    rows: list[Row] = []
    for number, (doubt, change) in enumerate(DOUBTS):
        network = {"network_in": 1.0, "limit_network_in": 9.0} if doubt == "unknown_network_in" else {}
        both = {"policy": f"x{number}", **HEALTHY, **network}
        rows += [{**both, "broker": "a", "pod": "a"}, {**both, "broker": "b", "pod": "b", **change}]
    cycles = table([replace(CYCLE, policy=f"x{number}") for number in range(len(DOUBTS))])
    found = {
        (row["policy"], row["broker"]): row["doubt"]
        for row in applied(session, "trust", loads=relation(BROKER_LOAD, rows), cycles=cycles)
    }
    for number, (doubt, _) in enumerate(DOUBTS):
        assert found[f"x{number}", "b"] == doubt
        assert found[f"x{number}", "a"] == ("shared_pod" if doubt == "shared_pod" else None)


# -- topics and averages --


def test_bundles_are_those_of_pandas(session: SparkSession) -> None:
    """Sums of topics by the CRC-32 of their names, and averages by time, computed by pandas."""
    rng = np.random.default_rng(3)
    bounds = [0, 2**30, 2**31, 2**32 - 1]
    names = [f"t/a/0x{low:08x}_0x{high:08x}" for low, high in pairwise(bounds)]
    topics = pd.DataFrame({"topic": [f"persistent://t/a/{k}" for k in range(300)], "pod": rng.choice(["p", "q"], 300)})
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
    found = {(row["bundle"], row["pod"]): row for row in bundle_load(**views).toArrow().to_pylist()}
    expected = topics.groupby(["bundle", "pod"])[list(TRAFFIC)].sum()
    assert set(found) == set(expected.index)
    for key, sums in expected.iterrows():
        assert [found[key][name] for name in TRAFFIC] == [pytest.approx(sums[name], rel=1e-12) for name in TRAFFIC]
        weight = 1 - math.exp(-57 / CYCLE.short_tau)
        assert found[key]["short_rate_in"] == pytest.approx(5 + weight * (sums["rate_in"] - 5), rel=1e-12)


def test_topics_and_averages_read_views(session: SparkSession) -> None:
    """Each text runs by itself."""
    one = drawn.bundles(4, "x")
    views = {"ranges": one.ranges.table("x"), "times": one.times, "state": one.state}
    bundles = applied(session, "topics", bundle_samples=one.samples, **views)
    found = applied(session, "averages", bundles=pa.Table.from_pylist(bundles, BUNDLE_SAMPLES), **views)
    assert {row["bundle"] for row in found} >= {row["bundle"] for row in bundles}
