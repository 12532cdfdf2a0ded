"""A PySpark Python Data Source that reads brokers and bundles from Prometheus, one partition per shard of brokers.

All work on samples happens inside the Spark task: HTTP, parsing, joining the queries' answers into wide rows,
dropping what can't be true. The driver sees one Arrow table. A shard that fails does not fail the job, as Spark would
throw away the other shards' answers; every shard ends with a *report row*, whose only non-null column is JSON:

    shard     position of the shard
    ok        whether its rows are complete
    error     why not; empty when ok
    dropped   samples not used, by cause (``NaN``, ``Infinite``, ``Negative``)
    warnings  what the server said about its answers
    bundles   how many bundles had metrics of their own
    seconds   time spent in HTTP and parsing
"""

from __future__ import annotations

import json
import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from trimtab_pipeline.prometheus import Prometheus, PrometheusError
from trimtab_pipeline.queries import BUNDLES, RESOURCES, TIMES, TOPICS, TRAFFIC, topics_in
from trimtab_pipeline.ranges import Ranges, is_bundle
from trimtab_pipeline.samples import Samples
from trimtab_pipeline.source import NO_CREDENTIALS, Credentials, PrometheusSettings
from trimtab_pipeline.topics import INSIDE, Topics, hottest
from trimtab_strategies.model.load import IntArray

Fetch = Callable[[str], Samples]
"""Answers one PromQL query. Raises `PrometheusError`."""

DRY_URL = "dry:"
"""The URL that stands for made-up samples, so that a session can be warmed up without a server."""
_DRY_ROWS = 2_000

_SECRET = "secret"  # noqa: S105  (the name of a place, not what is there)
"""Name of the option that holds the credentials: Spark hides options of such names wherever it shows them."""


BROKER_COLUMNS = (*RESOURCES, *TRAFFIC, *TIMES)
"""Values of a broker, null where the preset does not ask for one."""
_BROKER = pa.struct([("pod", pa.string()), *((name, pa.float64()) for name in BROKER_COLUMNS)])
SCHEMA = pa.schema(
    [
        *((key, pa.string()) for key in BUNDLES.keys),
        *((name, pa.float64()) for name in BUNDLES.columns),
        ("at", pa.float64()),
        ("broker", _BROKER),
        ("report", pa.string()),
        ("inside", pa.list_(INSIDE)),
    ]
)
"""Columns of every batch. A row is a bundle (``at`` is the evaluation time), a broker, or a report, which also carries
the topics inside the shard's hottest bundles."""


@dataclass(frozen=True, slots=True)
class ShardRequest:
    """PromQL of each column of the tables, restricted to the shard's brokers.

    bundles: empty when the bundles' own metrics are not to be read. topics: of all topics, see `topics_in`.
    """

    brokers: Mapping[str, str]
    bundles: Mapping[str, str]
    topics: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ReadRequest:
    """What one read asks for; travels to the tasks as JSON, apart from credentials.

    at: evaluation time, epoch seconds. timeout: seconds per query. method, partial_response, hot_bundles, max_age: of
    `PrometheusSettings`.
    """

    url: str
    at: float
    timeout: float
    shards: tuple[ShardRequest, ...]
    method: str = "POST"
    partial_response: bool | None = None
    hot_bundles: int = 0
    max_age: float = 120.0

    @classmethod
    def of(cls, settings: PrometheusSettings, at: float, shards: Iterable[ShardRequest]) -> ReadRequest:
        """A read of `shards` as `settings` say."""
        same = ("url", "timeout", "method", "partial_response", "hot_bundles", "max_age")
        return cls(at=at, shards=tuple(shards), **{name: getattr(settings, name) for name in same})

    def server(self, credentials: Credentials) -> Prometheus:
        """The server to ask."""
        return Prometheus(
            self.url, self.timeout, credentials, method=self.method, partial_response=self.partial_response
        )

    def to_json(self) -> str:
        """The form that fits into a data source option."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> ReadRequest:
        """The inverse of `to_json`."""
        fields: dict[str, Any] = json.loads(text)
        fields["shards"] = tuple(ShardRequest(**shard) for shard in fields["shards"])
        return cls(**fields)


def read_options(request: ReadRequest, credentials: Credentials, ranges: Ranges | None = None) -> dict[str, str]:
    """Options of the data source. Py4J is kept from logging them, as it does with whatever passes at level DEBUG.

    ranges: all bundles, for topics to be summed up to; None when bundles are known to be measured themselves.
    """
    logging.getLogger("py4j").setLevel(logging.INFO)
    known = {} if ranges is None else {"ranges": ranges.to_text()}
    return {"request": request.to_json(), _SECRET: credentials.to_json(), **known}


class PrometheusDataSource(DataSource):
    """``spark.read.format("prometheus").option("request", ReadRequest.to_json())``.

    `read_options` makes the options, with the credentials apart from the request.
    """

    def __init__(self, options: Mapping[str, str]) -> None:
        self.request = ReadRequest.from_json(options["request"])
        self._credentials = Credentials.from_json(options[_SECRET]) if _SECRET in options else NO_CREDENTIALS
        self._ranges = options.get("ranges")

    @classmethod
    def name(cls) -> str:
        """The format's name."""
        return "prometheus"

    def schema(self) -> str:
        """`SCHEMA` as Spark's SQL writes it."""
        return ", ".join(f"{field.name} {_ddl(field.type)}" for field in SCHEMA)

    def reader(self, schema: Any) -> PrometheusReader:  # noqa: ARG002  (there is only one)
        """A reader of the request."""
        return PrometheusReader(self.request, self._credentials, self._ranges)


class PrometheusReader(DataSourceReader):
    """Reads each shard in a task of its own."""

    def __init__(
        self, request: ReadRequest, credentials: Credentials = NO_CREDENTIALS, ranges: str | None = None
    ) -> None:
        self.request = request
        self._credentials = credentials
        self._ranges = ranges

    def partitions(self) -> list[InputPartition]:
        """One per shard."""
        return [InputPartition(shard) for shard in range(len(self.request.shards))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one shard, then its report."""
        shard: int = partition.value
        if self.request.url == DRY_URL:
            yield from read_shard(self.request, shard, _dry_samples)
            return
        ranges = None if self._ranges is None else Ranges.from_text(self._ranges)
        with self.request.server(self._credentials) as server:
            yield from read_shard(self.request, shard, lambda promql: server.query(promql, self.request.at), ranges)


def read_shard(
    request: ReadRequest, shard: int, fetch: Fetch, ranges: Ranges | None = None
) -> Iterator[pa.RecordBatch]:
    """Brokers and bundles of shard number `shard`, then its report. Does not raise what `fetch` may raise."""
    begin, reading = time.perf_counter(), Reading(request, fetch, ranges)
    report: dict[str, Any] = {"shard": shard, "ok": True, "error": ""}
    try:
        yield from reading.rows(request.shards[shard])
    except PrometheusError as error:
        report |= {"ok": False, "error": str(error)}
    report |= reading.report() | {"seconds": time.perf_counter() - begin}
    yield _batch(report=pa.array([json.dumps(report)]), inside=reading.inside())


class Reading:
    """What one task reads of one shard: rows, and what is told of them afterwards."""

    def __init__(self, request: ReadRequest, fetch: Fetch, ranges: Ranges | None) -> None:
        self._request, self._fetch, self._ranges = request, fetch, ranges
        self._dropped, self._warnings = Counter[str](), set[str]()
        self._own = 0
        self._inside: dict[str, pa.Array] = {}

    def rows(self, wanted: ShardRequest) -> Iterator[pa.RecordBatch]:
        """Brokers, then bundles: their own metrics, else what their topics come to. Raises `PrometheusError`."""
        brokers = self._wide(("pod",), BROKER_COLUMNS, wanted.brokers)
        bundles = self._bundles(wanted, brokers)
        yield _batch(broker=pa.StructArray.from_arrays(list(brokers.values()), fields=list(_BROKER)))
        yield _batch(**bundles, at=pa.array(np.full(len(bundles["pod"]), self._request.at)))

    def report(self) -> dict[str, Any]:
        """What is told of the rows."""
        return {"dropped": self._dropped, "warnings": sorted(self._warnings), "bundles": self._own}

    def inside(self) -> pa.ListArray:
        """One list, of the topics inside the hottest bundles."""
        if not self._inside:
            return pa.nulls(1, pa.list_(INSIDE))
        rows = pa.StructArray.from_arrays([self._inside[part.name] for part in INSIDE], fields=list(INSIDE))
        return pa.ListArray.from_arrays(pa.array([0, len(rows)], pa.int32()), rows)

    def _bundles(self, wanted: ShardRequest, brokers: Mapping[str, pa.Array]) -> dict[str, pa.Array]:
        bundles = self._wide(BUNDLES.keys, BUNDLES.columns, wanted.bundles)
        self._own = len(bundles["bundle"])
        if self._own or self._ranges is None:
            self._look_inside(wanted, bundles)
            return bundles
        topics = self._topics(wanted.topics, self._ranges)
        if topics.outside:
            self._dropped["Unknown"] += topics.outside
        summed = topics.by_bundle()
        self._inside = topics.within(summed.row[self._hottest(summed.columns())])
        return summed.with_idle(self._answered(brokers)).columns()

    def _look_inside(self, wanted: ShardRequest, bundles: Mapping[str, pa.Array]) -> None:
        """Ask for the topics of the hottest bundles' namespaces; what is no bundle is passed over."""
        names = bundles["bundle"].take(pa.array(self._hottest(bundles))).to_pylist()
        if hot := list(dict.fromkeys(filter(is_bundle, names))):
            ranges = Ranges.of(hot)
            topics = self._topics(wanted.topics, ranges, ranges.namespaces)
            self._inside = topics.within(np.arange(len(ranges)))

    def _hottest(self, bundles: Mapping[str, pa.Array]) -> IntArray:
        load = {name: bundles[name].to_numpy(zero_copy_only=False) for name in TRAFFIC}
        return hottest(load, self._request.hot_bundles)

    def _topics(self, queries: Mapping[str, str], ranges: Ranges, only: Iterable[str] | None = None) -> Topics:
        table = self._wide(TOPICS.keys, TOPICS.columns, {name: topics_in(q, only) for name, q in queries.items()})
        return Topics.placed([table[key] for key in TOPICS.keys], [table[name] for name in TOPICS.columns], ranges)

    def _answered(self, brokers: Mapping[str, pa.Array]) -> list[str]:
        """Pods whose own metrics are young enough to say that what they do not report does not exist."""
        young = pc.greater_equal(brokers["traffic_time"], self._request.at - self._request.max_age)
        pods: list[str] = brokers["pod"].filter(young).to_pylist()
        return pods

    def _wide(self, keys: Sequence[str], names: Sequence[str], queries: Mapping[str, str]) -> dict[str, pa.Array]:
        """Columns `keys` and `names` of one table; no rows when nothing is asked."""
        if not queries:
            return {key: pa.array([], pa.string()) for key in keys} | {n: pa.array([], pa.float64()) for n in names}
        answers = {name: self._fetch(promql) for name, promql in queries.items()}
        self._warnings.update(text for answer in answers.values() for text in answer.warnings)
        labels, values = pivot(list(answers.values()), keys)
        columns = {name: _clean(column, self._dropped) for name, column in zip(answers, values, strict=True)}
        missing = {name: pa.nulls(len(labels[0]), pa.float64()) for name in names if name not in columns}
        return dict(zip(keys, labels, strict=True)) | {name: (columns | missing)[name] for name in names}


def _batch(**columns: pa.Array) -> pa.RecordBatch:
    """A batch of `SCHEMA` with these columns, null in the others."""
    (rows,) = {len(column) for column in columns.values()}
    arrays = [columns.get(field.name, pa.nulls(rows, field.type)) for field in SCHEMA]
    return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)


def _ddl(kind: pa.DataType) -> str:
    if pa.types.is_struct(kind):
        return f"struct<{', '.join(f'{field.name}: {_ddl(field.type)}' for field in kind)}>"
    if pa.types.is_list(kind):
        return f"array<{_ddl(kind.value_type)}>"
    return {pa.string(): "string", pa.float64(): "double"}[kind]


def pivot(answers: Sequence[Samples], keys: Sequence[str]) -> tuple[list[pa.Array], list[pa.Array]]:
    """Key columns, and one value column per answer, null where an answer lacks the row.

    Servers answer queries over the same series in the same order, so usually the columns fit as they are.
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


def _clean(column: pa.DoubleArray, dropped: Counter[str]) -> pa.DoubleArray:
    """The column with null for what no rate, size or count can be; `dropped` counts causes."""
    values = column.to_numpy(zero_copy_only=False)
    good = np.isfinite(values) & (values >= 0)
    if good.all():
        return column
    present = column.is_valid().to_numpy(zero_copy_only=False)
    causes = {"NaN": np.isnan(values), "Infinite": np.isinf(values), "Negative": np.isfinite(values) & (values < 0)}
    for cause, rows in causes.items():
        if count := int((rows & present).sum()):
            dropped[cause] += count
    return pa.array(values, mask=~good)


def _dry_samples(_: str) -> Samples:
    names = pa.array([f"dry/{row}" for row in range(_DRY_ROWS)])
    return Samples({"bundle": names, "pod": names}, pa.array(np.ones(_DRY_ROWS)))
