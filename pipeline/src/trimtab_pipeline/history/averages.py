"""Averages of past cycles, computed from the demand that the history holds, by the rule of `transform.averages`."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa
import pyarrow.compute as pc

from trimtab_pipeline.columns import BUNDLE_STATE, TRAFFIC
from trimtab_pipeline.transform.averages import AveragingSettings, BySamples, ByTime, horizon, next_state, remembered

HORIZON = horizon(3600.0)
"""Seconds before a cycle whose demand counts in its averages."""


def averages_at(cycles: Iterable[tuple[float, pa.Table, pa.Table]]) -> pa.Table:
    """`BUNDLE_STATE` after `cycles`: (evaluation time, rows of `DEMAND`, rows of `BROKERS`) of each, oldest first."""
    state = BUNDLE_STATE.empty_table()
    for at, demand, brokers in cycles:
        measured = next_state(_fresh(at, demand, brokers), state, _rule(brokers))
        state = remembered(measured, state, at - HORIZON)
    return state


def _rule(brokers: pa.Table) -> AveragingSettings:
    short, long = (pc.max(brokers[name]).as_py() for name in ("short_tau", "long_tau"))
    return BySamples() if short is None or long is None else ByTime(short, long)


def _fresh(at: float, demand: pa.Table, brokers: pa.Table) -> pa.Table:
    """The demand in the columns of a measurement. A sample is as old as its pod's own traffic, from the same scrape."""
    row = pc.index_in(demand["pod"], value_set=brokers["pod"])
    time = pc.min_element_wise(pc.coalesce(brokers["traffic_time"].take(row), at), at)
    columns = {name: demand[name].cast(pa.float64()) for name in (*TRAFFIC, "topics", "sessions")}
    columns["producers"] = columns.pop("sessions")
    nothing, now = (pa.repeat(value, len(demand)) for value in (0.0, at))
    return pa.table(
        {"bundle": demand["bundle"], "pod": demand["pod"], **columns, "consumers": nothing, "at": now, "time": time}
    ).combine_chunks()
