"""A row per broker of the topology: its signals, the limits that count, and the age of its samples.

`broker_loads` has the same rules as `sql/brokers.sql`, in numpy. `joined` makes the same rows from the SQL's result.
"""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from trimtab_pipeline.columns import (
    BROKER_SAMPLES,
    RESOURCES,
    SAMPLED_COVER,
    SAMPLED_INTERVAL,
    SAMPLED_TIME,
    TIMES,
    TRAFFIC,
    USAGE,
)
from trimtab_pipeline.transform.arrays import block, filled, floats, masked, nullable, positions
from trimtab_pipeline.transform.relations import BROKER_LOAD, DECLARED, LIMITS, Cycle
from trimtab_strategies.model.cluster_load import BoolArray, FloatArray

_REPORTED = ("cpu_limit", "memory_limit", "", "network_limit", "network_limit")
_NETWORK = [USAGE.index("network_in"), USAGE.index("network_out")]
_COUNTERS = ("cpu", "network_in", "network_out")
_PERCENT = 100.0


def expected_samples(targets: pa.Table) -> pa.Table:
    """`relations.TARGETS` -> `columns.BROKER_SAMPLES`: what is known about each pod before it is measured.

    The SQL rules read these rows together with the measured ones. A row of the kind ``expected`` stands for each
    resource that a broker may have. Each other row has one value: a declared limit (``cpu_declared``), a time of the
    last state (``last_traffic_time``), the start of the container (``started``), the ``shard``, or the number of
    ``brokers`` that name the pod.
    """
    named = pc.binary_join_element_wise(targets["policy"], targets["pod"], "\n").to_numpy()
    _, first, brokers = np.unique(named, return_index=True, return_counts=True)
    rows = targets.take(pa.array(first))
    known = {name: nullable(floats(rows, name)) for name in (*DECLARED, *_LAST.values(), "started", "shard")}
    known["brokers"] = nullable(brokers.astype(np.float64))
    nothing = nullable(np.full(len(rows), np.nan))
    signals = [
        *((name, "value", values) for name, values in known.items()),
        *((name, "expected", nothing) for name in USAGE),
    ]
    return pa.concat_tables([_sampled(rows, *signal) for signal in signals])


def _sampled(rows: pa.Table, signal: str, kind: str, values: pa.DoubleArray) -> pa.Table:
    """One signal of each pod in `rows` of targets."""
    names = {name: rows[name] for name in ("policy", "shard", "pod")}
    same = {
        name: pa.repeat(text, len(rows))
        for name, text in (("signal", signal), ("kind", kind), ("part", ""), ("series", ""))
    }
    return filled(BROKER_SAMPLES, len(rows), names | same | {"value": values})


def broker_loads(signals: pa.Table, targets: pa.Table, cycle: Cycle) -> pa.Table:
    """`relations.SIGNALS` and `relations.TARGETS` of one policy -> `relations.BROKER_LOAD`, with ``doubt`` empty."""
    told = [json.loads(text) for text in signals["report"].drop_null().to_pylist()]
    failed = [report["shard"] for report in told if report["ok"] is False]
    shard = targets["shard"].combine_chunks()
    answered = ~np.asarray(pc.is_in(shard, value_set=pa.array(failed, pa.int32())))
    ours = _Signals(signals, targets)
    present: BoolArray = answered & ~np.isnan(ours.values(USAGE)).all(axis=1)
    known = _known(ours, targets)
    known |= dict(zip(LIMITS, _limits(ours, targets, cycle).T, strict=True)) | {"age": _age(known, cycle.at)}
    verdict = {"answered": pa.array(answered), "present": pa.array(present)}
    return _with_reports(signals, targets, known, verdict)


def joined(loads: pa.Table, targets: pa.Table) -> pa.Table:
    """`relations.SIGNAL_LOADS` and `relations.TARGETS` of one policy -> `relations.BROKER_LOAD`: a row per broker."""
    signals = _Signals(loads, targets)
    known = _known(signals, targets) | {"age": signals.column("cpu", "age")}
    known |= {limit: signals.column(name, "limit") for limit, name in zip(LIMITS, USAGE, strict=True)}
    pods = loads.filter(pc.equal(loads["signal"], "cpu"))
    row = pa.array(positions(targets["pod"], pods["pod"]))
    return _with_reports(
        loads, targets, known, {name: pods[name].take(row) for name in ("answered", "present", "doubt")}
    )


def _with_reports(
    rows: pa.Table, targets: pa.Table, known: dict[str, FloatArray], verdict: dict[str, pa.Array]
) -> pa.Table:
    """`relations.BROKER_LOAD` of the brokers in `targets`, and of the reports among the `rows`."""
    reports = rows.filter(rows["report"].is_valid())
    shards = [json.loads(text)["shard"] for text in reports["report"].to_pylist()]
    end = {"policy": reports["policy"], "shard": pa.array(shards, pa.int32()), "report": reports["report"]}
    columns = {name: targets[name] for name in ("policy", "shard", "broker", "pod", "started")}
    columns |= {name: nullable(column) for name, column in known.items()}
    return pa.concat_tables(
        [filled(BROKER_LOAD, len(targets), columns | verdict), filled(BROKER_LOAD, len(reports), end)]
    )


class _Signals:
    """Columns of signals, with one value for each row of `targets`, in the same order.

    For some minutes, Prometheus returns the raw samples of a pod that is gone. Its values count as unknown if the query
    for the times of its newest samples finds nothing.
    """

    def __init__(self, signals: pa.Table, targets: pa.Table) -> None:
        self._of = {name: signals.filter(pc.equal(signals["signal"], name)) for name in _WANTED}
        self._pods = targets["pod"]

    def column(self, signal: str, name: str = "value") -> FloatArray:
        """(n,) column `name` of `signal`, NaN if unknown."""
        column = self._column(signal, name)
        if name != "value":
            return column
        shown = self._column("traffic_time" if signal in TRAFFIC else "resource_time", "value")
        return masked(column, np.isnan(self._column(signal, "samples")) | ~np.isnan(shown))

    def values(self, names: tuple[str, ...]) -> FloatArray:
        """(n, k) values of these signals."""
        return np.stack([self.column(name) for name in names], axis=1)

    def highest(self, names: tuple[str, ...], column: str) -> FloatArray:
        """(n,) the highest of a column over these signals."""
        highest: FloatArray = np.fmax.reduce([self._column(name, column) for name in names])
        return highest

    def _column(self, signal: str, name: str) -> FloatArray:
        if signal not in self._of:
            return np.full(len(self._pods), np.nan)
        table = self._of[signal]
        return np.append(floats(table, name), np.nan)[positions(self._pods, table["pod"])]


_WANTED = (*RESOURCES, *TRAFFIC, *TIMES, "ahead")
_LAST = {name: f"last_{name}" for name in TIMES}


def _known(signals: _Signals, targets: pa.Table) -> dict[str, FloatArray]:
    """The measured columns of `columns.BROKER_STATE`, with one value for each row of `targets`, in the same order."""
    known = {name: signals.column(name) for name in (*RESOURCES, *TRAFFIC)}
    known |= {name: _coalesced(signals.column(name), floats(targets, last)) for name, last in _LAST.items()}
    known |= {
        "samples": masked(signals.column("cpu", "samples"), ~np.isnan(signals.column("cpu", "resets"))),
        "resets": signals.highest(_COUNTERS, "resets"),
        "copies": signals.highest(_WANTED, "copies"),
        "ahead": signals.column("ahead"),
    }
    for names, what in ((SAMPLED_TIME, "time"), (SAMPLED_INTERVAL, "interval"), (SAMPLED_COVER, "cover")):
        known |= {name: signals.column(resource, what) for name, resource in zip(names, USAGE, strict=True)}
    return known


def _limits(signals: _Signals, targets: pa.Table, cycle: Cycle) -> FloatArray:
    """(n, 5) limits that count as 100 %: declared, else reported. A source in percent has only the limit 100."""
    if cycle.percent:
        return np.full((len(targets), len(USAGE)), _PERCENT)
    reported = signals.values(_REPORTED)
    reported[:, _NETWORK] = _coalesced(reported[:, _NETWORK], np.float64(cycle.nic_speed))
    return _coalesced(block(targets, DECLARED), reported)


def _age(known: dict[str, FloatArray], at: float) -> FloatArray:
    """(n,) seconds since the oldest of the newest samples; NaN unless the times of usage and of traffic are known."""
    resource_time, traffic_time = (known[name] for name in TIMES)
    oldest = np.fmin.reduce([known[name] for name in (*TIMES, *SAMPLED_TIME)])
    return masked(np.maximum(at - oldest, 0.0), ~np.isnan(resource_time) & ~np.isnan(traffic_time))


def _coalesced(first: FloatArray, second: FloatArray | np.float64) -> FloatArray:
    return np.where(np.isnan(first), second, first)
