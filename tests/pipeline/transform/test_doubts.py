"""Every doubt about a broker, from the signals that raise it, in the order in which doubts count."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from trimtab_pipeline.api import PrometheusSettings
from trimtab_pipeline.columns import LIMITED, USAGE
from trimtab_pipeline.transform.relations import BROKER_LOAD, Cycle
from trimtab_pipeline.transform.trust import _KINDS, doubted, judged

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
AT_BOUNDS: Change = (
    {"age": 120.0, "all_resets": 3.0, "cpu.samples": 2.0, "known.started": AT - 60}
    | {
        "chosen": ["cpu", "memory"],
        "throttled": 1.0,
    }
    | {
        f"{name}.{column}": value
        for name in USAGE
        for column, value in {"value": 40.0, "time": AT - 22.5, "cover": 45.0}.items()
    }
)
DOUBTS: dict[str, Change] = {
    "partial": {"answered": False, "age": None},
    "shared_pod": {"known.brokers": 2.0},
    "never": {"present": False, "age": None},
    "gone": {"present": False, "age": 500.0},
    "time_unknown": {"age": None},
    "old": {"age": 121.0},
    "apart": {"apart": "different series claim to be its cpu"},
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
    DOUBTS[f"unsure_{name}"] = {f"{name}.unsure": 0.11}
DOUBTS |= {f"over_{name}": {f"{name}.value": 4.5} for name in LIMITED}
DOUBTS["over_network"] = {"network_in.value": 4.5, "network_limit": 4.0}
DOUBTS["throttled"] = {"throttled": 0.7, "cpu.value": 2.0}
DOUBTS["still"] = {"still": 30.0, "rate_out": 5.0}

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
    "it uses its limit": ({"cpu.value": 4.4, "throttled": 0.9}, None),
    "a burst is throttled": ({"cpu.value": 0.5, "throttled": 0.49}, None),
    "it is throttled as much as it is used": ({"cpu.value": 2.2, "throttled": 0.7}, None),
    "a user chose the limit": ({"cpu.value": 9.0, "memory.value": 9.0, "chosen": ["cpu", "memory"]}, None),
    "a user chose another limit": ({"cpu.value": 9.0, "chosen": ["memory"]}, "over_cpu"),
    "its rates are a little unsure": ({"cpu.unsure": 0.1}, None),
    "its card is busy": ({"network_in.value": 4.4, "network_limit": 4.0}, None),
    "a user says what its card carries": ({"network_in.value": 4.5, "network_limit": 3.0}, None),
    "it serves nothing and uses no CPU": ({"still": 300.0, "rate_in": 0.0, "rate_out": 0.0}, None),
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


# -- the verdict --


def broker(name: str, change: Change) -> dict[str, Any]:
    """A row of `BROKER_LOAD` that is healthy but for the change."""
    columns = HEALTHY | change
    row: dict[str, Any] = {"broker": name, "pod": name}
    for key, value in columns.items():
        owner, _, column = key.rpartition(".")
        if owner in USAGE:
            names = {"value": owner, "limit": f"limit_{owner}", "samples": "samples"}
            row[names.get(column, f"{owner}_{column}")] = value
        else:
            row[column] = value
    return row | {"resets": columns["all_resets"]}


def verdicts(*brokers: dict[str, Any], settings: PrometheusSettings = SETTINGS) -> list[str | None]:
    """The doubts about these brokers; each is a shard of its own, except for those that share a pod."""
    cycle = Cycle.of("x", settings, AT)
    table = pa.Table.from_pylist(list(brokers), BROKER_LOAD)
    shards = [table.filter(pc.equal(table["pod"], pod)) for pod in dict.fromkeys(table["pod"].to_pylist())]
    found: list[str | None] = judged(pa.concat_tables(doubted(one, cycle) for one in shards))["doubt"].to_pylist()
    return found


@pytest.mark.parametrize("case", CASES)
def test_a_doubt(case: str) -> None:
    change, doubt = CASES[case]
    brokers = [broker("a", {}), broker("b", change)]
    if change.get("known.brokers", 1.0) > 1:
        brokers.append(broker("c", change) | {"pod": "b"})
    assert verdicts(*brokers) == [None, *[doubt] * (len(brokers) - 1)]


_WITHOUT = {name: {f"{name}.value": None, f"{name}.cover": 1.0, f"{name}.time": 0.0} for name in USAGE}


@pytest.mark.parametrize(
    ("one", "other", "doubts"),
    [
        (_WITHOUT["cpu"], _WITHOUT["cpu"], ["stopped_cpu"] * 2),
        (_WITHOUT["memory"], _WITHOUT["memory"], ["stopped_memory"] * 2),
        (_WITHOUT["direct_memory"], _WITHOUT["direct_memory"], [None] * 2),
        (_WITHOUT["network_in"], _WITHOUT["network_in"], [None] * 2),
        (_WITHOUT["network_out"], _WITHOUT["network_out"], [None] * 2),
        (_WITHOUT["network_in"], {}, ["stopped_network_in", None]),
        (_WITHOUT["network_in"], DOUBTS["gone"], [None, "gone"]),
        ({"cpu.samples": None}, {"cpu.samples": None}, [None] * 2),
    ],
)
def test_what_counts_depends_on_all_brokers(one: Change, other: Change, doubts: list[str | None]) -> None:
    """A resource that no present broker has does not count, but CPU and memory do; nor do samples if none are known."""
    assert verdicts(broker("a", one), broker("b", other)) == doubts


def test_brokers_without_a_pod_do_not_share_one() -> None:
    assert verdicts(*(broker(name, {}) | {"pod": ""} for name in "ab")) == [None, None]


def test_brokers_that_tell_their_usage_themselves_need_no_counters() -> None:
    assert verdicts(broker("a", DOUBTS["restarted"]), settings=TOLD) == [None]
