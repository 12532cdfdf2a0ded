"""What each rule says, on small tables, against pandas, and of random samples.

`test_doubts.py` has the rule of trust.
"""

from __future__ import annotations

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
from hypothesis import given, settings, strategies as st

import drawn_relations as drawn
from recorded_worlds import bundles, measured_bundles, of_shard, of_shard_read, recorded
from trimtab_pipeline.api import PrometheusSettings
from trimtab_pipeline.columns import BROKER_SAMPLES, BUNDLE_SAMPLES, BUNDLE_STATE, TRAFFIC, USAGE
from trimtab_pipeline.transform.averages import averaged
from trimtab_pipeline.transform.brokers import broker_loads
from trimtab_pipeline.transform.rates import broker_signals
from trimtab_pipeline.transform.relations import POD_TIMES, SIGNALS, TARGETS, Cycle
from trimtab_pipeline.transform.topic_to_bundle import HashRanges
from trimtab_pipeline.transform.topics import bundle_sums
from trimtab_pipeline.transform.trust import _KINDS

AT = 1_750_000_000.0
CYCLE = Cycle.of("x", PrometheusSettings("http://x", "ns"), AT)
Row = dict[str, Any]


# -- rates --


def series(signal: str, points: Sequence[tuple[float, float]], kind: str = "counter", **more: str) -> list[Row]:
    """A series of pod p with its samples: seconds before now, and values."""
    key = {"pod": "p", "signal": signal, "kind": kind, "part": "", "series": "0", **more}
    return [{**key, "time": AT - ago, "value": value} for ago, value in points]


def steady(rate: float, *, since: int = 300, until: int = 0, begin: float = 1e6) -> list[tuple[float, float]]:
    return [(float(ago), begin + rate * (since - ago)) for ago in range(since, until - 1, -15)]


def signals_of(rows: Sequence[Row]) -> list[Row]:
    found: list[Row] = broker_signals(pa.Table.from_pylist(list(rows), BROKER_SAMPLES), CYCLE).to_pylist()
    return found


def test_rates() -> None:
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
        {"pod": "p", "signal": "cpu_limit", "kind": "value", "part": "", "series": "", "value": 4.0},
    ]
    found = {row["signal"]: row for row in signals_of(rows)}
    columns = ("value", "interval", "cover", "samples", "resets", "copies")

    def of(signal: str) -> list[float | None]:
        return [found[signal][name] for name in columns]

    assert of("cpu") == [2.0, 15.0, 60.0, 4.0, 0.0, 1.0]
    assert of("network_in") == [7.0, 15.0, 60.0, 4.0, 0.0, 1.0]  # the sum of the parts that are there now
    assert of("network_out") == [1.0, 15.0, 45.0, 4.0, 1.0, 1.0]  # nothing is known of the pair with the reset
    assert of("memory") == [8.0, 15.0, None, 2.0, None, 2.0]  # the newest series; the other is a copy
    assert of("rate_in")[0] is None  # not a number
    assert of("rate_out")[:3] == [None, 15.0, 30.0]  # not a number, then values that a new process may have counted
    assert of("cpu_limit") == [4.0, *[None] * 5]


def test_rates_are_those_of_pandas() -> None:
    """Increase over covered time, computed by pandas for counters without a reset."""
    rng = np.random.default_rng(5)
    counters = []
    for pod in range(20):
        times = AT - np.sort(rng.choice(np.arange(300), int(rng.integers(25, 40)), replace=False)).astype(float)[::-1]
        values = 1e7 + np.cumsum(rng.uniform(0, 50, len(times)))
        counters.append(pd.DataFrame({"pod": f"p{pod}", "time": times, "value": values}))
    samples = pd.concat(counters)
    rows = [
        {"signal": "cpu", "kind": "counter", "part": "", "series": "0", **row} for row in samples.to_dict("records")
    ]
    found = {row["pod"]: row for row in signals_of(rows)}
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


def loads(
    rows: Sequence[Row], targets: Sequence[Row], cycle: Cycle = CYCLE, *, answered: bool = True
) -> dict[str, Row]:
    """The load of each broker from the signals of pods."""
    tables = pa.Table.from_pylist(list(rows), SIGNALS), pa.Table.from_pylist(list(targets), TARGETS)
    return {row["broker"]: row for row in broker_loads(*tables, cycle, answered=answered).to_pylist()}


def test_signals_are_joined_to_brokers() -> None:
    """A row per broker, also if several name a pod; what is not measured now is known from the last state."""
    rows = [
        *signals(
            "p",
            cpu=sampled(2.0, cover=60.0, resets=1.0),
            cpu_limit=4.0,
            memory_limit=8.0,
            resource_time=AT - 10,
            traffic_time={"value": AT - 5, "copies": 2.0},
        ),
        *signals("of another cluster", cpu=2.0, resource_time=AT, traffic_time=AT),
    ]
    brokers: list[Row] = [
        {"shard": 0, "broker": "one", "pod": "p", "memory_declared": 6.0},
        {"shard": 0, "broker": "two", "pod": "q", "last_resource_time": AT - 90, "last_traffic_time": AT - 95},
        {"shard": 0, "broker": "four", "pod": "p", "memory_declared": 6.0},
    ]
    found = loads(rows, brokers)
    assert list(found) == ["one", "two", "four"]
    names = ("cpu", "cpu_time", "cpu_interval", "cpu_cover", "samples", "resets", "copies", "age")
    for broker in ("one", "four"):
        assert [found[broker][name] for name in names] == [2.0, AT - 20, 15.0, 60.0, 4.0, 1.0, 2.0, 20.0]
        limits = [found[broker][f"limit_{name}"] for name in USAGE]
        assert limits == [4.0, 6.0, None, 1.25e9, 1.25e9]  # reported, declared, and what a NIC has
    verdicts = {name: (row["answered"], row["present"], row["age"]) for name, row in found.items()}
    assert verdicts == {"one": (True, True, 20.0), "two": (True, False, 95.0), "four": (True, True, 20.0)}
    times = {name: (row["resource_time"], row["traffic_time"]) for name, row in found.items()}
    assert times["one"] == (AT - 10, AT - 5)
    assert times["two"] == (AT - 90, AT - 95)  # those of the last state
    silent = loads(rows, brokers, answered=False)["one"]
    assert (silent["answered"], silent["present"]) == (False, False)


@pytest.mark.parametrize(
    ("reported", "declared", "percent", "limits"),
    [
        ({"network_limit": 7.0}, {}, False, [None, None, None, 7.0, 7.0]),
        ({"network_limit": 7.0}, {"network_out_declared": 3.0}, False, [None, None, None, 7.0, 3.0]),
        ({"cpu_limit": 4.0}, {"cpu_declared": 2.0, "direct_memory_declared": 1.0}, True, [100.0] * 5),
    ],
)
def test_limits(reported: Row, declared: Row, percent: bool, limits: list[float | None]) -> None:  # noqa: FBT001
    cycle = replace(CYCLE, percent=percent)
    found = loads(signals("p", **reported), [{"shard": 0, "broker": "b", "pod": "p", **declared}], cycle)["b"]
    assert [found[f"limit_{name}"] for name in USAGE] == limits


def test_values_of_a_pod_that_is_gone_are_masked() -> None:
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
    rows = [row for pod, known in pods.items() for row in signals(pod, **measured | known)]
    found = loads(rows, [{"shard": 0, "broker": pod, "pod": pod} for pod in pods])
    assert {pod: [found[pod][name] for name in measured] for pod in pods} == {
        "gone": [None, None, None, 4.0],
        "idle": [2.0, 3.0, None, 4.0],
        "unscraped": [None, None, 5.0, 4.0],
        "there": [2.0, 3.0, 5.0, 4.0],
    }
    presence = {"gone": False, "idle": True, "unscraped": False, "there": True}
    assert {pod: found[pod]["present"] for pod in pods} == presence
    columns = ("cpu_time", "cpu_interval", "cpu_cover", "samples", "resets", "copies")
    assert [found["gone"][name] for name in columns] == [AT - 20, 15.0, 60.0, 4.0, 0.0, 1.0]


# -- topics and averages --


def test_bundles_are_those_of_pandas() -> None:
    """Sums of topics by the CRC-32 of their names, and averages by time, computed by pandas."""
    rng = np.random.default_rng(3)
    bounds = [0, 2**30, 2**31, 2**32 - 1]
    names = [f"t/a/0x{low:08x}_0x{high:08x}" for low, high in pairwise(bounds)]
    named = [f"segment://t/a/{k}/0000-7fff-{k}" if k % 3 else f"persistent://t/a/{k}" for k in range(300)]
    topics = pd.DataFrame({"topic": named, "pod": rng.choice(["p", "q"], 300)})
    topics[list(TRAFFIC)] = rng.uniform(0, 100, (300, 4))
    topics["bundle"] = [names[sum(zlib.crc32(name.encode()) >= b for b in bounds[1:3])] for name in topics["topic"]]
    past = pd.DataFrame({"bundle": names, "short_rate_in": 5.0, "time": AT - 60, "seen": AT - 60, "count": 2000.0})

    samples = pa.Table.from_pylist(topics.drop(columns="bundle").to_dict("records"), BUNDLE_SAMPLES)
    times = pa.Table.from_pylist([{"pod": pod, "traffic_time": AT - 3} for pod in "pq"], POD_TIMES)
    state = pa.Table.from_pylist(past.to_dict("records"), BUNDLE_STATE)
    load = averaged(bundle_sums(samples, HashRanges.of(names)), times, state, CYCLE)
    found = {(row["bundle"], row["pod"]): row for row in load.to_pylist()}
    expected = topics.groupby(["bundle", "pod"])[list(TRAFFIC)].sum()
    assert set(found) == set(expected.index)
    for key, sums in expected.iterrows():
        assert [found[key][name] for name in TRAFFIC] == [pytest.approx(sums[name], rel=1e-12) for name in TRAFFIC]
        weight = 1 - math.exp(-57 / CYCLE.short_tau)
        assert found[key]["short_rate_in"] == pytest.approx(5 + weight * (sums["rate_in"] - 5), rel=1e-12)


# -- any samples --

SEEDS = st.integers(0, 2**32 - 1)


@settings(max_examples=30)
@given(seed=SEEDS)
def test_a_shard_alone_is_measured_as_among_others(seed: int) -> None:
    """What a task makes of its brokers does not depend on how many shards there are."""
    one = drawn.brokers(seed, "p")
    rows, _ = of_shard_read(one.samples, 0)
    more, _ = of_shard_read(one.samples, 1)
    targets = of_shard(one.targets, 0)
    alone = broker_loads(broker_signals(rows, one.cycle), targets, one.cycle)
    among = broker_loads(broker_signals(pa.concat_tables([more, rows]), one.cycle), targets, one.cycle)
    assert alone.equals(among)


@settings(max_examples=30)
@given(seed=SEEDS)
def test_the_rates_of_bundles_are_the_samples_of_this_cycle(seed: int) -> None:
    """They are the same as without averages, and unknown for a bundle that was not measured."""
    _, load = bundles(seed)
    sums = measured_bundles(seed)
    named = sums.filter(sums["bundle"].is_valid())
    found = load.slice(0, len(named))
    assert found.select(["bundle", "pod", *TRAFFIC]).equals(named.select(["bundle", "pod", *TRAFFIC]))
    rest = load.slice(len(named))
    remembered = rest.filter(rest["bundle"].is_valid())
    assert all(remembered[name].null_count == len(remembered) for name in TRAFFIC)
    assert not set(remembered["bundle"].to_pylist()) & set(named["bundle"].to_pylist())


def test_every_doubt_is_drawn() -> None:
    from_reports = {"apart"}
    late_values = {code for code in _KINDS if code.startswith("unsure_")}  # `test_uneven.py` draws them
    assert set(recorded("brokers")["doubt"].to_pylist()) == {None, *_KINDS} - from_reports - late_values
