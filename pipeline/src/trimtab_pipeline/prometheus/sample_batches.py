"""Converts answers of Prometheus to record batches of raw samples, and counts impossible values."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from trimtab_pipeline.columns import USAGE
from trimtab_pipeline.prometheus.broker_presets import Series
from trimtab_pipeline.prometheus.queries import TOLD_APART
from trimtab_pipeline.prometheus.samples import Samples
from trimtab_pipeline.transform.copies import Copy, apart, differing, replaced
from trimtab_pipeline.transform.interfaces import counted_interfaces
from trimtab_pipeline.transform.topic_to_bundle import HashRanges, namespaces_of
from trimtab_pipeline.transform.trust import Drop
from trimtab_strategies.model import RESOURCES, some
from trimtab_strategies.model.cluster_load import FloatArray

_NAME = "__name__"
_WHOLE = {"cpu": "total"}
"""Signal, and label that names its parts (`Series.part`) -> its value in the series that is the total of all parts."""
_NETWORK = ("network_in", "network_out")
_DEVICES = 6  # devices that a note names
_SHOWN = dict(zip(USAGE, RESOURCES, strict=True))
"""Signal -> its name for users."""
_PLAIN = ("", "-1")
"""Partition labels of topics without partitions."""
_NAMED = 3  # kinds of names that a note names
_KIND = 40  # most characters of a kind in a note
Metrics = Mapping[str, tuple[str, Series]]
"""By metric, the signal and its `Series`."""


@dataclass(frozen=True, slots=True)
class RawSeries:
    """One series of an answer: signal, kind, pod and part as in `BROKER_SAMPLES`.

    points: (k, 2) times and values, oldest first. above: lower or equal values are ignored; None: no value is.
    labels: its further labels, if there are several series of this part.
    """

    signal: str
    kind: str
    pod: str
    part: str
    points: FloatArray
    above: float | None = None
    labels: Mapping[str, str] = field(default_factory=dict)

    @property
    def last(self) -> float:
        """Epoch seconds of its newest sample."""
        return float(self.points[-1, 0])


def raw_series(answer: Samples, metrics: Metrics) -> Iterator[RawSeries]:
    """The series of an answer to a query about several metrics."""
    names = {_NAME, *(series.part for _, series in metrics.values())} - {""}
    labels = {name: answer.label(name).to_pylist() for name in names}
    rest = {name: column.to_pylist() for name, column in answer.labels.items() if name not in {*names, "pod"}}
    for row, (pod, points) in enumerate(zip(answer.label("pod").to_pylist(), answer.points, strict=True)):
        if (known := metrics.get(labels[_NAME][row])) is not None:
            signal, series = known
            part = labels[series.part][row] if series.part else ""
            part = "" if part == _WHOLE.get(series.part) else part
            others = {name: column[row] for name, column in rest.items()}
            yield RawSeries(signal, series.kind, pod, part, points, series.above, others)


def total_or_parts(series: Sequence[RawSeries]) -> list[RawSeries]:
    """The series, with either the total of a signal of a pod or its parts: what has the newest sample, else the total.

    Some kubelets show the CPU of all cores together and that of each core.
    """
    newest = defaultdict[str, dict[bool, float]](lambda: {True: -np.inf, False: -np.inf})
    for one in series:
        if one.signal in _WHOLE:
            newest[one.pod][not one.part] = max(newest[one.pod][not one.part], one.last)
    return [
        one
        for one in series
        if one.signal not in _WHOLE or (not one.part) == (newest[one.pod][True] >= newest[one.pod][False])
    ]


def rated_series(answer: Samples, signal: str) -> list[RawSeries]:
    """The series of the counter from which a user's query computes the rate of `signal`."""
    pods = answer.label("pod").to_pylist()
    return [RawSeries(signal, "rated", pod, "", points) for pod, points in zip(pods, answer.points, strict=True)]


def raw_rows(series: Sequence[RawSeries]) -> dict[str, pa.Array]:
    """Columns of `BROKER_SAMPLES`, a row for each point. Copies of a part are numbered.

    A value that is not higher than `above` becomes NaN. Its time is kept.
    """
    numbers, count = Counter[tuple[str, str, str]](), list[str]()
    for one in series:
        count.append(str(numbers[one.signal, one.pod, one.part]))
        numbers[one.signal, one.pod, one.part] += 1
    row = pa.array(np.repeat(np.arange(len(series)), [len(one.points) for one in series]))
    times, values = np.concatenate([np.empty((0, 2)), *(one.points for one in series)]).T
    bounds = np.array([-np.inf if one.above is None else one.above for one in series])[row]
    texts = {
        "pod": [one.pod for one in series],
        "signal": [one.signal for one in series],
        "kind": [one.kind for one in series],
        "part": [one.part for one in series],
        "series": count,
    }
    columns = {name: pa.array(values, pa.string()).take(row) for name, values in texts.items()}
    return columns | {"time": pa.array(times), "value": pa.array(np.where(values <= bounds, np.nan, values))}


def unusable(series: Iterable[RawSeries], window: float) -> Counter[str]:
    """Number of brokers' signals whose value is NaN, infinite or negative, by cause.

    Only samples that determine the signal's value count: the newest one of a gauge, and those of a counter in the
    `window` (seconds) plus the last one before it.
    """
    newest: dict[tuple[str, str], RawSeries] = {}
    for one in series:
        key = one.signal, one.pod
        if key not in newest or newest[key].last < one.last:
            newest[key] = one
    causes = (_cause(one, window) for one in newest.values())
    return Counter(cause for cause in causes if cause)


def counted_network(series: Sequence[RawSeries], device: str) -> tuple[list[RawSeries], dict[str, list[str]]]:
    """The series without interfaces that do not count, and the pods of which that is unclear, with their interfaces.

    device: the declared one. A pod of which it is unclear has no series of its network.
    """
    rates = defaultdict[str, dict[str, float]](dict)
    for one in series:
        if one.part and one.signal in _NETWORK:
            rates[one.pod][one.part] = max(rates[one.pod].get(one.part, 0.0), _rate(one))
    counted = {pod: counted_interfaces(theirs, device) for pod, theirs in rates.items()}
    unclear = {pod: sorted(rates[pod]) for pod, names in counted.items() if names is None}
    kept = [one for one in series if one.signal not in _NETWORK or not one.part or one.part in (counted[one.pod] or ())]
    return kept, unclear


def _rate(one: RawSeries) -> float:
    """What a counter gained per second; 0 if that is unknown."""
    times, values = one.points[np.isfinite(one.points[:, 1])].T
    return float(np.maximum(np.diff(values), 0).sum() / (times[-1] - times[0])) if len(times) > 1 else 0.0


def unclear_devices(unclear: Mapping[str, Sequence[str]]) -> Iterator[str]:
    """Notes on pods of which it is unclear which interfaces count."""
    for names in sorted({tuple(names) for names in unclear.values()}):
        pods = some([pod for pod, theirs in unclear.items() if tuple(theirs) == names], _NAMED)
        yield (
            f"{pods}: it is unclear which of the network devices {some(names, _DEVICES)} count, so the use of the "
            "network is unknown and does not count; name the device in source.prometheus.networkDevice"
        )


def differing_pods(series: Iterable[RawSeries], limits: Samples | None = None) -> dict[str, str]:
    """Pods with several series of one part of a signal that are no replicas, and what is wrong with each.

    limits: the answer to `BrokerPreset.apart`.
    """
    found = defaultdict[str, dict[str, list[list[Copy]]]](dict)
    for several, copies in _several(series):
        pod, signal = several[0].pod, several[0].signal
        groups, name = apart(copies, counter=several[0].kind == "counter"), _SHOWN.get(signal, "traffic")
        found[pod][name] = max(groups, found[pod].get(name, []), key=len)
    for pod, signal, groups in () if limits is None else _limits_apart(limits):
        found[pod][signal] = groups
    return {pod: text for pod, signals in found.items() if (text := differing(signals.items()))}


def without_replaced(series: Sequence[RawSeries]) -> list[RawSeries]:
    """The series without those of processes that have ended and are still shown beside their successors."""
    gone = set[int]()
    for several, copies in _several(series):
        ended = replaced(copies, counter=several[0].kind == "counter")
        gone.update(id(one) for one, old in zip(several, ended, strict=True) if old)
    return [one for one in series if id(one) not in gone]


def _several(series: Iterable[RawSeries]) -> Iterator[tuple[list[RawSeries], list[Copy]]]:
    """The series of each part of a signal that has more than one."""
    same = defaultdict[tuple[str, str, str], list[RawSeries]](list)
    for one in series:
        same[one.pod, one.signal, one.part].append(one)
    for several in same.values():
        if len(several) > 1:
            yield several, [Copy(one.labels, one.points) for one in several]


def _limits_apart(answer: Samples) -> Iterator[tuple[str, str, list[list[Copy]]]]:
    """The pods and their limits (or nodes) with several values, and the series of each value."""
    found = defaultdict[tuple[str, str], dict[Any, list[Copy]]](lambda: defaultdict(list))
    for row, value in enumerate(answer.values.to_pylist()):
        labels = {name: column[row].as_py() for name, column in answer.labels.items()}
        pod, resource = labels.pop("pod", ""), labels.get("resource", "")
        name, differs = (f"limit of {resource}", value) if resource else ("node", tuple(sorted(labels.items())))
        found[pod, name][differs].append(Copy(labels, np.array([[0.0, value]])))
    yield from ((pod, name, list(groups.values())) for (pod, name), groups in found.items())


def repeated_pods(series: Iterable[RawSeries]) -> list[str]:
    """Pods with several series of one part of a signal."""
    counts = Counter((one.pod, one.signal, one.part) for one in series)
    return sorted({pod for (pod, *_), count in counts.items() if count > 1})


def _cause(one: RawSeries, window: float) -> str:
    times, values = one.points.T
    if one.kind == "gauge":
        return "" if one.above is not None and values[-1] <= one.above else _drop(values[-1])
    begin = max(int(np.searchsorted(times, one.last - window, side="right")) - 1, 0)
    bad = values[begin:][~np.isfinite(values[begin:])]
    return _drop(values[-1] if not np.isfinite(values[-1]) else bad[-1]) if len(bad) else ""


def _drop(value: float) -> str:
    if np.isnan(value):
        return Drop.NAN
    if np.isinf(value):
        return Drop.INFINITE
    return Drop.NEGATIVE if value < 0 else ""


def value_rows(answers: Iterable[tuple[str, Samples]]) -> dict[str, pa.Array]:
    """Columns of `BROKER_SAMPLES` from instant queries, each with its signal; "" if the answer names the signals."""
    parts = [
        (answer.label("pod"), pa.repeat(signal, len(answer)) if signal else answer.label(TOLD_APART), answer.values)
        for signal, answer in answers
    ]
    nothing = pa.array([], pa.string()), pa.array([], pa.string()), pa.array([], pa.float64())
    pod, signal, value = (pa.concat_arrays(columns) for columns in zip(nothing, *parts, strict=True))
    same = {name: pa.repeat(text, len(pod)) for name, text in {"kind": "value", "part": "", "series": ""}.items()}
    return {"pod": pod, "signal": signal, **same, "value": value}


def good(values: pa.DoubleArray) -> tuple[pa.DoubleArray, Counter[str]]:
    """The values, with null for those that can't be a rate, size or count, and the number of these by cause."""
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
    """The full names, which are hashed. Some brokers are configured to put the partition's number in its own label."""
    whole = pc.is_in(partitions, value_set=pa.array(_PLAIN))
    if pc.all(whole).as_py():
        return topics
    return pc.if_else(whole, topics, pc.binary_join_element_wise(topics, partitions, "-partition-"))


def named_topics(columns: Mapping[str, pa.Array], dropped: Counter[str], notes: set[str]) -> dict[str, pa.Array]:
    """The topics by their full names. Those of unknown kinds are left out, counted in `dropped` and told in `notes`."""
    names = full_names(columns["topic"], columns["partition"])
    rest = {name: column for name, column in columns.items() if name != "partition"}
    known = pc.not_equal(namespaces_of(names), "")
    strange = names.filter(pc.invert(known))
    if not len(strange):
        return rest | {"topic": names}
    dropped[str(Drop.UNKNOWN_NAME)] += len(strange)
    notes.add(
        f"topics named like {some(_kinds(strange), _NAMED)} are not measured: Trimtab can't tell their bundles; "
        "it knows persistent://*/*/*, non-persistent://*/*/* and segment://*/*/*/*"
    )
    return {name: column.filter(known) for name, column in (rest | {"topic": names}).items()}


def _kinds(names: pa.StringArray) -> list[str]:
    """The kinds of these names: the domain, and a star for each part."""
    parts = pc.extract_regex(names, r"(?s)\A(?P<domain>[^/]*:/)?(?P<parts>.*)\z")
    stars = pc.replace_substring_regex(pc.struct_field(parts, 1), "[^/]+", "*")
    kinds = pc.binary_join_element_wise(pc.struct_field(parts, 0), stars, "")
    return sorted(pc.unique(pc.utf8_slice_codeunits(kinds, 0, _KIND)).to_pylist())


def batch(schema: pa.Schema, columns: Mapping[str, pa.Array]) -> pa.RecordBatch:
    """A batch of `schema` with these columns, null in the others."""
    (rows,) = {len(column) for column in columns.values()}
    arrays = [columns[field.name] if field.name in columns else pa.nulls(rows, field.type) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


class InsideBundles:
    """Keeps the topics in some bundles: PromQL has no CRC-32, so a query selects whole namespaces.

    If answers have the same labels, their topics are hashed only once.
    """

    def __init__(self, bundles: Sequence[str]) -> None:
        self._ranges = HashRanges.of(bundles)
        self._labels: Mapping[str, pa.StringArray] | None = None
        self._kept = pa.array([], pa.bool_())

    def holds(self, topics: pa.StringArray) -> pa.BooleanArray:
        """Whether each topic is in one of the bundles."""
        return pa.array(self._ranges.place(topics)[0] >= 0)

    def asked(self, ask: Callable[[], Samples]) -> Samples:
        """The series of an answer whose topics are in one of the bundles."""
        answer = ask()
        if answer.labels is not self._labels:
            self._labels = answer.labels
            self._kept = self.holds(full_names(answer.label("topic"), answer.label("partition")))
        return answer.filter(self._kept)
