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
    node_limits   resource -> pods whose limit is what their node can allocate
    apart         pod -> what is wrong with several series about it that are no replicas (`transform.copies`)
    unclear       pods whose network use is unknown, because it is unclear which network devices count
    seconds       time spent in HTTP and parsing
    most          pods that one query may name, because the server refused more; null if it refused none for its size
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from trimtab_pipeline.api import StatisticsSettings
from trimtab_pipeline.columns import BROKER_SAMPLES, BUNDLE_SAMPLES, TRAFFIC
from trimtab_pipeline.prometheus.broker_statistics import WITHIN, StatisticsAnswer, ask_brokers
from trimtab_pipeline.prometheus.client import PrometheusError, PrometheusUnreachableError, side_by_side
from trimtab_pipeline.prometheus.containers import odd_limits, own_rows, settled_limits
from trimtab_pipeline.prometheus.mislabelled import limits_note, traffic_note
from trimtab_pipeline.prometheus.queries import (
    BUNDLE,
    BUNDLES,
    TOPICS,
    RawRead,
    Table,
    of_newest,
    sent_bytes,
    topics_in,
)
from trimtab_pipeline.prometheus.read_request import ReadRequest, Secrets, TableName
from trimtab_pipeline.prometheus.sample_batches import (
    InsideBundles,
    RawSeries,
    counted_network,
    differing_pods,
    named_topics,
    pivot,
    rated_series,
    raw_rows,
    raw_series,
    repeated_pods,
    total_or_parts,
    unclear_devices,
    unusable,
    value_rows,
    without_replaced,
)
from trimtab_pipeline.prometheus.samples import Samples
from trimtab_pipeline.prometheus.shard_read import Clock, Fetch, ShardRead
from trimtab_strategies.model import some

_NAMED = 3  # pods that a note names
DRY_URL = "dry:"
"""A URL that stands for a server without samples, so a session can be warmed up."""
ReadStatistics = Callable[[Mapping[str, str]], StatisticsAnswer]
"""Reads the topics of brokers (pod -> URL of their admin REST)."""


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
    read = ShardRead("brokers", request, shard, fetch)
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
    read = ShardRead("bundles", request, shard, fetch)
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
    read = ShardRead("topics", request, shard, fetch)
    return read.reported(BUNDLE_SAMPLES, lambda: _hot_topic_batches(read, statistics), clock)


def _broker_batches(read: ShardRead) -> Iterator[pa.RecordBatch]:
    """Raw samples, then single values."""
    wanted, window = read.wanted, read.request.window
    answers = side_by_side(_broker_jobs(read))
    singles = value_rows((name, answer) for (kind, name), answer in answers.items() if kind == "value")
    singles, read.node_limits = settled_limits(singles, wanted.containers.unlimited)
    series = [one for k, raw in enumerate(wanted.raw) for one in _raw(read, answers["raw", str(k)], raw)]
    series = _without_stale_traffic(series, singles) if "traffic_time" in wanted.values else series
    series, unclear = counted_network(total_or_parts(without_replaced(series)), wanted.device)
    read.unclear = sorted(unclear)
    read.notes.update(unclear_devices(unclear))
    read.apart = differing_pods(series, answers.get(("check", "limits")))
    read.dropped.update(unusable(series, window))
    read.repeated = repeated_pods(one for one in series if one.signal in TRAFFIC)
    for name in wanted.rated:
        series += rated_series(answers["rated", name].of_pods(wanted.pods), name)
    yield read.batch(BROKER_SAMPLES, raw_rows(series))
    read.notes.update(odd_limits(singles))
    read.notes.update(filter(None, _mislabelled(read, series, singles)))
    rows = read.batch(BROKER_SAMPLES, singles | {"value": read.good(singles["value"])})
    yield rows.filter(rows["value"].is_valid())


def _broker_jobs(read: ShardRead) -> dict[tuple[str, str], Callable[[], Samples]]:
    """The queries about brokers. Keys: the kind of the answer, and the signal or the number of the query."""
    wanted = read.wanted
    values = wanted.value_queries(together=read.request.method == "POST")
    checks = {"ahead": wanted.ahead} if wanted.ahead else {}
    return {
        **{("raw", str(k)): partial(read.ask, raw.promql) for k, raw in enumerate(wanted.raw)},
        **{("value", name): partial(read.ask, promql) for name, promql in values.items()},
        **{("value", name): partial(read.check, name, promql) for name, promql in checks.items()},
        **{("value", name): partial(read.ask_user, name, promql, ("pod",)) for name, promql in wanted.own.items()},
        **({("check", "limits"): partial(read.check, "limits", wanted.apart)} if wanted.apart else {}),
        **{("rated", name): partial(read.check, f"samples of {name}", text) for name, text in wanted.rated.items()},
    }


def _raw(read: ShardRead, answer: Samples, raw: RawRead) -> Iterator[RawSeries]:
    """The series of the brokers in an answer; those of other containers of their pods are left out."""
    if raw.every:
        answer, notes = own_rows(answer, read.wanted.containers)
        read.notes.update(notes)
    return raw_series(answer, raw.series)


def _mislabelled(read: ShardRead, series: Iterable[RawSeries], singles: Mapping[str, pa.Array]) -> Iterator[str]:
    """What is wrong with the labels of metrics, if none of a kind is found; empty texts if nothing is.

    A server that does not answer this has answered all that was measured: then there is no note.
    """
    wanted, signals = read.wanted, {*singles["signal"].to_pylist()}
    if "traffic_time" in wanted.values and not any(one.signal in TRAFFIC for one in series):
        with suppress(PrometheusError):
            yield traffic_note(read.ask(wanted.elsewhere["traffic"]))
    if wanted.pods and "cpu_limit" in wanted.values and not {"cpu_limit", "memory_limit"} & signals:
        with suppress(PrometheusError):
            yield limits_note(read.ask(wanted.elsewhere["limits"]))


def _without_stale_traffic(series: Iterable[RawSeries], singles: Mapping[str, pa.Array]) -> list[RawSeries]:
    """`series` without the traffic of pods whose own metrics have disappeared; their old samples can still be read."""
    pods = set(singles["pod"].filter(pc.equal(singles["signal"], "traffic_time")).to_pylist())
    return [one for one in series if one.signal not in TRAFFIC or one.pod in pods]


def _bundle_batches(read: ShardRead, statistics: ReadStatistics) -> Iterator[pa.RecordBatch]:
    if read.wanted.statistics:
        yield _statistics_batch(read, statistics)
        return
    columns = _wide_table(read, BUNDLES, read.wanted.bundles)
    read.bundles = len(columns["bundle"])
    yield read.batch(BUNDLE_SAMPLES, columns)
    if not read.bundles and read.wanted.summing:
        topics = _wide_table(read, TOPICS, _topic_queries(read, None))
        yield read.batch(BUNDLE_SAMPLES, named_topics(topics, read.dropped, read.notes))


def _hot_topic_batches(read: ShardRead, statistics: ReadStatistics) -> Iterator[pa.RecordBatch]:
    inside = InsideBundles(read.request.bundles)
    if read.wanted.statistics:
        topics = _statistics_batch(read, statistics)
        yield topics.filter(inside.holds(topics["topic"]))
        return
    for namespaces in _groups(read.request.namespaces, read.request.longest // 2):  # the other half is for the pods
        queries = _topic_queries(read, namespaces)
        jobs = {name: partial(inside.asked, _column(read, TOPICS, name, queries[name])) for name in TRAFFIC}
        columns = _columns(read, TOPICS, side_by_side(jobs, at_once=1))
        yield read.batch(BUNDLE_SAMPLES, named_topics(columns, read.dropped, read.notes))


def _groups(namespaces: Sequence[str], longest: int) -> Iterator[Sequence[str]]:
    """Groups of namespaces whose names have about `longest` bytes in a query."""
    group, size = list[str](), 0
    for name in namespaces:
        if group and size + sent_bytes(f"|{name}") > longest:
            yield group
            group, size = [], 0
        group.append(name)
        size += sent_bytes(f"|{name}")
    yield group


def _topic_queries(read: ShardRead, namespaces: Sequence[str] | None) -> dict[str, str]:
    """The queries about the topics of these namespaces, or of all."""
    return {name: topics_in(promql, namespaces) for name, promql in read.wanted.topics.items()}


def _statistics_batch(read: ShardRead, statistics: ReadStatistics) -> pa.RecordBatch:
    """The topics from the brokers' own statistics. A broker that did not answer gets a note and no load."""
    answers = statistics(read.wanted.statistics)
    for why in sorted(set(answers.failed.values())):
        silent = some([pod for pod, theirs in answers.failed.items() if theirs == why], _NAMED)
        read.notes.add(f"{read.table} of {silent} are not measured: {why}")
    read.answered = list(answers.pods)
    return read.batch(BUNDLE_SAMPLES, named_topics(answers.topics, read.dropped, read.notes))


def _wide_table(read: ShardRead, table: Table, queries: Mapping[str, str]) -> dict[str, pa.Array]:
    """The columns of `table`; no rows without a query."""
    if not queries:
        return {key: pa.array([], pa.string()) for key in table.keys}
    jobs = {name: _column(read, table, name, promql) for name, promql in queries.items()}
    return _columns(read, table, side_by_side(jobs))


def _columns(read: ShardRead, table: Table, answers: Mapping[str, Samples]) -> dict[str, pa.Array]:
    """The columns of `table`. answers: one per column."""
    labels, values = pivot(list(answers.values()), table.keys)
    columns = {name: read.good(column) for name, column in zip(answers, values, strict=True)}
    return dict(zip(table.keys, labels, strict=True)) | columns


def _column(read: ShardRead, table: Table, name: str, promql: str) -> Callable[[], Samples]:
    """The query of one column. A built-in query takes only the newest of duplicates, if there are known ones."""
    if table is BUNDLES and name in read.wanted.users:
        return partial(read.ask_user, BUNDLE + name, promql, table.keys)
    return partial(read.ask, of_newest(promql) if read.wanted.repeated else promql)


_READERS = {"brokers": read_brokers, "bundles": read_bundles, "topics": read_topics}
