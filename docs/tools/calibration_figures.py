"""Figures of the calibration: docs/data/calibration.json, and what it says about the lab's constants."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from page_text import ROOT

from trimtab_lab.simulation import Scenario, load
from trimtab_lab.simulation.events import Crowd
from trimtab_lab.simulation.realism import Reconnect
from trimtab_lab.simulation.world import CORE
from trimtab_strategies.model.cluster_load import BoolArray, FloatArray, IntArray

DATA = ROOT / "docs" / "data" / "calibration.json"
PREDICTIONS = DATA.with_name("prediction.json")
SCENARIO = ROOT / "benchmarks" / "calibration.yaml"

REAL_STEP, LAB_STEP = 10.0, 60.0
"""Seconds of a step in each trace."""

FULL = 90.0
"""CPU, percent. From here on a broker may be at its limit: its CPU then says nothing about its work."""

_P95 = 1.645
"""Standard deviations from the median to the 95th percentile."""


@cache
def data() -> Mapping[str, Any]:
    """The recorded file, with both traces."""
    found: Mapping[str, Any] = json.loads(DATA.read_text())
    return found


@cache
def predictions() -> Mapping[str, Any]:
    """The results of `benchmarks/prediction.py`."""
    found: Mapping[str, Any] = json.loads(PREDICTIONS.read_text())
    return found


@cache
def scenario() -> Scenario:
    """The scenario of both traces."""
    return load(str(SCENARIO))


def values(rows: Sequence[Sequence[float | None]]) -> FloatArray:
    """A trace (steps, brokers); NaN where nothing was measured."""
    return np.array([[np.nan if value is None else value for value in row] for row in rows])


def minutes(trace: FloatArray, step: float) -> FloatArray:
    """Means of each minute (minutes, brokers)."""
    each = round(60 / step)
    whole = trace[: len(trace) // each * each]
    return np.asarray(np.nanmean(whole.reshape(-1, each, trace.shape[1]), axis=1))


def change() -> int:
    """Minute in which one bundle grows."""
    return next(event.round for event in scenario().events if isinstance(event, Crowd))


@dataclass(frozen=True)
class Points:
    """Messages/s, CPU (percent) and row of a broker in a minute, (k,) each.

    grown: whether it serves the bundle that grew.
    """

    rates: FloatArray
    cpu: FloatArray
    brokers: IntArray
    grown: BoolArray


def points(traces: Mapping[str, Any]) -> Points:
    """Every minute of every real broker, except minutes with moves: clients then reconnect and catch up."""
    real = traces["real"]
    cpu, rates = (minutes(values(real[what]), REAL_STEP) for what in ("cpu", "rates"))
    moving = {int(move["at"] // 60) for move in real["moves"]}
    kept = [minute for minute in range(len(cpu)) if minute not in moving]
    brokers = np.tile(np.arange(cpu.shape[1]), len(kept))
    owners = np.repeat([_owner(traces, minute) for minute in kept], cpu.shape[1])
    late = np.repeat(np.array(kept) >= change(), cpu.shape[1])
    return Points(rates[kept].ravel(), cpu[kept].ravel(), brokers, late & (owners == brokers))


def _owner(traces: Mapping[str, Any], minute: int) -> int:
    """Row of the broker that serves the bundle that grows."""
    mine = [m for m in traces["real"]["moves"] if m["bundle"] == traces["grown"]["bundle"] and m["at"] < 60 * minute]
    return int(mine[-1]["target"]) if mine else 0


class CpuCurve(NamedTuple):
    """CPU of a broker: 100 x ((messages/s / full) ** exponent + idle) percent."""

    exponent: float
    idle: float
    full: float

    def percent(self, rates: FloatArray) -> FloatArray:
        """CPU (percent) at `rates` (messages/s)."""
        used: FloatArray = 100 * ((rates / self.full) ** self.exponent + self.idle)
        return used


def fitted(found: Points) -> CpuCurve:
    """The least-squares curve of brokers without the bundle that grew. Idle brokers show the CPU without load."""
    quiet = found.rates < 1
    idle = float(np.median(found.cpu[quiet])) / 100
    telling = ~quiet & ~found.grown & (found.cpu < FULL) & (found.cpu > 100 * idle + 1)
    rates, own = found.rates[telling], found.cpu[telling] / 100 - idle
    return min((_through(rates, own, exponent, idle) for exponent in np.arange(0.3, 1.01, 0.01)), key=lambda c: c[1])[0]


def _through(rates: FloatArray, own: FloatArray, exponent: float, idle: float) -> tuple[CpuCurve, float]:
    """The best curve for an exponent, and the sum of its squared errors."""
    shape = rates**exponent
    factor = float((shape * own).sum() / (shape**2).sum())
    error = float(((factor * shape - own) ** 2).sum())
    return CpuCurve(float(exponent), idle, factor ** (-1 / exponent)), error


def growth(traces: Mapping[str, Any]) -> float:
    """Exponent with which the work of the bundle that grew follows its messages; NaN if no minute shows it.

    The curve gives the work of a broker from its CPU. The broker's other bundles cost as much as before.
    """
    found, about = points(traces), traces["grown"]
    curve = fitted(found)
    work = curve.full * np.maximum(found.cpu / 100 - curve.idle, 0) ** (1 / curve.exponent)
    own = (work - (found.rates - about["after"]))[found.grown]
    ratios = np.maximum(own, 1e-9) / about["before"]
    if not len(own):
        return math.nan
    return float(np.log(np.median(ratios)) / np.log(about["after"] / about["before"]))


def added(curve: CpuCurve, exponent: float) -> float:
    """Points of CPU that the growth of a bundle adds to its broker, if its work follows its messages by `exponent`."""
    found, about = points(data()), data()["grown"]
    before = found.rates[found.grown] - about["after"] + about["before"]
    work = before + about["before"] * ((about["after"] / about["before"]) ** exponent - 1)
    return float(np.mean(curve.percent(work) - curve.percent(before)))


def lab_curve() -> CpuCurve:
    """The curve that the scenario gives the lab's brokers."""
    (machines,), (tenant,), batching = scenario().machines, scenario().tenants, scenario().realism.batching
    assert batching is not None, "the scenario asks for it"
    message, fanout = tenant.message, tenant.fanout
    assert isinstance(message, float), "one value for all bundles"
    assert isinstance(fanout, float), "one value for all bundles"
    full = machines.cores * machines.speed * CORE / (message * (1 + fanout))
    return CpuCurve(batching.exponent, batching.idle, full)


class Gaps(NamedTuple):
    """Seconds of a gap: median and 95th percentile."""

    median: float
    most: float


def real_gaps(kind: str = "publish") -> Gaps:
    """Gaps of all moves on real brokers, without the usual time between two messages. kind: publish or receive."""
    found = [max(0.0, move[kind] / 1000 - 1 / move["rate"]) for move in data()["real"]["moves"] if move[kind]]
    return Gaps(float(np.median(found)), float(np.quantile(found, 0.95)))


def lab_gaps() -> Gaps:
    """Gaps of the distribution that the lab draws them from."""
    given = scenario().realism.reconnect or Reconnect()
    return Gaps(given.gap, given.gap * math.exp(_P95 * given.spread))
