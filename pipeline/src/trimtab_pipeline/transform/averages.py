"""The state of each bundle after a cycle: new samples joined with the last state, as columns.

The join runs in the task that measured the bundles, on Arrow and numpy, so only the next state goes through the JVM
(`docs/decisions/0012-spark-tasks-join-and-average.md`). Tasks skip bundles that were not measured; `remembered` carries
them over afterwards.

Averages are exponential in time. A sample that is `dt` seconds newer than the last one gets the weight
``alpha = 1 - exp(-dt / tau)``, so a missed cycle, a restart or another interval needs no special case. `dt` is the
difference of the samples' timestamps: when Prometheus repeats its newest sample, the weight is 0. The first average is
the first sample, and the nth sample has at least the weight ``1 / n``; otherwise the first sample would determine the
long average for an hour.

Pulsar counts samples instead (10 short, 1000 long), so its averages depend on how often they are recomputed. Use
`BySamples` to get Pulsar's decisions: it adds one sample per cycle and ignores timestamps. A new bundle begins with
Pulsar's default statistics as its first sample; the measured one is the second.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from trimtab_pipeline.columns import BUNDLE_STATE, LONG, SHORT, TRAFFIC
from trimtab_pipeline.history.files import State, read_state
from trimtab_strategies.model.cluster_load import FloatArray
from trimtab_strategies.usage import LONG_WINDOW, SHORT_WINDOW, UNSEEN

_HORIZON = 3.0  # long time constants after which a state no longer matters


_NEEDED = (
    "bundle",
    "topics",
    "sessions",
    *SHORT,
    *LONG,
    "time",
    "count",
)  # columns of the state that a new measurement replaces


def horizon(long_tau: float) -> float:
    """Seconds after which a state, or a bundle that is no longer measured, is dropped."""
    return _HORIZON * long_tau


@dataclass(frozen=True, slots=True)
class Before:
    """The last state of n bundles, NaN unknown: (n, 4) averages, (n,) time (epoch s) of the newest valid sample,
    (n,) number of valid samples."""

    short: FloatArray
    long: FloatArray
    time: FloatArray
    count: FloatArray


class AveragingSettings(Protocol):
    """The rule by which a sample changes the averages."""

    def after(self, before: Before, sample: FloatArray, time: FloatArray) -> tuple[FloatArray, FloatArray]:
        """The short and long averages (n, 4) with the `sample` (n, 4) of `time` (n,) added; unchanged where it is
        NaN."""


@dataclass(frozen=True, slots=True)
class ByTime:
    """Exponential averages with these time constants (seconds)."""

    short_tau: float
    long_tau: float

    def after(self, before: Before, sample: FloatArray, time: FloatArray) -> tuple[FloatArray, FloatArray]:
        """See `AveragingSettings.after`."""
        passed = np.fmax(time - before.time, 0.0)
        measured = counted(before.count, LONG_WINDOW) - 1.0  # Pulsar's initial default statistics do not count
        least = np.where((passed > 0.0) & (measured < LONG_WINDOW - 1.0), 1.0 / measured, 0.0)
        alphas = (np.fmax(-np.expm1(-passed / tau), least)[:, None] for tau in (self.short_tau, self.long_tau))
        short, long = (
            _first_known(old + alpha * (sample - old), sample, old)
            for old, alpha in zip((before.short, before.long), alphas, strict=True)
        )
        return short, long


@dataclass(frozen=True, slots=True)
class BySamples:
    """Pulsar's averages: all samples have the same weight until there are as many as the window holds."""

    def after(self, before: Before, sample: FloatArray, time: FloatArray) -> tuple[FloatArray, FloatArray]:  # noqa: ARG002  (not by time)
        """See `AveragingSettings.after`."""
        return self._step(before.short, sample, counted(before.count, SHORT_WINDOW)), self._step(
            before.long, sample, counted(before.count, LONG_WINDOW)
        )

    def _step(self, old: FloatArray, sample: FloatArray, count: FloatArray) -> FloatArray:
        known, count = np.where(np.isnan(old), UNSEEN, old), count[:, None]
        return _first_known(((count - 1.0) * known + sample) / count, old)


def counted(count: FloatArray, window: int) -> FloatArray:
    """The number of samples in the window with the new one added. The default statistics are the first sample."""
    return np.minimum(np.where(np.isnan(count), 1.0, count) + 1.0, float(window))


def next_state(fresh: pa.RecordBatch, state: State, averages: AveragingSettings) -> pa.Table:
    """The rows of `fresh` (columns of `queries.BUNDLES`, ``at``, ``time``) as `BUNDLE_STATE`; `state`: that of the last
    cycle.

    Raises `OSError` or `pyarrow.ArrowException` when the file of the state can't be read.
    """
    last = read_state(state, _NEEDED)
    last = last.take(pc.index_in(fresh["bundle"], value_set=last["bundle"]))
    before = Before(_block(last, SHORT), _block(last, LONG), _values(last["time"]), _values(last["count"]))
    sample, time = _block(fresh, TRAFFIC), _values(fresh["time"])
    good = ~np.isnan(sample).any(axis=1)
    short, long = averages.after(before, sample, time)
    sessions = pc.add(fresh["producers"], fresh["consumers"])
    columns = {
        **{name: fresh[name] for name in ("bundle", "pod", *TRAFFIC)},
        "topics": pc.coalesce(fresh["topics"], last["topics"].combine_chunks()),
        "sessions": pc.coalesce(sessions, last["sessions"].combine_chunks()),
        **{name: _nullable(short[:, k]) for k, name in enumerate(SHORT)},
        **{name: _nullable(long[:, k]) for k, name in enumerate(LONG)},
        "seen": fresh["at"],
        "time": _nullable(np.where(good, np.fmax(time, before.time), before.time)),
        "count": _nullable(np.where(good, counted(before.count, LONG_WINDOW), before.count)),
    }
    return pa.table(columns, schema=BUNDLE_STATE)


def remembered(measured: pa.Table, state: State, not_before: float) -> pa.Table:
    """The rows of `measured` (`BUNDLE_STATE`), and the last `state` of all bundles that it lacks.

    Bundles that were last measured before `not_before` (epoch s) are dropped.
    """
    names = read_state(state, ["bundle", "seen"])
    others = pc.and_(
        pc.invert(pc.is_in(names["bundle"], value_set=measured["bundle"])),
        pc.greater_equal(names["seen"], not_before),
    )
    if not pc.any(others).as_py():
        return measured
    kept = read_state(state, BUNDLE_STATE.names).filter(others)
    for name in TRAFFIC:
        kept = kept.set_column(kept.column_names.index(name), name, pa.nulls(len(kept), pa.float64()))
    return pa.concat_tables([measured, kept.cast(BUNDLE_STATE)])


def _first_known(*choices: FloatArray) -> FloatArray:
    """For each element, the first of the choices that is not NaN."""
    found = choices[0]
    for choice in choices[1:]:
        found = np.where(np.isnan(found), choice, found)
    return found


def _block(table: pa.Table | pa.RecordBatch, names: Iterable[str]) -> FloatArray:
    return np.stack([_values(table[name]) for name in names], axis=1)


def _values(column: pa.Array | pa.ChunkedArray) -> FloatArray:
    """Values, NaN where one is null."""
    whole = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    values: FloatArray = whole.to_numpy(zero_copy_only=False)
    return values


def _nullable(values: FloatArray) -> pa.DoubleArray:
    return pa.array(values, from_pandas=True)
