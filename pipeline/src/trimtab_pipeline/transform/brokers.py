"""A row per broker of the topology: its signals, the limits that count, and the age of its samples."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import MappingProxyType

import numpy as np
import pyarrow as pa

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
from trimtab_pipeline.transform.relations import BROKER_LOAD, DECLARED, LIMITS, SIGNALS, UNSURE, Cycle
from trimtab_strategies.model.cluster_load import BoolArray, FloatArray

_REPORTED = ("cpu_limit", "memory_limit", "", "network_limit", "network_limit")
_NETWORK = [USAGE.index("network_in"), USAGE.index("network_out")]
_COUNTERS = ("cpu", "network_in", "network_out")
_PERCENT = 100.0


def broker_loads(
    signals: pa.Table,
    targets: pa.Table,
    cycle: Cycle,
    *,
    answered: bool = True,
    apart: Mapping[str, str] = MappingProxyType({}),
    unclear: Collection[str] = (),
) -> pa.Table:
    """`relations.SIGNALS` and `relations.TARGETS` -> `relations.BROKER_LOAD` without doubts.

    answered: whether the queries about these brokers got an answer. apart: pod -> what is wrong with its series.
    unclear: pods whose network devices are unclear.
    """
    ours = _Signals(signals, targets)
    known = _known(ours, targets)
    known |= dict(zip(LIMITS, _limits(ours, targets, cycle).T, strict=True))
    known |= {"age": _age(known, cycle.at), "behind": _behind(ours, targets)}
    present: BoolArray = np.asarray(~np.isnan(ours.values(USAGE)).all(axis=1)) & np.array(answered)
    columns = {name: targets[name] for name in ("shard", "broker", "pod", "started", "chosen")}
    columns |= {name: nullable(column) for name, column in known.items()}
    verdict = {"answered": pa.repeat(answered, len(targets)), "present": pa.array(present)}
    verdict["unclear"] = pa.array([pod in unclear for pod in targets["pod"].to_pylist()], pa.bool_())
    verdict["apart"] = pa.array([apart.get(pod) for pod in targets["pod"].to_pylist()], pa.string())
    return filled(BROKER_LOAD, len(targets), columns | verdict)


class _Signals:
    """Columns of signals, with one value for each row of `targets`, in the same order.

    For some minutes, Prometheus returns the raw samples of a pod that is gone. Its values count as unknown if the query
    for the times of its newest samples finds nothing.
    """

    def __init__(self, signals: pa.Table, targets: pa.Table) -> None:
        pods = signals["pod"].unique()
        place = positions(signals["signal"], pa.array(_WANTED, pa.string()))
        cells = positions(signals["pod"], pods)[place >= 0], place[place >= 0]
        row = positions(targets["pod"], pods)
        self._columns: dict[str, FloatArray] = {}
        for name in SIGNALS.names[2:]:
            grid = np.full((len(pods) + 1, len(_WANTED)), np.nan)  # the last row is for pods without signals
            grid[cells] = floats(signals, name)[place >= 0]
            self._columns[name] = grid[row]

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
        columns = self._columns[name]
        return columns[:, _WANTED.index(signal)] if signal in _WANTED else np.full(len(columns), np.nan)


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
        "still": signals.column("cpu", "still"),
    }
    told = {"time": SAMPLED_TIME, "interval": SAMPLED_INTERVAL, "cover": SAMPLED_COVER, "unsure": UNSURE}
    for what, names in told.items():
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


def _behind(signals: _Signals, targets: pa.Table) -> FloatArray:
    """(n,) seconds by which samples of usage are behind those of traffic now and in the last cycle; 0 if unsteady.

    Traffic has the time of its scrape, usage often the kubelet's. If usage keeps coming as late, that clock is behind.
    """
    used, now = (signals.column(name) for name in TIMES)
    used_before, before = (floats(targets, _LAST[name]) for name in TIMES)
    late, late_before = now - used, before - used_before
    steady = (used > used_before) & (np.abs(late - late_before) <= signals.column("cpu", "interval"))
    return np.where(steady, np.fmax(np.fmin(late, late_before), 0.0), 0.0)


def _coalesced(first: FloatArray, second: FloatArray | np.float64) -> FloatArray:
    return np.where(np.isnan(first), second, first)
