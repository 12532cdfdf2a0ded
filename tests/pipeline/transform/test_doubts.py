"""Every doubt about a broker, from the signals that raise it, in the order in which doubts count."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from trimtab_pipeline.api import PrometheusSettings
from trimtab_pipeline.columns import USAGE
from trimtab_pipeline.transform import frames
from trimtab_pipeline.transform.relations import BROKER_LOAD, SIGNAL_LOADS, Cycle, table
from trimtab_pipeline.transform.trust import _KINDS, judged

pytestmark = pytest.mark.spark

AT = 1_750_000_000.0
SETTINGS = PrometheusSettings("http://x", "ns")
TOLD = PrometheusSettings("http://x", "ns", resources="pulsar")
Change = dict[str, Any]
"""Columns of a pod (``age``), of one of its signals (``cpu.value``), or what is known of it (``known.ahead``)."""

HEALTHY: Change = {"answered": True, "present": True, "age": 5.0, "all_resets": 0.0, "known.brokers": 1.0} | {
    f"{name}.{column}": value
    for name in USAGE
    for column, value in {"value": 1.0, "limit": 4.0, "time": AT - 5, "interval": 15.0, "cover": 60.0}.items()
}
HEALTHY |= {"cpu.samples": 4.0, "cpu.resets": 0.0}
AT_BOUNDS: Change = {"age": 120.0, "all_resets": 3.0, "cpu.samples": 2.0, "known.started": AT - 60} | {
    f"{name}.{column}": value
    for name in USAGE
    for column, value in {"value": 40.0, "time": AT - 22.5, "cover": 45.0}.items()
}
DOUBTS: dict[str, Change] = {
    "partial": {"answered": False, "age": None},
    "shared_pod": {"known.brokers": 2.0},
    "never": {"present": False, "age": None},
    "gone": {"present": False, "age": 500.0},
    "time_unknown": {"age": None},
    "old": {"age": 121.0},
    "ahead": {"known.ahead": 1.0},
    "restarted": {"known.started": AT - 59},
    "resets": {"all_resets": 4.0},
    "few_samples": {"cpu.samples": 1.0},
}
"""In the order in which they count; healthy but for the change. Those about a resource follow, resource by resource."""
for name in USAGE:
    DOUBTS[f"stopped_{name}"] = {f"{name}.time": AT - 23}
    DOUBTS[f"cover_{name}"] = {f"{name}.cover": 44.0}
for name in USAGE:
    DOUBTS[f"no_limit_{name}"] = {f"{name}.limit": 0.0, f"{name}.value": 1.0}
    DOUBTS[f"unknown_{name}"] = {f"{name}.value": None}
    DOUBTS[f"above_{name}"] = {f"{name}.value": 41.0}

OTHERS: dict[str, tuple[Change, str | None]] = {
    "nothing is wrong": ({}, None),
    "everything is at its bound": (AT_BOUNDS, None),
    "its clock is a little ahead": ({"known.started": AT + 59}, "restarted"),
    "its clock is far ahead": ({"known.started": AT + 60}, None),
    "its samples are late for their interval, but not for the window": (
        {"cpu.interval": 2.0, "cpu.time": AT - 20},
        None,
    ),
    "its samples are late for the window": ({"cpu.interval": 2.0, "cpu.time": AT - 21}, "stopped_cpu"),
    "no interval is known, so half the window counts": ({"cpu.interval": None, "cpu.time": AT - 45}, None),
    "no interval is known, and the samples are late": ({"cpu.interval": None, "cpu.time": AT - 46}, "stopped_cpu"),
    "no sample of CPU, which another broker has": ({"cpu.samples": None}, "few_samples"),
    "its limit is unknown": ({"memory.limit": None}, "no_limit_memory"),
    "neither usage nor limit is known": ({"memory.value": None, "memory.limit": None}, "unknown_memory"),
}
"""Cases, and the doubt of each."""


def cases() -> dict[str, tuple[Change, str | None]]:
    """Each doubt alone, each beside all that count less, and the others."""
    alone = {code: (change, code) for code, change in DOUBTS.items()}
    first: dict[str, tuple[Change, str | None]] = {}
    worse: Change = {}
    for code, change in reversed(DOUBTS.items()):
        worse = worse | change
        first[f"{code} first"] = (worse, code)
    return alone | first | OTHERS


CASES = cases()


def test_every_doubt_has_a_case() -> None:
    assert DOUBTS.keys() == _KINDS.keys()


# -- the SQL rule --


LOADS = pa.schema(
    [
        *SIGNAL_LOADS.remove(SIGNAL_LOADS.get_field_index("doubt")),
        ("known", pa.map_(pa.string(), pa.float64())),
        ("is_usage", pa.bool_()),
        ("all_resets", pa.float64()),
    ]
)
"""What the brokers' rule gives, and the rule of trust reads."""


def signals(policy: str, pod: str, change: Change) -> list[dict[str, Any]]:
    """The signals of a pod that is healthy but for the change."""
    columns: dict[str, dict[str, Any]] = {"": {}, "known": {}, **{name: {} for name in USAGE}}
    for key, value in (HEALTHY | change).items():
        owner, _, column = key.rpartition(".")
        columns[owner][column] = value
    same = {"policy": policy, "pod": pod, "is_usage": True, "known": list(columns["known"].items()), **columns[""]}
    return [{**same, "signal": name, **columns[name]} for name in USAGE]


def found(
    session: SparkSession, pods: dict[str, dict[str, Change]], settings: PrometheusSettings = SETTINGS
) -> dict[tuple[str, str], set[str | None]]:
    """The doubts about each pod of each policy; a report has none."""
    rows = [
        row
        for policy, changes in pods.items()
        for pod, change in changes.items()
        for row in signals(policy, pod, change)
    ]
    rows += [{"policy": policy, "report": "{}"} for policy in pods]
    loads = session.createDataFrame(pa.Table.from_pylist(rows, LOADS))
    cycles = session.createDataFrame(table([Cycle.of(policy, settings, AT) for policy in pods]))
    doubts: dict[tuple[str, str], set[str | None]] = {}
    for row in frames.applied("trust", loads=loads, cycles=cycles).toArrow().to_pylist():
        doubts.setdefault((row["policy"], row["report"] or row["pod"]), set()).add(row["doubt"])
    return doubts


@pytest.fixture(scope="module")
def doubts(session: SparkSession) -> dict[tuple[str, str], set[str | None]]:
    """A policy per case, with a healthy broker a and a broker b that is changed; in one job."""
    return found(session, {case: {"a": {}, "b": change} for case, (change, _) in CASES.items()})


@pytest.mark.parametrize("case", CASES)
def test_a_doubt_in_sql(doubts: dict[tuple[str, str], set[str | None]], case: str) -> None:
    assert doubts[case, "b"] == {CASES[case][1]}  # the same for all of its signals
    assert doubts[case, "a"] == {None}
    assert doubts[case, "{}"] == {None}


def test_what_counts_depends_on_all_brokers(session: SparkSession) -> None:
    """A resource that no present broker has does not count, but CPU and memory do; nor do samples if none are known."""
    without = {name: {f"{name}.value": None, f"{name}.cover": 1.0, f"{name}.time": 0.0} for name in USAGE}
    policies: dict[str, dict[str, Change]] = {name: {"a": change, "b": change} for name, change in without.items()}
    policies["another pod has it"] = {"a": without["network_in"], "b": {}}
    policies["a pod that is gone had it"] = {"a": without["network_in"], "b": DOUBTS["gone"]}
    policies["no samples"] = {"a": {"cpu.samples": None}, "b": {"cpu.samples": None}}
    policies["samples of a gauge"] = {"a": {"cpu.resets": None, "cpu.samples": 1.0}, "b": {"cpu.resets": None}}
    policies["brokers without a pod"] = {"": {"known.brokers": 2.0}, "b": {}}
    of = found(session, policies)
    assert {policy: [of[policy, pod] for pod in pods] for policy, pods in policies.items()} == {
        "cpu": [{"stopped_cpu"}] * 2,
        "memory": [{"stopped_memory"}] * 2,
        "direct_memory": [{None}] * 2,
        "network_in": [{None}] * 2,
        "network_out": [{None}] * 2,
        "another pod has it": [{"stopped_network_in"}, {None}],
        "a pod that is gone had it": [{None}, {"gone"}],
        "no samples": [{None}] * 2,
        "samples of a gauge": [{None}] * 2,
        "brokers without a pod": [{None}] * 2,
    }


def test_brokers_that_tell_their_usage_themselves_need_no_counters(session: SparkSession) -> None:
    doubts = found(session, {"p": {"b": DOUBTS["restarted"]}}, TOLD)
    assert doubts["p", "b"] == {None}


# -- the numpy stage --


def broker(name: str, change: Change) -> dict[str, Any]:
    """A row of `BROKER_LOAD` that is healthy but for the change."""
    columns = HEALTHY | change
    row: dict[str, Any] = {"policy": "x", "broker": name, "pod": name}
    for key, value in columns.items():
        owner, _, column = key.rpartition(".")
        if owner in USAGE:
            names = {"value": owner, "limit": f"limit_{owner}", "samples": "samples"}
            row[names.get(column, f"{owner}_{column}")] = value
        else:
            row[column] = value
    return row | {"resets": columns["all_resets"]}


@pytest.mark.parametrize("case", CASES)
def test_a_doubt_in_numpy(case: str) -> None:
    change, doubt = CASES[case]
    brokers = [broker("a", {}), broker("b", change)]
    if change.get("known.brokers", 1.0) > 1:
        brokers.append(broker("c", change) | {"pod": "b"})
    loads = judged(pa.Table.from_pylist(brokers, BROKER_LOAD), Cycle.of("x", SETTINGS, AT))
    assert loads["doubt"].to_pylist() == [None, *[doubt] * (len(brokers) - 1)]


def test_brokers_that_tell_their_usage_themselves_need_no_counters_in_numpy() -> None:
    brokers = pa.Table.from_pylist([broker("a", DOUBTS["restarted"])], BROKER_LOAD)
    assert judged(brokers, Cycle.of("x", TOLD, AT))["doubt"].to_pylist() == [None]
