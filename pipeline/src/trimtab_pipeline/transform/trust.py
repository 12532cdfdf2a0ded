"""Trust in samples: the closed list of why samples are not used, and a verdict on each broker.

A broker is trusted when its part of the source answered, its newest samples are recent and not from the future, each
resource that this cluster measures is known, with its limit, and possible, and its samples neither stopped nor leave
too much of the window of a rate uncovered. Only the first problem is reported, as a code.

`judged` has the same rules as `sql/trust.sql`, in numpy. `doubts.py` has the text of each code.
"""

from __future__ import annotations

from enum import StrEnum

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from trimtab_pipeline.columns import SAMPLED_COVER, SAMPLED_INTERVAL, SAMPLED_TIME, USAGE
from trimtab_pipeline.transform.arrays import block, floats
from trimtab_pipeline.transform.cycle import Cycle
from trimtab_pipeline.transform.rates import ENOUGH
from trimtab_pipeline.transform.relations import LIMITS
from trimtab_strategies.model.cluster_load import CPU, MEMORY, BoolArray, FloatArray

_LATE = 1.5  # intervals of a resource's own samples after which they have stopped
_BUSY = 5.0  # seconds by which a busy machine may be late, however short the intervals are
_BLIND = 3.0  # part of the window that may be without samples at its end, however short their intervals are


class Drop(StrEnum):
    """Why samples were not used, or were changed: the causes in `DataQuality.dropped`. The comments name the unit."""

    NAN = "NaN"  # samples that are not a number
    INFINITE = "Infinite"  # samples
    NEGATIVE = "Negative"  # negative samples of a quantity that can't be negative
    ABOVE_LIMIT = "AboveLimit"  # resources of brokers; used up to `Trust.above_limit`
    NO_LIMIT = "NoLimit"  # resources of brokers that have usage but no known limit
    DUPLICATE = "Duplicate"  # series, rows of bundles, or brokers on one pod, that are there more than once
    UNKNOWN = "Unknown"  # bundles or topics that no resource knows
    GAP = "Gap"  # brokers with too few samples for a rate
    RESET = "Reset"  # brokers whose counters were reset too often
    CLOCK_SKEW = "ClockSkew"  # brokers with samples from the future
    DISAPPEARED = "Disappeared"  # brokers that are no longer measured
    OUT_DATED = "OutDated"  # brokers and bundles whose newest sample is too old


def judged(loads: pa.Table, cycle: Cycle) -> pa.Table:
    """`relations.BROKER_LOAD` of one policy with the first doubt about each broker."""
    brokers = loads["broker"].is_valid()
    rows = loads.filter(brokers)
    codes = pa.array(_first(_doubts(rows, cycle), len(rows)), pa.string())
    reports = loads.filter(pc.invert(brokers))
    column = loads.column_names.index("doubt")
    return pa.concat_tables([rows.set_column(column, loads.schema.field("doubt"), codes), reports])


def measured_resources(usage: FloatArray, present: BoolArray) -> BoolArray:
    """(5,) resources that are measured anywhere: usage (n, 5) of the brokers that are `present` (n,).

    CPU and memory always count: if one is measured nowhere, no broker is trusted. Otherwise a full broker would look
    empty as soon as its memory is not measured.
    """
    measured: BoolArray = np.asarray(~np.isnan(usage[present]).all(axis=0))
    measured[[CPU, MEMORY]] = True
    return measured


def allowed_age(interval: FloatArray, window: float) -> FloatArray:
    """Seconds after which the samples of a resource with these intervals (seconds, NaN unknown) have stopped."""
    usual = np.where(np.isnan(interval), window / 2, interval)
    return np.fmax(_LATE * usual, max(window / _BLIND, _BUSY))


def _first(doubts: dict[str, BoolArray], count: int) -> list[str | None]:
    """The first doubt of each of `count` rows."""
    found: npt.NDArray[np.object_] = np.full(count, None, object)
    for code, rows in reversed(doubts.items()):
        found[rows] = code
    return found.tolist()  # type: ignore[no-any-return]


def _doubts(loads: pa.Table, cycle: Cycle) -> dict[str, BoolArray]:
    """(n,) mask of the brokers of each doubt, in the order in which they count."""
    answered, present = (loads[name].to_numpy().astype(bool) for name in ("answered", "present"))
    measured = np.flatnonzero(measured_resources(block(loads, USAGE), present)).tolist()
    doubts = _absent(loads, answered, present, cycle) | _oddly_sampled(loads, cycle)
    for column in measured:
        doubts |= _badly_covered(loads, column, cycle)
    for column in measured:
        doubts |= _impossible(loads, column, cycle)
    return doubts


def _absent(loads: pa.Table, answered: BoolArray, present: BoolArray, cycle: Cycle) -> dict[str, BoolArray]:
    """Brokers that did not answer, share a pod, were never measured, are no longer measured, or are too old."""
    age = floats(loads, "age")
    return {
        "partial": ~answered,
        "shared_pod": _sharing(loads["pod"]),
        "never": ~present & np.isnan(age),
        "gone": ~present,
        "time_unknown": np.isnan(age),
        "old": age > cycle.max_age,
    }


def _sharing(pods: pa.ChunkedArray) -> BoolArray:
    """Pods that several brokers name."""
    names = np.array(pods.to_pylist(), object)
    _, which, count = np.unique(names, return_inverse=True, return_counts=True)
    sharing: BoolArray = (count[which] > 1) & (names != "")
    return sharing


def _oddly_sampled(loads: pa.Table, cycle: Cycle) -> dict[str, BoolArray]:
    """Brokers whose samples are from the future, are reset all the time, or are too few."""
    samples = floats(loads, "samples")
    asked = not np.isnan(samples).all()  # without an answer no query was sent
    return {
        "ahead": floats(loads, "ahead") > 0,
        "resets": floats(loads, "resets") > cycle.max_resets,
        "few_samples": (np.nan_to_num(samples) < cycle.min_samples) & asked,
    }


def _badly_covered(loads: pa.Table, column: int, cycle: Cycle) -> dict[str, BoolArray]:
    """Brokers whose samples of the resource `column` stopped, or cover too little of the window for a rate."""
    age = np.maximum(cycle.at - floats(loads, SAMPLED_TIME[column]), 0.0)
    bound = allowed_age(floats(loads, SAMPLED_INTERVAL[column]), cycle.window)
    covered = floats(loads, SAMPLED_COVER[column])
    name = USAGE[column]
    return {f"stopped_{name}": age > bound, f"cover_{name}": covered < ENOUGH * cycle.window}


def _impossible(loads: pa.Table, column: int, cycle: Cycle) -> dict[str, BoolArray]:
    """Brokers whose usage of the resource `column` has no limit, is unknown, or is impossible."""
    usage, limit, name = floats(loads, USAGE[column]), floats(loads, LIMITS[column]), USAGE[column]
    return {
        f"no_limit_{name}": ~(limit > 0) & ~np.isnan(usage),
        f"unknown_{name}": np.isnan(usage),
        f"above_{name}": usage > cycle.above_limit * limit,
    }
