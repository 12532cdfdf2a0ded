"""Computes the state of each bundle after a cycle from new samples and the last state.

Averages are exponential in time. A sample that is `dt` seconds newer than the last one gets the weight
``alpha = 1 - exp(-dt / tau)``, so a missed cycle, a restart or another interval needs no special case. `dt` is the
difference of the samples' timestamps: when Prometheus repeats its newest sample, the weight is 0. The first average is
the first sample, and the nth sample has at least the weight ``1 / n``; otherwise the first sample would determine the
long average for an hour. If a signal of a sample is unknown, the sample changes no average, so all averages of a bundle
have the same age.

Pulsar counts samples instead (10 short, 1000 long), so its averages depend on how often they are recomputed. Use
averages by samples to get Pulsar's decisions: they add one sample per cycle and ignore timestamps. A new bundle begins
with Pulsar's default statistics as its first sample; its first measured sample is the second.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from trimtab_pipeline.columns import BUNDLE_STATE, LONG, SHORT, TRAFFIC
from trimtab_pipeline.transform.arrays import block, filled, floats, nullable, positions
from trimtab_pipeline.transform.relations import BUNDLE_LOAD, Cycle
from trimtab_strategies.model.cluster_load import FloatArray
from trimtab_strategies.usage import LONG_WINDOW, SHORT_WINDOW, UNSEEN


def averaged(bundles: pa.Table, times: pa.Table, state: pa.Table, cycle: Cycle) -> pa.Table:
    """`relations.BUNDLE_SUMS` and the last state (`columns.BUNDLE_STATE`) -> `relations.BUNDLE_LOAD`.

    All tables are those of one policy. times: `relations.POD_TIMES`. A bundle that was not measured keeps its averages
    for `cycle.horizon` seconds. Then it is dropped.
    """
    named = bundles["bundle"].is_valid()
    outside = bundles.filter(pc.invert(named)).select(["topics", *TRAFFIC, "sessions"])
    rest = filled(BUNDLE_LOAD, len(outside), {name: outside[name] for name in outside.column_names})
    measured = _measured(bundles.filter(named), times, state, cycle)
    return pa.concat_tables([measured, _remembered(bundles, state, cycle), rest])


@dataclass(frozen=True, slots=True)
class Before:
    """The last state of n bundles; NaN if unknown.

    short, long: (n, 4) averages. time: (n,) epoch s of the newest good sample. count: (n,) number of good samples.
    """

    short: FloatArray
    long: FloatArray
    time: FloatArray
    count: FloatArray


def _measured(bundles: pa.Table, times: pa.Table, state: pa.Table, cycle: Cycle) -> pa.Table:
    """The state after this cycle of the bundles that were measured."""
    last = _last(bundles, state)
    before = Before(block(last, SHORT), block(last, LONG), floats(last, "time"), floats(last, "count"))
    sample, time = block(bundles, TRAFFIC), _times(bundles, times, cycle.at)
    good = np.isfinite(sample.sum(axis=1))
    short, long = by_samples(before, sample) if cycle.by_samples else by_time(before, sample, time, cycle)
    columns = {
        **{name: bundles[name] for name in ("bundle", "pod", *TRAFFIC)},
        **{name: pc.coalesce(bundles[name], last[name]) for name in ("topics", "sessions")},
        "seen": pa.repeat(cycle.at, len(bundles)),
        "time": nullable(np.where(good, np.fmax(time, before.time), before.time)),
        "count": nullable(np.where(good, counted(before.count, LONG_WINDOW), before.count)),
    }
    for names, new, old in ((SHORT, short, before.short), (LONG, long, before.long)):
        kept = np.where(good[:, None], new, old)
        columns |= {name: nullable(kept[:, k]) for k, name in enumerate(names)}
    return filled(BUNDLE_LOAD, len(bundles), columns)


def _last(bundles: pa.Table, state: pa.Table) -> pa.Table:
    """The last state of each of `bundles`, null where there is none."""
    found = pc.index_in(bundles["bundle"], value_set=state["bundle"])
    return state.select(["topics", "sessions", *SHORT, *LONG, "time", "count"]).take(found)


def _times(bundles: pa.Table, times: pa.Table, at: float) -> FloatArray:
    """(n,) epoch seconds of the bundles' samples: those of their pod's own traffic, which comes from the same scrape.

    Prometheus returns samples up to 5 minutes old. A sample from the future counts as one of `at`.
    """
    known = np.append(floats(times, "traffic_time"), np.nan)[positions(bundles["pod"], times["pod"])]
    capped: FloatArray = np.fmin(known, at)
    return capped


def _remembered(bundles: pa.Table, state: pa.Table, cycle: Cycle) -> pa.Table:
    """The last state of the bundles that are not measured now, but were within the horizon."""
    kept = pc.and_(
        pc.invert(pc.is_in(state["bundle"], value_set=bundles["bundle"])),
        pc.greater_equal(state["seen"], cycle.at - cycle.horizon),
    )
    last = state.filter(kept)
    return filled(BUNDLE_LOAD, len(last), {name: last[name] for name in BUNDLE_STATE.names if name not in TRAFFIC})


def by_time(before: Before, sample: FloatArray, time: FloatArray, cycle: Cycle) -> tuple[FloatArray, FloatArray]:
    """The short and long averages (n, 4) with the `sample` (n, 4) of `time` (n,) added, by the cycle's constants."""
    passed = np.fmax(time - before.time, 0.0)
    measured = counted(before.count, LONG_WINDOW) - 1.0  # Pulsar's initial default statistics do not count
    least = np.where((passed > 0.0) & (measured < LONG_WINDOW - 1.0), 1.0 / measured, 0.0)
    if len(passed) and passed.min() == passed.max():  # usual: Prometheus aligns the times of scrapes
        passed = passed[:1]
    short, long = (
        _moved(old, sample, np.fmax(-np.expm1(-passed / tau), least))
        for old, tau in ((before.short, cycle.short_tau), (before.long, cycle.long_tau))
    )
    return short, long


def _moved(old: FloatArray, sample: FloatArray, alpha: FloatArray) -> FloatArray:
    """Averages `old` (n, 4), moved by the share `alpha` (n,) towards `sample` (n, 4); the sample where `old` is NaN."""
    moved = sample - old
    moved *= alpha[:, None]
    moved += old
    unknown = np.isnan(old)
    return np.where(unknown, sample, moved) if unknown.any() else moved


def by_samples(before: Before, sample: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Pulsar's averages (n, 4) with the `sample` (n, 4) added: all samples weigh the same until the window is full."""
    return _step(before.short, sample, counted(before.count, SHORT_WINDOW)), _step(
        before.long, sample, counted(before.count, LONG_WINDOW)
    )


def _step(old: FloatArray, sample: FloatArray, count: FloatArray) -> FloatArray:
    known, count = np.where(np.isnan(old), UNSEEN, old), count[:, None]
    step: FloatArray = ((count - 1.0) * known + sample) / count
    return step


def counted(count: FloatArray, window: int) -> FloatArray:
    """The number of samples in the window with the new one added. The default statistics are the first sample."""
    return np.minimum(np.where(np.isnan(count), 1.0, count) + 1.0, float(window))
