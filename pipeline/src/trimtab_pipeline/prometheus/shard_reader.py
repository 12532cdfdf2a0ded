"""The work of a Spark task on one shard of brokers: query, join the answers into wide rows, drop impossible values.

Every shard ends with a *report row*, whose column ``report`` is JSON:

    shard     position of the shard
    ok        whether its rows are complete
    error     why not; empty when ok. ``misconfigured``: whether it fails until a query is changed
    dropped   unused samples, by cause (``NaN``, ``Infinite``, ``Negative``)
    warnings  the server's warnings about its answers
    notes     failed checks, and why they failed
    clock     seconds that the server's clock is ahead of ours; null when unknown
    bundles   number of bundles with their own metrics
    seconds   time spent in HTTP and parsing
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from trimtab_pipeline.columns import CHECKS, INSIDE, RESOURCES, SAMPLED, TIMES, TRAFFIC
from trimtab_pipeline.prometheus.broker_statistics import Told
from trimtab_pipeline.prometheus.client import PrometheusError, PrometheusFormatError, PrometheusStatusError
from trimtab_pipeline.prometheus.queries import BUNDLES, TOPICS, Series, asked_late, of_newest, topics_in
from trimtab_pipeline.prometheus.read_request import ReadRequest
from trimtab_pipeline.prometheus.samples import Samples
from trimtab_pipeline.transform.rates import Sampled, counter, gauge, of_each_pod, rated
from trimtab_pipeline.transform.topic_to_bundle import HashRanges, is_bundle
from trimtab_pipeline.transform.topics import PlacedTopics, hottest
from trimtab_pipeline.transform.trust import Drop
from trimtab_strategies.model import some
from trimtab_strategies.model.cluster_load import FloatArray, IntArray

_NAMED = 3  # pods that a note names
_LATE = 1.0  # seconds after the evaluation time from which on the delay counts
Fetch = Callable[[str], Samples]
"""Answers one PromQL query. Raises `PrometheusError`."""
Listen = Callable[[Mapping[str, str]], Told]
"""Reads the topics of brokers (pod -> URL of their admin REST)."""
NOTHING_TOLD = Told(
    {key: pa.array([], pa.string()) for key in TOPICS.keys} | {c: pa.array([], pa.float64()) for c in TOPICS.columns}
)
"""No statistics."""
NOTHING_KNOWN: Mapping[str, Samples] = MappingProxyType({})
"""No columns."""

BROKER_COLUMNS = (*RESOURCES, *TRAFFIC, *TIMES, *CHECKS, *SAMPLED)
"""Values of a broker, null where the preset has no query."""
_BROKER = pa.struct([("pod", pa.string()), *((name, pa.float64()) for name in BROKER_COLUMNS)])
SCHEMA = pa.schema(
    [
        *((key, pa.string()) for key in BUNDLES.keys),
        *((name, pa.float64()) for name in BUNDLES.columns),
        ("at", pa.float64()),
        ("time", pa.float64()),
        ("broker", _BROKER),
        ("report", pa.string()),
        ("inside", pa.list_(INSIDE)),
    ]
)
"""Columns of every batch. A row is a bundle (``at`` is the evaluation time, ``time`` that of its samples), a broker, or
a report, which also carries the topics inside the shard's hottest bundles."""


class WrongQueryError(PrometheusError):
    """An unusable query of a user. The message names its place, the expectation and the finding."""


def read_shard(
    request: ReadRequest,
    shard: int,
    fetch: Fetch,
    ranges: HashRanges | None = None,
    clock: Callable[[], float | None] = lambda: None,
    *,
    listen: Listen = lambda _: NOTHING_TOLD,
) -> Iterator[pa.RecordBatch]:
    """Brokers and bundles of shard number `shard`, then its report, which also holds errors of `fetch`.

    clock: seconds that the server's clock was ahead of ours at its last answer, None if unknown.
    listen: reads the brokers' own statistics, if the request asks for them.
    """
    begin, reading = time.perf_counter(), Reading(request, shard, fetch, ranges, listen)
    report: dict[str, Any] = {"shard": shard, "ok": True, "error": ""}
    try:
        yield from reading.rows()
    except PrometheusError as error:
        report |= {"ok": False, "error": str(error), "misconfigured": isinstance(error, WrongQueryError)}
    report |= reading.report() | {"seconds": time.perf_counter() - begin, "clock": clock()}
    yield _batch(report=pa.array([json.dumps(report)]), inside=reading.inside())


class Reading:
    """One task's read of one shard: rows, and the report about them."""

    def __init__(
        self, request: ReadRequest, shard: int, fetch: Fetch, ranges: HashRanges | None, listen: Listen
    ) -> None:
        self._request, self._fetch, self._ranges, self._listen = request, fetch, ranges, listen
        self._begun = time.perf_counter()
        self._wanted = request.shards[shard]
        self._dropped, self._warnings, self._notes = Counter[str](), set[str](), set[str]()
        self._own, self._twice = 0, False
        self._inside: dict[str, pa.Array] = {}

    def rows(self) -> Iterator[pa.RecordBatch]:
        """Brokers, then bundles: their own metrics, else the sums of their topics. Raises `PrometheusError`."""
        brokers = self._brokers()
        self._twice = (pc.max(brokers["copies"]).as_py() or 0) > 1
        bundles = self._bundles(brokers)
        yield _batch(broker=pa.StructArray.from_arrays(list(brokers.values()), fields=list(_BROKER)))
        at = pa.array(np.full(len(bundles["pod"]), self._request.at))
        yield _batch(**bundles, at=at, time=at if self._wanted.statistics else _times(bundles, brokers, at))

    def report(self) -> dict[str, Any]:
        """The report about the rows."""
        answers = {"warnings": sorted(self._warnings), "notes": sorted(self._notes)}
        return {"dropped": self._dropped, **answers, "bundles": self._own}

    def inside(self) -> pa.ListArray:
        """One list, of the topics inside the hottest bundles."""
        if not self._inside:
            return pa.nulls(1, pa.list_(INSIDE))
        rows = pa.StructArray.from_arrays([self._inside[part.name] for part in INSIDE], fields=list(INSIDE))
        return pa.ListArray.from_arrays(pa.array([0, len(rows)], pa.int32()), rows)

    def _brokers(self) -> dict[str, pa.Array]:
        """The brokers. A series that the server no longer returns counts as gone, even if old samples are readable."""
        sampled = self._sampled()
        brokers = self._wide(("pod",), BROKER_COLUMNS, self._wanted.brokers, sampled)
        if "resource_time" in self._wanted.brokers:
            shown = brokers["resource_time"].is_valid()
            ours = [name for name, series in self._wanted.sampled.items() if not series.checked and name in sampled]
            brokers |= {name: pc.if_else(shown, brokers[name], None) for name in ours}
        return brokers

    def _sampled(self) -> dict[str, Samples]:
        """Columns that are computed from raw samples."""
        columns: dict[str, dict[str, float]] = {}
        for name, series in self._wanted.sampled.items():
            for pod, said in of_each_pod(self._raw(name, series), self._said_by(series)).items():
                for column, value in _columns_of(name, series, said).items():
                    values = columns.setdefault(column, {})
                    values[pod] = max(value, values.get(pod, value))
        return {column: _of_pods(values) for column, values in columns.items()}

    def _said_by(self, series: Series) -> Callable[[FloatArray], Sampled]:
        """The value of one of `series`, from its points."""
        window, at = self._request.window, self._request.at
        if series.checked:
            return lambda points: rated(points, window, at)
        return lambda points: (counter if series.counts else gauge)(points, window)

    def _raw(self, name: str, series: Series) -> Samples:
        """The raw samples of a signal; none where the server refuses those of a user's query."""
        if not series.checked:
            answer = self._fetch(series.promql)
            self._warnings.update(answer.warnings)
            return answer
        return self._check(f"samples of {name}", series.promql, ("pod",)).of_pods(self._wanted.pods)

    def _bundles(self, brokers: Mapping[str, pa.Array]) -> dict[str, pa.Array]:
        if self._wanted.statistics:
            return self._from_brokers()
        bundles = self._wide(BUNDLES.keys, BUNDLES.columns, self._asked_once(self._wanted.bundles))
        self._own = len(bundles["bundle"])
        if self._own or self._ranges is None:
            self._look_inside(bundles)
            return bundles
        topics = self._topics(self._ranges)
        # without any topic, brokers do not export them: then nothing is known, not even that all is idle
        return self._summed(topics, self._answered(brokers) if len(topics.names) else ())

    def _from_brokers(self) -> dict[str, pa.Array]:
        """The sums of the brokers' own topics; brokers without an answer have no load, and a note."""
        answers = self._listen(self._wanted.statistics)
        for why in sorted(set(answers.failed.values())):
            silent = some([pod for pod, theirs in answers.failed.items() if theirs == why], _NAMED)
            self._notes.add(f"bundles of {silent} are not measured: {why}")
        table, ranges = answers.topics, self._ranges or HashRanges.of(())
        topics = PlacedTopics.placed(
            [table[key] for key in TOPICS.keys], [table[name] for name in TOPICS.columns], ranges
        )
        return self._summed(topics, answers.pods)

    def _summed(self, topics: PlacedTopics, answered: Sequence[str]) -> dict[str, pa.Array]:
        """Bundles as sums of their topics. answered: pods whose bundles without a topic are idle."""
        if topics.outside:
            self._dropped[Drop.UNKNOWN] += topics.outside
        summed = topics.by_bundle()
        self._inside = topics.within(summed.row[self._hottest(summed.columns())])
        return summed.with_idle(answered).columns()

    def _look_inside(self, bundles: Mapping[str, pa.Array]) -> None:
        """Read the topics of the hottest bundles' namespaces; invalid bundle names are skipped."""
        names = bundles["bundle"].take(pa.array(self._hottest(bundles))).to_pylist()
        if hot := list(dict.fromkeys(filter(is_bundle, names))):
            ranges = HashRanges.of(hot)
            topics = self._topics(ranges, ranges.namespaces)
            self._inside = topics.within(np.arange(len(ranges)))

    def _asked_once(self, queries: Mapping[str, str]) -> dict[str, str]:
        """The queries that count each row once where series are duplicated; users' queries stay unchanged."""
        ours = {name for name, promql in queries.items() if self._twice and promql not in self._wanted.custom}
        return {name: of_newest(promql) if name in ours else promql for name, promql in queries.items()}

    def _hottest(self, bundles: Mapping[str, pa.Array]) -> IntArray:
        load = {name: bundles[name].to_numpy(zero_copy_only=False) for name in TRAFFIC}
        return hottest(load, self._request.hot_bundles)

    def _topics(self, ranges: HashRanges, only: Iterable[str] | None = None) -> PlacedTopics:
        queries = {name: topics_in(promql, only) for name, promql in self._wanted.topics.items()}
        table = self._wide(TOPICS.keys, TOPICS.columns, self._asked_once(queries))
        return PlacedTopics.placed(
            [table[key] for key in TOPICS.keys], [table[name] for name in TOPICS.columns], ranges
        )

    def _answered(self, brokers: Mapping[str, pa.Array]) -> list[str]:
        """Pods whose own metrics are recent: what they do not report does not exist."""
        young = pc.greater_equal(brokers["traffic_time"], self._request.at - self._request.max_age)
        pods: list[str] = brokers["pod"].filter(young).to_pylist()
        return pods

    def _answer(self, promql: str, keys: Sequence[str]) -> Samples:
        """The answer to one query. A user's query is checked, and may return other pods. Raises as `fetch` does."""
        if (signal := self._wanted.custom.get(promql)) is None:
            return self._fetch(promql)
        try:
            answer = self._fetch(promql)
        except PrometheusStatusError as error:
            raise (WrongQueryError(f"{_named(signal)} is refused: {error}") if error.refused else error) from error
        except PrometheusFormatError as error:
            raise WrongQueryError(f"{_named(signal)} yields no instant vector: {error}") from error
        if answer.points:
            raise WrongQueryError(f"{_named(signal)} yields no instant vector: it is a range; wrap it in rate()")
        if complaint := wrong_labels(answer, keys):
            raise WrongQueryError(f"{_named(signal)} {complaint}")
        return answer.of_pods(self._wanted.pods)

    def _check(self, name: str, promql: str, keys: Sequence[str]) -> Samples:
        """The answer to a check; none where the server refuses it, which does not affect the load itself."""
        late = self._request.late + time.perf_counter() - self._begun
        try:
            return self._fetch(asked_late(promql, late) if name == "ahead" and late > _LATE else promql)
        except PrometheusStatusError as error:
            if not error.refused:
                raise
            self._notes.add(f"{name} of brokers can't be checked: {error}")
            return Samples({key: pa.array([], pa.string()) for key in keys}, pa.array([], pa.float64()))

    def _wide(
        self,
        keys: Sequence[str],
        names: Sequence[str],
        queries: Mapping[str, str],
        known: Mapping[str, Samples] = NOTHING_KNOWN,
    ) -> dict[str, pa.Array]:
        """Columns `keys` and `names` of one table, some of which are `known`; no rows without a query."""
        if not queries and not known:
            return {key: pa.array([], pa.string()) for key in keys} | {n: pa.array([], pa.float64()) for n in names}
        answers = {
            name: self._check(name, promql, keys) if name in CHECKS else self._answer(promql, keys)
            for name, promql in queries.items()
        } | dict(known)
        self._warnings.update(text for answer in answers.values() for text in answer.warnings)
        labels, values = pivot(list(answers.values()), keys)
        columns = {name: _clean(column, self._dropped) for name, column in zip(answers, values, strict=True)}
        missing = {name: pa.nulls(len(labels[0]), pa.float64()) for name in names if name not in columns}
        return dict(zip(keys, labels, strict=True)) | {name: (columns | missing)[name] for name in names}


def _columns_of(name: str, series: Series, said: Sampled) -> dict[str, float]:
    """Columns from the `series` of column `name`. NaN stays NaN; unknown values are left out."""
    columns = {f"{name}_time": said.time}
    if said.interval > 0:
        columns[f"{name}_interval"] = said.interval
    if series.counts:
        columns |= {f"{name}_cover": said.cover}
    if series.checked:
        return columns
    if series.counts:
        columns |= {"resets": said.resets} | ({"samples": said.samples} if name == "cpu" else {})
    known = said.cover > 0 if series.counts else series.above is None or not said.value <= series.above
    return columns | ({name: said.value} if known else {})


def _of_pods(values: Mapping[str, float]) -> Samples:
    return Samples({"pod": pa.array(values, pa.string())}, pa.array(values.values(), pa.float64()))


def wrong_labels(answer: Samples, keys: Sequence[str]) -> str:
    """The problem with the labels of `answer`, which must be exactly `keys`; empty without one."""
    full = all(pc.all(pc.not_equal(answer.label(key), "")).as_py() for key in keys) or not len(answer)
    if not len(answer) or (full and set(answer.labels) == set(keys)):
        return ""
    found = ", ".join(sorted(answer.labels)) or "none"
    by = ", ".join(keys)
    return f"yields series with other labels: expected {by}, found {found}; wrap it in max by ({by}) (...)"


def _named(signal: str) -> str:
    """The path of a signal's query in a policy."""
    first, *rest = signal.split("_")
    return f"source.prometheus.queries.{first}{''.join(map(str.capitalize, rest))}"


def _batch(**columns: pa.Array) -> pa.RecordBatch:
    """A batch of `SCHEMA` with these columns, null in the others."""
    (rows,) = {len(column) for column in columns.values()}
    arrays = [columns.get(field.name, pa.nulls(rows, field.type)) for field in SCHEMA]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


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


def _times(bundles: Mapping[str, pa.Array], brokers: Mapping[str, pa.Array], at: pa.DoubleArray) -> pa.DoubleArray:
    """Times of each bundle's samples: those of its pod's own traffic, which comes from the same scrape.

    A server returns samples up to 5 minutes old. A sample of the future counts as one of `at`.
    """
    row = pc.index_in(bundles["pod"], value_set=brokers["pod"])
    return pc.min_element_wise(pc.coalesce(brokers["traffic_time"].take(row), at), at)


def _joined(columns: Sequence[pa.StringArray]) -> pa.StringArray:
    return pc.binary_join_element_wise(*columns, "\n") if len(columns) > 1 else columns[0]


def _clean(column: pa.DoubleArray, dropped: Counter[str]) -> pa.DoubleArray:
    """The column with null for values that no rate, size or count can have; `dropped` counts causes."""
    values = column.to_numpy(zero_copy_only=False)
    good = np.isfinite(values) & (values >= 0)
    if good.all():
        return column
    present = column.is_valid().to_numpy(zero_copy_only=False)
    negative = np.isfinite(values) & (values < 0)
    causes = {Drop.NAN: np.isnan(values), Drop.INFINITE: np.isinf(values), Drop.NEGATIVE: negative}
    for cause, rows in causes.items():
        if count := int((rows & present).sum()):
            dropped[cause] += count
    return pa.array(values, mask=~good)
