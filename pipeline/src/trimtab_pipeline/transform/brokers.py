"""A row per broker of the topology: its signals, the limits that count, and the age of its samples.

The same rules as `sql/brokers.sql`, in numpy.
"""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from trimtab_pipeline.columns import (
    RESOURCES,
    SAMPLED_COVER,
    SAMPLED_INTERVAL,
    SAMPLED_TIME,
    TIMES,
    TRAFFIC,
    USAGE,
)
from trimtab_pipeline.transform.arrays import block, filled, floats, masked, nullable, positions
from trimtab_pipeline.transform.cycle import Cycle
from trimtab_pipeline.transform.relations import BROKER_LOAD, DECLARED, LIMITS
from trimtab_strategies.model.cluster_load import BoolArray, FloatArray

_REPORTED = ("cpu_limit", "memory_limit", "", "network_limit", "network_limit")
_NETWORK = [USAGE.index("network_in"), USAGE.index("network_out")]
_COUNTERS = ("cpu", "network_in", "network_out")
_PERCENT = 100.0


def broker_loads(signals: pa.Table, targets: pa.Table, cycle: Cycle) -> pa.Table:
    """`relations.SIGNALS` and `relations.TARGETS` of one policy -> `relations.BROKER_LOAD` without doubts."""
    reports = signals.filter(signals["report"].is_valid())
    told = [json.loads(text) for text in reports["report"].to_pylist()]
    failed = [report["shard"] for report in told if report["ok"] is False]
    end = {
        "policy": reports["policy"],
        "shard": pa.array([report["shard"] for report in told], pa.int32()),
        "report": reports["report"],
    }
    return pa.concat_tables(
        [_brokers(_Signals(signals, targets), targets, failed, cycle), filled(BROKER_LOAD, len(reports), end)]
    )


class _Signals:
    """Columns of signals in the rows of `targets`."""

    def __init__(self, signals: pa.Table, targets: pa.Table) -> None:
        self._of = {name: signals.filter(pc.equal(signals["signal"], name)) for name in _WANTED}
        self._pods, self._all = targets["pod"], signals

    def column(self, signal: str, name: str = "value") -> FloatArray:
        """(n,) column `name` of `signal`, NaN unknown."""
        if signal not in self._of:
            return np.full(len(self._pods), np.nan)
        table = self._of[signal]
        return np.append(floats(table, name), np.nan)[positions(self._pods, table["pod"])]

    def values(self, names: tuple[str, ...]) -> FloatArray:
        """(n, k) values of these signals."""
        return np.stack([self.column(name) for name in names], axis=1)

    def highest(self, names: tuple[str, ...], column: str) -> FloatArray:
        """(n,) the highest of a column over these signals."""
        highest: FloatArray = np.fmax.reduce([self.column(name, column) for name in names])
        return highest


_WANTED = (*RESOURCES, *TRAFFIC, *TIMES, "ahead")


def _brokers(signals: _Signals, targets: pa.Table, failed: list[int], cycle: Cycle) -> pa.Table:
    """The rows of `targets`. failed: shards that did not answer."""
    shard = targets["shard"].combine_chunks()
    answered = ~np.asarray(pc.is_in(shard, value_set=pa.array(failed, pa.int32())))
    usage = signals.values(USAGE)
    known = {name: signals.column(name) for name in (*RESOURCES, *TRAFFIC)}
    known |= {name: _coalesced(signals.column(name), floats(targets, f"last_{name}")) for name in TIMES}
    known |= {
        "samples": masked(signals.column("cpu", "samples"), ~np.isnan(signals.column("cpu", "resets"))),
        "resets": signals.highest(_COUNTERS, "resets"),
        "copies": signals.highest(_WANTED, "copies"),
        "ahead": signals.column("ahead"),
    }
    for names, what in ((SAMPLED_TIME, "time"), (SAMPLED_INTERVAL, "interval"), (SAMPLED_COVER, "cover")):
        known |= {name: signals.column(resource, what) for name, resource in zip(names, USAGE, strict=True)}
    known |= dict(zip(LIMITS, _limits(signals, targets, cycle).T, strict=True))
    known["age"] = _age(known, cycle.at)
    columns = {name: targets[name] for name in ("policy", "shard", "broker", "pod")}
    columns |= {name: nullable(column) for name, column in known.items()}
    present: BoolArray = answered & ~np.isnan(usage).all(axis=1)
    return filled(BROKER_LOAD, len(targets), columns | {"answered": pa.array(answered), "present": pa.array(present)})


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
