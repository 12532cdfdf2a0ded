"""Reads the raw samples of one shard of brokers, in a task of Spark or in a thread of the operator.

`read_shard` yields record batches of `columns.BROKER_SAMPLES` (table ``brokers``) or `columns.BUNDLE_SAMPLES` (tables
``bundles`` and ``topics``). Nothing is computed here. Impossible values (NaN, infinite, negative) are counted here, as
counting them later would take a second pass over the samples. These values are removed from single values and from
bundles, but stay in raw samples.

The last row of every shard is its report; a failed shard has nothing else. The report is JSON:

    shard, table  what was read
    ok            whether its rows are complete
    error         why its rows are not complete; empty when ok
    misconfigured whether a user must change a query first
    dropped       unused values, by cause (``NaN``, ``Infinite``, ``Negative``, ``UnknownName``)
    warnings      the server's warnings about its answers
    notes         failed checks, limits that are NaN, unknown kinds of topics' names, and brokers without an answer
    clock         seconds that the server's clock is ahead of ours; null when unknown
    bundles       number of rows from the bundles' own metrics
    answered      pods whose statistics were read; null when the request asks for no statistics
    repeated      pods with duplicate series: copies, or those from before a restart that the server still returns. For
                  their bundles, only the newest series are used (`ShardRequest.repeated`)
    seconds       time spent in HTTP and parsing
"""

from __future__ import annotations

import json
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from trimtab_pipeline.api import StatisticsSettings
from trimtab_pipeline.columns import BROKER_SAMPLES, BUNDLE_SAMPLES, TRAFFIC
from trimtab_pipeline.prometheus.broker_statistics import WITHIN, StatisticsAnswer, ask_brokers
from trimtab_pipeline.prometheus.client import (
    PrometheusError,
    PrometheusFormatError,
    PrometheusStatusError,
    PrometheusUnreachableError,
    side_by_side,
)
from trimtab_pipeline.prometheus.queries import (
    BUNDLE,
    BUNDLES,
    TOPICS,
    Table,
    asked_late,
    of_newest,
    topics_in,
)
from trimtab_pipeline.prometheus.read_request import ReadRequest, Secrets, TableName
from trimtab_pipeline.prometheus.sample_batches import (
    InsideBundles,
    RawSeries,
    batch,
    good,
    named_topics,
    pivot,
    rated_series,
    raw_rows,
    raw_series,
    repeated_pods,
    unusable,
    value_rows,
)
from trimtab_pipeline.prometheus.samples import Samples
from trimtab_strategies.model import some

_NAMED = 3  # pods that a note names
_LATE = 1.0  # seconds: a shorter delay after the evaluation time is ignored
DRY_URL = "dry:"
"""A URL that stands for a server without samples, so a session can be warmed up."""
Fetch = Callable[[str, float], Samples]
"""Answers one PromQL query within the given number of seconds. Threads call it. Raises `PrometheusError`."""
ReadStatistics = Callable[[Mapping[str, str]], StatisticsAnswer]
"""Reads the topics of brokers (pod -> URL of their admin REST)."""
Clock = Callable[[], float | None]
"""Seconds that the server's clock was ahead of ours at its last answer, None if unknown."""


class WrongQueryError(PrometheusError):
    """A user's query can't be used. The message says where it is, what was expected and what was found."""


def read_shard(
    table: TableName,
    request: ReadRequest,
    shard: int,
    secrets: Secrets,
    unwanted: Callable[[], bool] = lambda: False,
) -> Iterator[pa.RecordBatch]:
    """The rows of `table` about shard number `shard`, and its report, from the server of the request.

    unwanted: whether the result is no longer needed; then no further query is sent.
    """
    if request.url == DRY_URL:
        yield from _READERS[table](request, shard, lambda *_: Samples({}, pa.array([], pa.float64())))
        return
    with request.server(secrets.source, table) as server:

        def fetch(promql: str, within: float) -> Samples:
            if unwanted():
                raise PrometheusUnreachableError(f"{server.url} took too long: the result is no longer needed")
            return server.query(promql, request.at, within)

        def clock() -> float | None:
            return server.clock_ahead

        if table == "brokers":
            yield from read_brokers(request, shard, fetch, clock)
        elif table == "topics":
            yield from read_topics(request, shard, fetch, clock, _topic_statistics(request, secrets, unwanted))
        else:
            who = StatisticsSettings(secrets.brokers, min(request.statistics_timeout, max(request.left, 1.0)))
            within = min(WITHIN, request.left)
            read = partial(ask_brokers, settings=who, within=within, unwanted=unwanted)
            yield from read_bundles(request, shard, fetch, clock, read)


def _topic_statistics(request: ReadRequest, secrets: Secrets, unwanted: Callable[[], bool]) -> ReadStatistics:
    """Reads the topics in the namespaces of the request's bundles. Topics are optional, so the read stops early."""
    half = request.budget / 2  # no request starts in the second half, and none takes longer than half
    who = StatisticsSettings(secrets.brokers, min(request.statistics_timeout, half))
    return partial(ask_brokers, settings=who, namespaces=request.namespaces, within=half, unwanted=unwanted)


def _ask_no_broker(_: Mapping[str, str]) -> StatisticsAnswer:
    return ask_brokers({}, StatisticsSettings())


def read_brokers(
    request: ReadRequest, shard: int, fetch: Fetch, clock: Clock = lambda: None
) -> Iterator[pa.RecordBatch]:
    """The raw samples of brokers as `BROKER_SAMPLES`, and the report, which also contains errors of `fetch`."""
    read = _ShardRead("brokers", request, shard, fetch)
    return read.reported(BROKER_SAMPLES, lambda: _broker_batches(read), clock)


def read_bundles(
    request: ReadRequest,
    shard: int,
    fetch: Fetch,
    clock: Clock = lambda: None,
    statistics: ReadStatistics = _ask_no_broker,
) -> Iterator[pa.RecordBatch]:
    """The bundles as `BUNDLE_SAMPLES`, or their topics if no bundle has metrics of its own, and the report.

    statistics: reads the brokers' own statistics, if the request asks for them.
    """
    read = _ShardRead("bundles", request, shard, fetch)
    return read.reported(BUNDLE_SAMPLES, lambda: _bundle_batches(read, statistics), clock)


def read_topics(
    request: ReadRequest,
    shard: int,
    fetch: Fetch,
    clock: Clock = lambda: None,
    statistics: ReadStatistics = _ask_no_broker,
) -> Iterator[pa.RecordBatch]:
    """The topics of the request's bundles as `BUNDLE_SAMPLES`, and the report. statistics: as in `read_bundles`.

    A query selects whole namespaces. Their other topics are dropped from each answer before the next query is sent.
    """
    read = _ShardRead("topics", request, shard, fetch)
    return read.reported(BUNDLE_SAMPLES, lambda: _hot_topic_batches(read, statistics), clock)


class _ShardRead:
    """Sends the queries for one shard within the time budget, and collects what its report contains."""

    def __init__(self, table: TableName, request: ReadRequest, shard: int, fetch: Fetch) -> None:
        self.request, self.wanted = request, request.shards[shard]
        self.table, self._shard, self._fetch = table, shard, fetch
        self._begun, self._late = time.monotonic(), request.late + max(0.0, time.time() - request.made)
        self.dropped, self.notes, self._warnings = Counter[str](), set[str](), set[str]()
        self.bundles = 0
        self.answered: list[str] | None = None
        self.repeated: list[str] = []

    def reported(
        self, schema: pa.Schema, batches: Callable[[], Iterator[pa.RecordBatch]], clock: Clock
    ) -> Iterator[pa.RecordBatch]:
        """The batches with the columns of the shard, and the report; if a query fails, the report alone."""
        report: dict[str, Any] = {"ok": True, "error": "", "misconfigured": False}
        try:
            yield from list(batches())
        except PrometheusError as error:
            report = {"ok": False, "error": str(error), "misconfigured": isinstance(error, WrongQueryError)}
        answers = {"warnings": sorted(self._warnings), "notes": sorted(self.notes), "clock": clock()}
        counts = {"dropped": self.dropped, "bundles": self.bundles}
        pods = {"answered": self.answered, "repeated": self.repeated}
        took = {"seconds": time.monotonic() - self._begun}
        place: dict[str, Any] = {"shard": self._shard, "table": self.table}
        yield self.batch(schema, {"report": pa.array([json.dumps(place | report | answers | counts | pods | took)])})

    def batch(self, schema: pa.Schema, columns: Mapping[str, pa.Array]) -> pa.RecordBatch:
        """A batch of `schema` with these columns of this shard."""
        rows = len(next(iter(columns.values())))
        place = {
            "policy": pa.repeat(pa.scalar(self.request.policy), rows),
            "shard": pa.repeat(pa.scalar(self._shard, pa.int32()), rows),
        }
        return batch(schema, place | dict(columns))

    def ask(self, promql: str) -> Samples:
        """The answer to one query. Raises as `fetch` does, also when the budget is spent."""
        budget, url = self.request.budget, self.request.url
        if (left := self._begun + budget - time.monotonic()) <= 0:
            raise _spent(url, budget)
        try:
            answer = self._fetch(promql, min(left, self.request.timeout))
        except PrometheusUnreachableError as error:
            if left < self.request.timeout and time.monotonic() >= self._begun + budget:
                raise _spent(url, budget) from error
            raise
        self._warnings.update(answer.warnings)
        return answer

    def ask_user(self, signal: str, promql: str, keys: Sequence[str]) -> Samples:
        """The checked answer to a user's query, without the pods of other shards. Raises `WrongQueryError`."""
        try:
            answer = self.ask(promql)
        except PrometheusStatusError as error:
            raise (WrongQueryError(f"{_named(signal)} is refused: {error}") if error.refused else error) from error
        except PrometheusFormatError as error:
            raise WrongQueryError(f"{_named(signal)} yields no instant vector: {error}") from error
        if answer.points:
            raise WrongQueryError(f"{_named(signal)} yields no instant vector: it is a range; wrap it in rate()")
        if complaint := wrong_labels(answer, keys):
            raise WrongQueryError(f"{_named(signal)} {complaint}")
        return answer.of_pods(self.wanted.pods)

    def check(self, name: str, promql: str) -> Samples:
        """The answer to a check. Empty if the server refuses the query: the load can be measured without the check."""
        late = self._late + time.monotonic() - self._begun
        try:
            return self.ask(asked_late(promql, late) if name == "ahead" and late > _LATE else promql)
        except PrometheusStatusError as error:
            if not error.refused:
                raise
            what = "for samples from the future" if name == "ahead" else f"of the {name}"
            self.notes.add(f"the check {what} failed: {error}")
            return Samples({}, pa.array([], pa.float64()))

    def good(self, values: pa.DoubleArray) -> pa.DoubleArray:
        """The values with null for impossible ones, which are counted."""
        kept, dropped = good(values)
        self.dropped.update(dropped)
        return kept


def _spent(url: str, budget: float) -> PrometheusUnreachableError:
    if budget <= 0:
        return PrometheusUnreachableError(f"{url} was not asked: the time of the whole measurement was over")
    return PrometheusUnreachableError(
        f"{url} did not answer all queries of a shard within {budget:g} s, the budget for them (twice the source's "
        "timeout, and no longer than the deadline); raise the source's timeout, or look at the server's load"
    )


def _broker_batches(read: _ShardRead) -> Iterator[pa.RecordBatch]:
    """Raw samples, then single values."""
    wanted, window = read.wanted, read.request.window
    answers = side_by_side(_broker_jobs(read))
    singles = value_rows((name, answer) for (kind, name), answer in answers.items() if kind == "value")
    series = [one for k, raw in enumerate(wanted.raw) for one in raw_series(answers["raw", str(k)], raw.series)]
    series = _without_stale_traffic(series, singles) if "traffic_time" in wanted.values else series
    read.dropped.update(unusable(series, window))
    read.repeated = repeated_pods(one for one in series if one.signal in TRAFFIC)
    for name in wanted.rated:
        series += rated_series(answers["rated", name].of_pods(wanted.pods), name)
    yield read.batch(BROKER_SAMPLES, raw_rows(series))
    _note_odd_limits(read, singles)
    rows = read.batch(BROKER_SAMPLES, singles | {"value": read.good(singles["value"])})
    yield rows.filter(rows["value"].is_valid())


def _broker_jobs(read: _ShardRead) -> dict[tuple[str, str], Callable[[], Samples]]:
    """The queries about brokers. Keys: the kind of the answer, and the signal or the number of the query."""
    wanted = read.wanted
    values = wanted.value_queries(together=read.request.method == "POST")
    checks = {"ahead": wanted.ahead} if wanted.ahead else {}
    return {
        **{("raw", str(k)): partial(read.ask, raw.promql) for k, raw in enumerate(wanted.raw)},
        **{("value", name): partial(read.ask, promql) for name, promql in values.items()},
        **{("value", name): partial(read.check, name, promql) for name, promql in checks.items()},
        **{("value", name): partial(read.ask_user, name, promql, ("pod",)) for name, promql in wanted.own.items()},
        **{("rated", name): partial(read.check, f"samples of {name}", text) for name, text in wanted.rated.items()},
    }


def _without_stale_traffic(series: Iterable[RawSeries], singles: Mapping[str, pa.Array]) -> list[RawSeries]:
    """`series` without the traffic of pods whose own metrics have disappeared; their old samples can still be read."""
    pods = set(singles["pod"].filter(pc.equal(singles["signal"], "traffic_time")).to_pylist())
    return [one for one in series if one.signal not in TRAFFIC or one.pod in pods]


def _note_odd_limits(read: _ShardRead, singles: Mapping[str, pa.Array]) -> None:
    """Note limits that are NaN. They count as unknown, so such a broker needs a declared capacity."""
    odd = pa.table([singles["signal"], singles["pod"]], ["signal", "pod"]).filter(pc.is_nan(singles["value"]))
    pods: dict[str, list[str]] = defaultdict(list)
    for row in odd.to_pylist():
        if row["signal"].endswith("_limit"):
            pods[row["signal"]].append(row["pod"])
    for signal, ours in pods.items():
        resource = signal.removesuffix("_limit").replace("_", " ")
        named = some(sorted(ours), _NAMED)
        read.notes.add(f"{named}: the limit of {resource} is NaN and counts as unknown; see what its query returns")


def _bundle_batches(read: _ShardRead, statistics: ReadStatistics) -> Iterator[pa.RecordBatch]:
    if read.wanted.statistics:
        yield _statistics_batch(read, statistics)
        return
    columns = _wide_table(read, BUNDLES, read.wanted.bundles)
    read.bundles = len(columns["bundle"])
    yield read.batch(BUNDLE_SAMPLES, columns)
    if not read.bundles and read.wanted.summing:
        topics = _wide_table(read, TOPICS, _topic_queries(read, None))
        yield read.batch(BUNDLE_SAMPLES, named_topics(topics, read.dropped, read.notes))


def _hot_topic_batches(read: _ShardRead, statistics: ReadStatistics) -> Iterator[pa.RecordBatch]:
    inside = InsideBundles(read.request.bundles)
    if read.wanted.statistics:
        topics = _statistics_batch(read, statistics)
        yield topics.filter(inside.holds(topics["topic"]))
        return
    queries = _topic_queries(read, read.request.namespaces)
    jobs = {name: partial(inside.asked, _column(read, TOPICS, name, queries[name])) for name in TRAFFIC}
    columns = _columns(read, TOPICS, side_by_side(jobs, at_once=1))
    yield read.batch(BUNDLE_SAMPLES, named_topics(columns, read.dropped, read.notes))


def _topic_queries(read: _ShardRead, namespaces: Sequence[str] | None) -> dict[str, str]:
    """The queries about the topics of these namespaces, or of all."""
    return {name: topics_in(promql, namespaces) for name, promql in read.wanted.topics.items()}


def _statistics_batch(read: _ShardRead, statistics: ReadStatistics) -> pa.RecordBatch:
    """The topics from the brokers' own statistics. A broker that did not answer gets a note and no load."""
    answers = statistics(read.wanted.statistics)
    for why in sorted(set(answers.failed.values())):
        silent = some([pod for pod, theirs in answers.failed.items() if theirs == why], _NAMED)
        read.notes.add(f"{read.table} of {silent} are not measured: {why}")
    read.answered = list(answers.pods)
    return read.batch(BUNDLE_SAMPLES, named_topics(answers.topics, read.dropped, read.notes))


def _wide_table(read: _ShardRead, table: Table, queries: Mapping[str, str]) -> dict[str, pa.Array]:
    """The columns of `table`; no rows without a query."""
    if not queries:
        return {key: pa.array([], pa.string()) for key in table.keys}
    jobs = {name: _column(read, table, name, promql) for name, promql in queries.items()}
    return _columns(read, table, side_by_side(jobs))


def _columns(read: _ShardRead, table: Table, answers: Mapping[str, Samples]) -> dict[str, pa.Array]:
    """The columns of `table`. answers: one per column."""
    labels, values = pivot(list(answers.values()), table.keys)
    columns = {name: read.good(column) for name, column in zip(answers, values, strict=True)}
    return dict(zip(table.keys, labels, strict=True)) | columns


def _column(read: _ShardRead, table: Table, name: str, promql: str) -> Callable[[], Samples]:
    """The query of one column. A built-in query takes only the newest of duplicates, if there are known ones."""
    if table is BUNDLES and name in read.wanted.users:
        return partial(read.ask_user, BUNDLE + name, promql, table.keys)
    return partial(read.ask, of_newest(promql) if read.wanted.repeated else promql)


def wrong_labels(answer: Samples, keys: Sequence[str]) -> str:
    """What is wrong with the labels of `answer`, which must be exactly `keys`; empty if nothing is."""
    if not len(answer):
        return ""
    if set(answer.labels) == set(keys):
        without = [key for key in keys if not pc.all(pc.not_equal(answer.label(key), "")).as_py()]
        return f'yields series without the label {without[0]}; leave them out by {without[0]}!=""' if without else ""
    found = ", ".join(sorted(answer.labels)) or "none"
    by = ", ".join(keys)
    return f"yields series with other labels: expected {by}, found {found}; wrap it in max by ({by}) (...)"


def _named(signal: str) -> str:
    """The path of a signal's query in a policy."""
    first, *rest = signal.split("_")
    return f"source.prometheus.queries.{first}{''.join(map(str.capitalize, rest))}"


_READERS = {"brokers": read_brokers, "bundles": read_bundles, "topics": read_topics}
