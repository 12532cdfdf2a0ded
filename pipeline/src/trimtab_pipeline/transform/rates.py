"""Computes values from raw samples: the newest value of a gauge, the rate of a counter, and the time that was covered.

`rate()` of PromQL divides by the whole window, even if only part of
it has samples. A broker whose samples stop or restart then looks idle. Here an increase is divided by the time that the
samples cover, and that time is reported.

A *pair* is two consecutive samples of a series. It covers the time between them, unless

- the samples are further apart than the window: too little is known of the time between them;
- the counter was reset between them, or may have been: its later value is so small that a new process can have
  counted that far;
- it is the only pair of its series: without another pair it is not known how fast the process counts, so the pair may
  hide a reset.

A value may be older than its sample: a store that merges replicas returns late values, some exporters renew theirs
less often than they are scraped. Such a counter falls a little, or repeats a value while it counts. No such fall is a
reset; a 32-bit counter that wraps is not reset, either. `uneven.Uneven` has the rate of such a series, and how unsure
it is.

The window of a rate ends at the newest sample of the series. A pair that reaches into the window counts as a whole, so
samples at any interval up to half the window cover it, even if some are missing.

A signal is the sum over its parts (network interfaces, cores). If a part has several series, only the series with
the newest sample is used. A part is left out unless its newest sample is as new as the newest of the signal.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from trimtab_pipeline.transform.arrays import filled, floats, masked, nullable, texts
from trimtab_pipeline.transform.relations import SIGNALS, Cycle
from trimtab_pipeline.transform.uneven import Uneven
from trimtab_strategies.model.cluster_load import BoolArray, FloatArray, IntArray

ENOUGH = 0.75
"""Ratio of the window: samples that cover less give no rate."""
_NEAR = 1.1
"""Number of intervals that `rate()` bridges at the window's ends."""
_APART = 2.0
"""Multiple of the usual interval: a longer time between samples means that samples are missing."""
_YOUNG = 1.2
"""A pair has no hidden reset if the counter is above this multiple of (its fastest rate times the pair's duration)."""
_LITTLE = 0.8
"""Ratio of a counter's value before: a fall to less is a reset."""
_JITTER = 1.05
"""Multiple of the window that a pair may last: one scrape is missing if they come twice in a window."""
_PAIR = 2.0  # samples
_WRAP = 2.0**32
_FASTER = 1.5  # ratio of the highest rate of other pairs above which a fall of a counter of 32 bits is no wrap
_WRAPS = 0.3
"""Ratio of the pairs: a counter that wraps in more of them may wrap more than once between samples."""
_NETWORK = ("network_in", "network_out")
_KEYS = ("pod", "signal", "kind", "part", "series")
_RAW = ("counter", "gauge")


Columns = dict[str, Any]
"""Arrays of equal length: numbers (NaN if unknown), and in ``code`` the integers of `_Keys`."""


def broker_signals(samples: pa.Table, cycle: Cycle) -> pa.Table:
    """`columns.BROKER_SAMPLES` of one or more shards, without reports -> `relations.SIGNALS`."""
    if not len(samples):
        return SIGNALS.empty_table()
    keys = _Keys(samples)
    return _signals(_shown(_counted_parts(_measured(_series(keys, samples, cycle), keys, cycle), keys), keys), keys)


class _Keys:
    """Integer codes for the keys of samples: pod, signal, kind, part, series. They sort as the texts do."""

    def __init__(self, points: pa.Table) -> None:
        self._names, codes = zip(*(_ranked(points[name]) for name in _KEYS), strict=True)
        self._sizes = [len(names) for names in self._names]
        self.code = np.zeros(len(points), np.int64)
        for code, size in zip(codes, self._sizes, strict=True):
            self.code = self.code * size + code

    def upto(self, name: str, code: IntArray) -> IntArray:
        """The codes of the keys up to `name` only. They are equal where those keys are equal."""
        dropped: IntArray = code // int(np.prod(self._sizes[_KEYS.index(name) + 1 :], dtype=np.int64))
        return dropped

    def texts(self, name: str, code: IntArray) -> npt.NDArray[np.object_]:
        """(n,) texts of the key `name`."""
        at = _KEYS.index(name)
        texts: npt.NDArray[np.object_] = self._names[at][self.upto(name, code) % self._sizes[at]]
        return texts


def _ranked(column: pa.ChunkedArray) -> tuple[npt.NDArray[np.object_], IntArray]:
    """The sorted texts of a column, and (n,) the row of each value among them."""
    encoded = column.combine_chunks().dictionary_encode()
    names = np.array(encoded.dictionary.to_pylist(), object)
    order = np.argsort(names)
    rank = np.empty(len(names), np.int64)
    rank[order] = np.arange(len(names))
    return names[order], rank[encoded.indices.to_numpy()]


class _Groups:
    """Groups of successive rows with equal codes. begin, end: (g,) first and last row of each group."""

    def __init__(self, code: IntArray) -> None:
        changed = np.append(True, np.diff(code) != 0)
        self.begin = np.flatnonzero(changed)
        self.end = np.append(self.begin[1:], len(code)) - 1
        self.group: IntArray = np.cumsum(changed) - 1

    def low(self, values: FloatArray) -> FloatArray:
        """(g,) the lowest of the known values."""
        low: FloatArray = np.fmin.reduceat(values, self.begin)
        return low

    def high(self, values: FloatArray) -> FloatArray:
        """(g,) the highest of the known values."""
        high: FloatArray = np.fmax.reduceat(values, self.begin)
        return high

    def sum(self, values: FloatArray | BoolArray) -> FloatArray:
        """(g,) the sum of all values, or the number of true ones."""
        total: FloatArray = np.add.reduceat(values.astype(np.float64), self.begin)
        return total

    def median(self, values: FloatArray) -> FloatArray:
        """(g,) the median of the known values."""
        ordered = values[np.lexsort((values, self.group))]  # unknown ones last
        known = self.sum(~np.isnan(values)).astype(np.int64)
        low, high = (self.begin + np.maximum(known - shift, 0) // 2 for shift in (1, 0))
        return masked((ordered[low] + ordered[high]) / 2, known > 0)


def _series(keys: _Keys, points: pa.Table, cycle: Cycle) -> Columns:
    """A row per series, with the sums over its pairs."""
    order = np.lexsort((floats(points, "time"), keys.code))
    code, time, value = keys.code[order], floats(points, "time")[order], floats(points, "value")[order]
    each = _Groups(code)
    value = masked(value, np.isfinite(value))
    step, gained = (np.diff(column, prepend=np.nan) for column in (time, value))
    step[each.begin] = gained[each.begin] = np.nan
    value, gained = _unwrapped(value, gained, step, each, np.isin(keys.texts("signal", code), _NETWORK))
    newest, recent = each.high(time), time > cycle.at - cycle.window
    inside = time > (newest - cycle.window)[each.group]
    joined = step <= _JITTER * cycle.window
    fastest = each.high(np.divide(gained, step, out=np.full(len(step), np.nan), where=joined & (step > 0)))
    old = value >= _YOUNG * np.fmax(fastest, 0.0)[each.group] * step
    little = (gained < 0) & (value > _LITTLE * (value - gained)) & old
    whole = (gained >= 0) & old
    compared = (each.sum(joined) > 1)[each.group]
    covers = inside & joined & compared & (whole | np.isnan(gained))
    found = {
        "code": code[each.begin],
        "time": newest,
        "begin": each.low(time),
        "last": np.where(np.isnan(newest), each.high(value), value[each.end]),
        "interval": np.fmin(each.high(step), _APART * each.median(step)),
        "cover": each.sum(np.where(covers, step, 0.0)),
        "gained": each.sum(np.where(covers, gained, 0.0)),  # NaN if a value in the window is NaN
        "samples": np.fmax(each.sum(inside), np.where(each.sum(covers) > 0, _PAIR, 0.0)),
        "resets": each.sum(inside & (gained < 0) & ~little),
        "recent": each.sum(recent),
        "recent_begin": each.low(masked(time, recent)),
        "unsure": np.zeros(len(newest)),
        "still": np.zeros(len(newest)),
    }
    counts = keys.texts("kind", code[each.begin]) == "counter"
    repeats = counts & (each.sum(little | (gained == 0)) > 0)
    for row in np.flatnonzero(repeats & (each.sum(np.isnan(value)) == 0) & (each.high(step) > 0)):
        rows = slice(each.begin[row], each.end[row] + 1)
        broken = np.flatnonzero(~(whole | little)[rows] | ~joined[rows])
        begin = rows.start + int(broken[-1])
        if each.end[row] - begin > 1:
            one = Uneven.of(time[begin : rows.stop], value[begin : rows.stop], cycle.window)
            for name in ("still",) if one.still else ("cover", "gained", "unsure"):
                found[name][row] = getattr(one, name)
    return found


def _unwrapped(
    value: FloatArray, gained: FloatArray, step: FloatArray, each: _Groups, network: BoolArray
) -> tuple[FloatArray, FloatArray]:
    """`value` and `gained` as if no counter of 32 bits had wrapped; NaN in a series that wraps too often.

    A fall is a restart if a wrap would mean a much higher rate than that of all other pairs. step: seconds.
    """
    small = (each.high(value) < _WRAP)[each.group] & network
    wraps = small & (value - gained > _WRAP / 2) & (gained < -_WRAP / 2)
    if not wraps.any():
        return value, gained
    rate = np.divide(gained, step, out=np.full(len(step), np.nan), where=(step > 0) & (gained >= 0))
    wraps &= ~(gained + _WRAP > _FASTER * step * each.high(rate)[each.group])
    times = np.cumsum(wraps)
    often = each.sum(wraps) > np.maximum(_WRAPS * (each.end - each.begin), 1.0)
    right, value = ~often[each.group], value + _WRAP * (times - times[each.begin][each.group])
    return masked(value, right), masked(gained + _WRAP * wraps, right)


def _measured(series: Columns, keys: _Keys, cycle: Cycle) -> Columns:
    """The series with their ``value`` and ``cover``."""
    kind, last = keys.texts("kind", series["code"]), masked(series["last"], series["last"] >= 0)
    cover = series["cover"]
    rate = np.divide(series["gained"], cover, out=np.full(len(cover), np.nan), where=cover > 0)
    of_kind = {
        "counter": masked(rate, ~np.isnan(last)),
        "gauge": last,
        "value": last,
    }
    value = np.select([kind == name for name in of_kind], list(of_kind.values()), np.nan)
    covers = {"counter": cover, "rated": _rated(series, cycle)}
    cover = np.select([kind == name for name in covers], list(covers.values()), np.nan)
    return series | {"value": value, "cover": cover}


def _rated(series: Columns, cycle: Cycle) -> FloatArray:
    """(n,) seconds of the window that `rate()` covers at the evaluation time.

    `rate()` extends an increase to the ends of the window. If an end is further away than 1.1 intervals, it extends the
    increase by half an interval.
    """
    begin, enough = series["recent_begin"], series["recent"] > 1
    between = series["time"] - begin
    usual = between / np.fmax(series["recent"] - 1, 1.0)
    ends = (begin - (cycle.at - cycle.window), cycle.at - series["time"])
    bridged = [np.where(end < _NEAR * usual, end, usual / 2) for end in ends]
    return np.where(enough, between + bridged[0] + bridged[1], 0.0)


def _counted_parts(series: Columns, keys: _Keys) -> Columns:
    """For each part, the series with the newest sample (on a tie, the highest value), and the number of ``copies``."""
    part = keys.upto("part", series["code"])
    value, time = np.nan_to_num(series["value"], nan=-1.0), np.nan_to_num(series["time"], nan=-np.inf)
    order = np.lexsort((series["code"], value, time, part))
    ordered, each = _taken(series, order), _Groups(part[order])
    one = _taken(ordered, each.end)
    # A series that ended before the chosen one began is no copy.
    copies = each.sum(ordered["time"] > one["begin"][each.group])
    return one | {"copies": np.fmax(copies, 1.0)}


def _shown(parts: Columns, keys: _Keys) -> Columns:
    """The parts with the newest samples. For some minutes, Prometheus also returns samples of parts that are gone."""
    each = _Groups(keys.upto("kind", parts["code"]))
    newest = each.high(parts["time"])[each.group]
    current = np.isnan(parts["time"]) | (parts["time"] == newest)
    return _taken(parts, np.flatnonzero(current))


def _signals(parts: Columns, keys: _Keys) -> pa.Table:
    """`relations.SIGNALS`, whose values are the sums of the parts."""
    code, kind = parts["code"], keys.texts("kind", parts["code"])
    each, raw, counter = _Groups(keys.upto("signal", code)), np.isin(kind, _RAW), kind == "counter"
    unknown = each.sum(counter) == 0
    columns = {
        "value": masked(each.sum(np.where(kind == "rated", 0.0, parts["value"])), each.sum(kind != "rated") > 0),
        "time": each.high(parts["time"]),
        "interval": each.high(parts["interval"]),
        "cover": each.low(parts["cover"]),
        "unsure": masked(each.sum(np.where(counter, parts["unsure"], 0.0)), ~unknown),
        "still": masked(each.low(np.where(counter, parts["still"], np.inf)), ~unknown),
        "samples": each.low(masked(parts["samples"], raw)),
        "resets": masked(each.sum(np.where(counter, parts["resets"], 0.0)), ~unknown),
        "copies": each.high(masked(parts["copies"], raw)),
    }
    named = {name: texts(keys.texts(name, code[each.begin])) for name in ("pod", "signal")}
    return filled(SIGNALS, len(each.begin), named | {name: nullable(column) for name, column in columns.items()})


def _taken(columns: Columns, rows: IntArray) -> Columns:
    return {name: column[rows] for name, column in columns.items()}
