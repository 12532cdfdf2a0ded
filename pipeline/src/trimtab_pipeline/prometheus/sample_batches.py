"""Answers of Prometheus as record batches of raw samples, with impossible values counted."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from trimtab_pipeline.prometheus.queries import TOLD_APART, Series
from trimtab_pipeline.prometheus.samples import Samples
from trimtab_pipeline.transform.trust import Drop
from trimtab_strategies.model.cluster_load import FloatArray

_NAME = "__name__"
_CONTAINER = ("id", "name")
"""Labels by which the containers of a restarted pod differ."""
_WHOLE = {"cpu": "total"}
"""Value of a part's label in the series of all parts together."""
_PLAIN = ("", "-1")
"""Partition labels of topics without partitions."""
Metrics = Mapping[str, tuple[str, Series]]
"""The signal of each metric, and what is known of its series."""


@dataclass(frozen=True, slots=True)
class RawSeries:
    """One series of an answer: signal, kind, pod and part as in `BROKER_SAMPLES`.

    points: (k, 2) times and values, oldest first. container: the labels that tell containers of a pod apart.
    """

    signal: str
    kind: str
    pod: str
    part: str
    points: FloatArray
    container: tuple[str, ...] = ()

    @property
    def first(self) -> float:
        """Epoch seconds of its oldest sample."""
        return float(self.points[0, 0])

    @property
    def last(self) -> float:
        """Epoch seconds of its newest sample."""
        return float(self.points[-1, 0])

    def follows(self, other: RawSeries) -> bool:
        """Whether it began when the `other` had ended, or is of a later container: then the other is no copy of it."""
        return self.last > other.last and (other.last < self.first or self.container != other.container)


def raw_series(answer: Samples, metrics: Metrics) -> list[RawSeries]:
    """The series of an answer, without those that ended before another of the same thing began."""
    found: dict[tuple[str, ...], list[RawSeries]] = defaultdict(list)
    labels = {name: answer.label(name).to_pylist() for name in (_NAME, "pod", *_CONTAINER, "interface", "cpu")}
    for row, points in enumerate(answer.points):
        if (known := metrics.get(labels[_NAME][row])) is None:
            continue
        (signal, series), pod = known, labels["pod"][row]
        part = labels[series.part][row] if series.part else ""
        part = "" if part == _WHOLE.get(series.part) else part
        values = points if series.above is None else _above(points, series.above)
        container = tuple(labels[name][row] for name in _CONTAINER)
        found[signal, pod, part].append(RawSeries(signal, series.kind, pod, part, values, container))
    return [one for same in found.values() for one in _living(same)]


def rated_series(answer: Samples, signal: str) -> list[RawSeries]:
    """The series of the counter whose rate a user's query of `signal` takes."""
    pods = answer.label("pod").to_pylist()
    return [RawSeries(signal, "rated", pod, "", points) for pod, points in zip(pods, answer.points, strict=True)]


def _above(points: FloatArray, bound: float) -> FloatArray:
    """The points, NaN where the value is not above `bound`: the time counts, the value is unknown."""
    times, values = points.T
    return np.stack([times, np.where(values <= bound, np.nan, values)], axis=1)


def _living(same: Sequence[RawSeries]) -> list[RawSeries]:
    newest = max(same, key=lambda one: one.last)
    return [one for one in same if not newest.follows(one)]


def raw_rows(series: Sequence[RawSeries]) -> dict[str, pa.Array]:
    """Columns of `BROKER_SAMPLES`, a row for each point. Copies of a part are numbered."""
    numbers, count = Counter[tuple[str, str, str]](), list[str]()
    for one in series:
        count.append(str(numbers[one.signal, one.pod, one.part]))
        numbers[one.signal, one.pod, one.part] += 1
    row = pa.array(np.repeat(np.arange(len(series)), [len(one.points) for one in series]))
    points = np.concatenate([np.empty((0, 2)), *(one.points for one in series)])
    texts = {
        "pod": [one.pod for one in series],
        "signal": [one.signal for one in series],
        "kind": [one.kind for one in series],
        "part": [one.part for one in series],
        "series": count,
    }
    columns = {name: pa.array(values, pa.string()).take(row) for name, values in texts.items()}
    return columns | {"time": pa.array(points[:, 0]), "value": pa.array(points[:, 1])}


def unusable(series: Iterable[RawSeries], above: Iterable[str], window: float) -> Counter[str]:
    """Number of signals of brokers whose value is not a number, infinite or negative, by cause.

    Only what makes the value of a signal counts: the newest sample of a gauge, the samples of a counter in the `window`
    (seconds) and the one before. above: signals whose NaN is none.
    """
    newest: dict[tuple[str, str], RawSeries] = {}
    for one in series:
        key = one.signal, one.pod
        if key not in newest or newest[key].last < one.last:
            newest[key] = one
    left_out = set(above)
    causes = (_cause(one, window) for (signal, _), one in newest.items() if signal not in left_out)
    return Counter(cause for cause in causes if cause)


def _cause(one: RawSeries, window: float) -> str:
    times, values = one.points.T
    if one.kind == "rated":
        return ""
    if one.kind == "gauge":
        return _drop(float(values[-1]))
    begin = max(int(np.searchsorted(times, one.last - window, side="right")) - 1, 0)
    bad = [value for value in values[begin:].tolist() if not np.isfinite(value)]
    return _drop(values[-1] if not np.isfinite(values[-1]) else bad[-1]) if bad else ""


def _drop(value: float) -> str:
    if np.isnan(value):
        return Drop.NAN
    if np.isinf(value):
        return Drop.INFINITE
    return Drop.NEGATIVE if value < 0 else ""


def value_rows(answer: Samples, signal: str = "") -> dict[str, pa.Array]:
    """Columns of `BROKER_SAMPLES` of an instant query of `signal`, or of several that the answer names."""
    signals = pa.repeat(pa.scalar(signal), len(answer)) if signal else answer.label(TOLD_APART)
    rows = len(answer)
    same = {
        name: pa.repeat(pa.scalar(text), rows) for name, text in {"kind": "value", "part": "", "series": ""}.items()
    }
    return {"pod": answer.label("pod"), "signal": signals, **same, "value": answer.values}


def good(values: pa.DoubleArray) -> tuple[pa.DoubleArray, Counter[str]]:
    """The values with null for those that no rate, size or count can have; how many those are, by cause."""
    numbers = values.to_numpy(zero_copy_only=False)
    fine = np.isfinite(numbers) & (numbers >= 0)
    if fine.all():
        return values, Counter()
    present = values.is_valid().to_numpy(zero_copy_only=False)
    negative = np.isfinite(numbers) & (numbers < 0)
    causes = {Drop.NAN: np.isnan(numbers), Drop.INFINITE: np.isinf(numbers), Drop.NEGATIVE: negative}
    counts = {str(cause): int((rows & present).sum()) for cause, rows in causes.items()}
    return pa.array(numbers, mask=~fine), Counter({cause: count for cause, count in counts.items() if count})


def pivot(answers: Sequence[Samples], keys: Sequence[str]) -> tuple[list[pa.Array], list[pa.Array]]:
    """Key columns, and one value column per answer, null where an answer lacks the row.

    Servers answer queries over the same series in the same order, so usually the columns already match.
    """
    labels = [[answer.label(key) for key in keys] for answer in answers]
    if all(columns == labels[0] for columns in labels[1:]):
        return labels[0], [answer.values for answer in answers]
    names = [_joined(columns) for columns in labels]
    everywhere = pa.concat_arrays(names)
    rows = pc.unique(everywhere)
    first = pc.index_in(rows, value_set=everywhere)
    found = [pc.index_in(rows, value_set=name) for name in names]
    key_columns = [pa.concat_arrays(column).take(first) for column in zip(*labels, strict=True)]
    return key_columns, [answer.values.take(row) for answer, row in zip(answers, found, strict=True)]


def _joined(columns: Sequence[pa.StringArray]) -> pa.StringArray:
    return pc.binary_join_element_wise(*columns, "\n") if len(columns) > 1 else columns[0]


def full_names(topics: pa.StringArray, partitions: pa.StringArray) -> pa.StringArray:
    """Names as they are hashed. A broker may be configured to put the partition's number in its own label."""
    whole = pc.is_in(partitions, value_set=pa.array(_PLAIN))
    if pc.all(whole).as_py():
        return topics
    return pc.if_else(whole, topics, pc.binary_join_element_wise(topics, partitions, "-partition-"))


def batch(schema: pa.Schema, columns: Mapping[str, pa.Array]) -> pa.RecordBatch:
    """A batch of `schema` with these columns, null in the others."""
    (rows,) = {len(column) for column in columns.values()}
    arrays = [columns[field.name] if field.name in columns else pa.nulls(rows, field.type) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
