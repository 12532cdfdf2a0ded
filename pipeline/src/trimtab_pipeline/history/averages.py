"""Averages of past cycles, computed from the demand in the history, by the rule of `transform.averages`."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
import pyarrow as pa

from trimtab_pipeline.api import PrometheusSettings
from trimtab_pipeline.columns import BUNDLE_SAMPLES, BUNDLE_STATE, TRAFFIC
from trimtab_pipeline.transform.arrays import floats
from trimtab_pipeline.transform.averages import averaged
from trimtab_pipeline.transform.relations import POD_TIMES, STATE, Cycle, horizon

HORIZON = horizon(3600.0)
"""The averages of a cycle include the demand of this many seconds before it."""


def averages_at(cycles: Iterable[tuple[float, pa.Table, pa.Table]]) -> pa.Table:
    """`BUNDLE_STATE` after `cycles`: (evaluation time, rows of `DEMAND`, rows of `BROKERS`) of each, oldest first."""
    state = STATE.empty_table()
    for at, demand, brokers in cycles:
        state = averaged(_samples(demand), _times(brokers), state, cycle_of(brokers, at)).select(STATE.names)
    return state.select(BUNDLE_STATE.names)


def cycle_of(brokers: pa.Table, at: float) -> Cycle:
    """The cycle at `at`. If `short_tau` or `long_tau` of `brokers` is null, its averages count samples, as Pulsar's."""
    short, long, age = (
        float(np.fmax.reduce(floats(brokers, name), initial=np.nan)) for name in ("short_tau", "long_tau", "max_age")
    )
    by_samples = math.isnan(short) or math.isnan(long)
    rule = {"averages": "samples"} if by_samples else {"short_tau": short, "long_tau": long}
    return Cycle.of("", PrometheusSettings("", "", max_age=math.inf if math.isnan(age) else age, **rule), at)


def _samples(demand: pa.Table) -> pa.Table:
    """The demand as a measurement. All sessions become producers: only the sum of producers and consumers counts."""
    columns = {name: demand[name] for name in ("bundle", "pod", *TRAFFIC, "topics")} | {"producers": demand["sessions"]}
    columns["consumers"] = pa.repeat(0.0, len(demand))
    missing = {field.name: pa.nulls(len(demand), field.type) for field in BUNDLE_SAMPLES if field.name not in columns}
    everything = columns | missing | {"policy": pa.repeat("", len(demand))}
    return pa.table({name: everything[name] for name in BUNDLE_SAMPLES.names}).cast(BUNDLE_SAMPLES)


def _times(brokers: pa.Table) -> pa.Table:
    """The times of the pods' traffic. A bundle's sample is as old as its pod's, because both come from one scrape."""
    rows = len(brokers)
    columns = {
        "policy": pa.repeat("", rows),
        "shard": pa.nulls(rows, pa.int32()),
        "pod": brokers["pod"],
        "traffic_time": brokers["traffic_time"],
        "young": pa.nulls(rows, pa.bool_()),
    }
    return pa.table(columns).cast(POD_TIMES)
