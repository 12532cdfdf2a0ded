"""Sends the queries for one shard of brokers within a time budget, and collects what the shard's report contains.

A query that names many pods may be too long for the server, or for a proxy on the way. Then several queries are sent,
each about some of the pods. The length that servers usually accept is known beforehand (`ReadRequest.longest`). If a
server refuses a query for its size nevertheless, queries about half as many pods follow, down to one pod.
"""

from __future__ import annotations

import json
import math
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from trimtab_pipeline.prometheus.client import (
    PrometheusError,
    PrometheusFormatError,
    PrometheusStatusError,
    PrometheusUnreachableError,
    QueryTooLargeError,
)
from trimtab_pipeline.prometheus.queries import asked_late, naming, sent_bytes
from trimtab_pipeline.prometheus.read_request import ReadRequest, TableName
from trimtab_pipeline.prometheus.sample_batches import batch, good
from trimtab_pipeline.prometheus.samples import Samples

_LATE = 1.0  # seconds: a shorter delay after the evaluation time is ignored
Fetch = Callable[[str, float], Samples]
"""Answers one PromQL query within the given number of seconds. Threads call it. Raises `PrometheusError`."""
_SMALLEST = (
    "it names one broker at most, so it can't be split: raise that limit of the server or of the proxy before it, or "
    "shorten source.prometheus.queries"
)
Clock = Callable[[], float | None]
"""Seconds that the server's clock was ahead of ours at its last answer, None if unknown."""


class WrongQueryError(PrometheusError):
    """A user's query can't be used. The message says where it is, what was expected and what was found."""


class ShardRead:
    """Sends the queries for one shard within the time budget, and collects what its report contains."""

    def __init__(self, table: TableName, request: ReadRequest, shard: int, fetch: Fetch) -> None:
        self.request, self.wanted = request, request.shards[shard]
        self.table, self._shard, self._fetch = table, shard, fetch
        self._begun, self._late = time.monotonic(), request.late + max(0.0, time.time() - request.made)
        self.dropped, self.notes, self._warnings = Counter[str](), set[str](), set[str]()
        self.bundles = 0
        self.answered: list[str] | None = None
        self.repeated: list[str] = []
        self.node_limits: dict[str, list[str]] = {}
        self.apart: dict[str, str] = {}
        self.unclear: list[str] = []
        self._naming = naming(self.wanted.pods)
        self._most = request.most.get(table, len(self.wanted.pods))
        self._refused = table in request.most

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
        pods: dict[str, Any] = {"answered": self.answered, "repeated": self.repeated, "node_limits": self.node_limits}
        pods |= {"apart": self.apart, "unclear": self.unclear}
        took = {"seconds": time.monotonic() - self._begun, "most": self._most if self._refused else None}
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
        """The answer to one query, asked in parts if it is too large. Raises as `fetch` does, or when time is over."""
        answers, waiting = list[Samples](), deque([self.wanted.pods])
        while waiting:
            pods = waiting.popleft()
            if len(groups := self._groups(promql, pods)) > 1:
                waiting.extendleft(reversed(groups))
                continue
            try:
                answers.append(self._ask(self._about(promql, pods)))
            except QueryTooLargeError as error:
                if len(pods) <= 1 or self._naming not in promql:
                    raise QueryTooLargeError(f"{error}; {_SMALLEST}") from error
                self._most, self._refused = min(self._most, math.ceil(len(pods) / 2)), True
                waiting.appendleft(pods)
        return Samples.joined(answers)

    def _groups(self, promql: str, pods: Sequence[str]) -> list[Sequence[str]]:
        """The `pods` in groups, as few as the server accepts in queries about a group each."""
        longest = self.request.longest
        if self._naming not in promql or (len(pods) <= self._most and sent_bytes(self._about(promql, pods)) <= longest):
            return [pods]
        sizes = {min(self._most, math.ceil(len(pods) / count)) for count in range(1, len(pods) + 1)}
        if sent_bytes(self._about(promql, pods[:1])) > longest:
            sizes = {max(sizes)}  # it would be too long without the pods, too: the server decides
        for size in sorted(sizes, reverse=True):
            groups = [pods[k : k + size] for k in range(0, len(pods), size)]
            if max(sent_bytes(self._about(promql, group)) for group in groups) <= longest:
                break
        return groups

    def _about(self, promql: str, pods: Sequence[str]) -> str:
        """A query of the shard, about these of its pods only."""
        return promql if pods == self.wanted.pods else promql.replace(self._naming, naming(pods))

    def _ask(self, promql: str) -> Samples:
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
