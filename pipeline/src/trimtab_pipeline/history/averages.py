"""Averages of past cycles, computed from the demand in the history, by the rule of `transform.averages`."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
import pyarrow as pa

from trimtab_pipeline.api import PrometheusSettings
from trimtab_pipeline.columns import BUNDLE_STATE
from trimtab_pipeline.transform.arrays import filled, floats
from trimtab_pipeline.transform.averages import averaged
from trimtab_pipeline.transform.relations import BUNDLE_SUMS, POD_TIMES, Cycle, horizon

HORIZON = horizon(3600.0)
"""The averages of a cycle include the demand of this many seconds before it."""


def averages_at(cycles: Iterable[tuple[float, pa.Table, pa.Table]]) -> pa.Table:
    """`BUNDLE_STATE` after `cycles`: (evaluation time, rows of `DEMAND`, rows of `BROKERS`) of each, oldest first."""
    state = BUNDLE_STATE.empty_table()
    for at, demand, brokers in cycles:
        measured = filled(BUNDLE_SUMS, len(demand), {name: demand[name] for name in BUNDLE_SUMS.names[:-1]})
        # a bundle's sample is as old as its pod's traffic, because both come from one scrape
        times = filled(POD_TIMES, len(brokers), {name: brokers[name] for name in ("pod", "traffic_time")})
        state = averaged(measured, times, state, cycle_of(brokers, at))
    return state


def cycle_of(brokers: pa.Table, at: float) -> Cycle:
    """The cycle at `at`. If `short_tau` or `long_tau` of `brokers` is null, its averages count samples, as Pulsar's."""
    short, long, age = (
        float(np.fmax.reduce(floats(brokers, name), initial=np.nan)) for name in ("short_tau", "long_tau", "max_age")
    )
    by_samples = math.isnan(short) or math.isnan(long)
    rule = {"averages": "samples"} if by_samples else {"short_tau": short, "long_tau": long}
    return Cycle.of("", PrometheusSettings("", "", max_age=math.inf if math.isnan(age) else age, **rule), at)
