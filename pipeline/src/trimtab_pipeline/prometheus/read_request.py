"""The request of one read of Prometheus, as plain data that is sent to Spark's tasks."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Literal

import pyarrow as pa

from trimtab_pipeline.api import NO_CREDENTIALS, Credentials, PrometheusSettings
from trimtab_pipeline.columns import BROKER_SAMPLES, BUNDLE_SAMPLES
from trimtab_pipeline.prometheus.broker_presets import BEYOND
from trimtab_pipeline.prometheus.client import LARGEST, LARGEST_OF_BROKERS, PrometheusClient
from trimtab_pipeline.prometheus.containers import NO_NAMES, Containers
from trimtab_pipeline.prometheus.mislabelled import limits_elsewhere, traffic_elsewhere
from trimtab_pipeline.prometheus.queries import TOPICS, RawRead, combined, raw_reads, render, sent_bytes, tables

TableName = Literal["brokers", "bundles", "topics"]
"""What is read. ``topics``: only those of `ReadRequest.bundles`."""
SAMPLES: Mapping[TableName, pa.Schema] = {
    "brokers": BROKER_SAMPLES,
    "bundles": BUNDLE_SAMPLES,
    "topics": BUNDLE_SAMPLES,
}
"""The columns of each table."""
_LONGEST = {"POST": 16_000, "GET": 8_000}
"""Bytes of a request that servers usually accept. VictoriaMetrics allows 16 KiB of a query, nginx 8 KiB of a URL."""
_REST = 150
"""Bytes of a request's other parameters and of its path, without the URL of the server."""
_TIMEOUTS = 2.0
"""Time budget for all queries of a shard, as a multiple of the timeout of one query."""


@dataclass(frozen=True, slots=True)
class ShardRequest:
    """The queries for the brokers of one shard. pods: the names of their pods.

    raw: for raw samples. values: an instant query per signal; they are usually combined into one query.
    ahead: the query that counts samples with a time in the future. apart: that for limits that contradict each other.
    Both are empty when that is not checked. elsewhere: for limits and traffic, a query for series that name the pods in
    another label.
    own: a user's instant query of each signal that has one. rated: for each of these queries that takes a rate, the
    range selector of its counter.
    bundles: query of each column; empty when the bundles' own metrics are not read. users: the columns whose query a
    user wrote. topics: a query for each column of the topics, see `topics_in`.
    device: the network device that counts; empty if none is declared.
    summing: whether topics are read, to sum them by bundle, if no bundle of the shard has metrics of its own.
    statistics: base URL of the admin REST of each pod, when the brokers' own statistics are read.
    containers: what is known about the brokers' containers.
    repeated: whether duplicate series are known to exist.
    """

    pods: Sequence[str]
    raw: tuple[RawRead, ...] = ()
    values: Mapping[str, str] = field(default_factory=dict)
    ahead: str = ""
    apart: str = ""
    elsewhere: Mapping[str, str] = field(default_factory=dict)
    own: Mapping[str, str] = field(default_factory=dict)
    rated: Mapping[str, str] = field(default_factory=dict)
    bundles: Mapping[str, str] = field(default_factory=dict)
    users: frozenset[str] = frozenset()
    topics: Mapping[str, str] = field(default_factory=dict)
    device: str = ""
    summing: bool = True
    statistics: Mapping[str, str] = field(default_factory=dict)
    repeated: bool = False
    containers: Containers = NO_NAMES

    @classmethod
    def of(
        cls,
        settings: PrometheusSettings,
        pods: Sequence[str],
        admin: Mapping[str, str] | None = None,
        *,
        containers: Containers = NO_NAMES,
        summing: bool = True,
        repeated: bool = False,
    ) -> ShardRequest:
        """The request for `pods` by `settings`. admin: URLs of brokers' admin REST, by pod. Raises as `tables` does."""
        brokers, bundles = tables(settings)
        containers = replace(containers, given=settings.container)
        templates = {"values": brokers.values, "own": brokers.own, "rated": brokers.rated}
        if settings.bundle_metrics != "statistics":
            templates |= {"bundles": bundles.queries, "topics": TOPICS.queries}
        reads: dict[str, Mapping[str, str]] = {
            name: render(those, settings, pods, containers) for name, those in templates.items()
        }
        checks = render({"ahead": brokers.ahead, "apart": brokers.apart}, settings, pods, containers)
        elsewhere = {"traffic": traffic_elsewhere(settings), "limits": limits_elsewhere(settings, pods)}
        if settings.bundle_metrics == "topic":
            reads["bundles"] = {}
        told = {pod: (admin or {}).get(pod, "") for pod in pods} if settings.bundle_metrics == "statistics" else {}
        return cls(
            tuple(pods),
            raw_reads(brokers.series, settings, pods),
            ahead=checks["ahead"],
            apart=checks["apart"],
            elsewhere=elsewhere,
            containers=containers,
            users=bundles.own,
            device=settings.network_device,
            summing=summing and settings.bundle_metrics != "bundle",
            statistics=told,
            repeated=repeated,
            **reads,
        )

    def value_queries(self, *, together: bool) -> Mapping[str, str]:
        """The instant queries by signal, or all combined into one under the name "" (see `combined`).

        The combined query is too long for a URL, so GET sends one query per signal.
        """
        return {"": combined(self.values)} if together and self.values else self.values


@dataclass(frozen=True, slots=True)
class ReadRequest:
    """One read of all shards of a policy. It holds no credentials, because it is pickled for the tasks.

    at: evaluation time, epoch seconds. late: seconds from `at` until the request was made. made: when it was made,
    epoch seconds; a task may wait for a free core afterwards.
    timeout: seconds per query. budget: seconds for all queries of a shard. left: seconds until the deadline of the
    whole measurement. window: seconds of the rates.
    method, partial_response, parameters: as in `PrometheusSettings`. bundles: those whose topics the table ``topics``
    holds. statistics_timeout: seconds for one broker's statistics. most: pods that one query of a table may name, where
    the server refused more.
    """

    url: str
    at: float
    timeout: float
    shards: tuple[ShardRequest, ...]
    policy: str = ""
    method: str = "POST"
    partial_response: bool | None = None
    parameters: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    late: float = 0.0
    window: float = 60.0
    budget: float = 20.0
    bundles: tuple[str, ...] = ()
    statistics_timeout: float = 10.0
    left: float = float("inf")
    most: Mapping[str, int] = field(default_factory=dict)
    made: float = field(default_factory=time.time, compare=False)

    @classmethod
    def of(
        cls,
        settings: PrometheusSettings,
        at: float,
        shards: Iterable[ShardRequest],
        late: float = 0.0,
        *,
        policy: str = "",
        left: float = float("inf"),
        bundles: Iterable[str] = (),
        most: Mapping[str, int] = MappingProxyType({}),
        now: float | None = None,
    ) -> ReadRequest:
        """A read of `shards` by `settings`. left: seconds until the deadline. now: epoch seconds; None: current time.

        Long after `at`, the server also has newer samples, so the check for samples from the future is left out.
        """
        past = (time.time() if now is None else now) - at > settings.trust.max_clock_skew + BEYOND
        return cls(
            settings.url,
            at,
            settings.timeout,
            tuple(replace(shard, ahead="") if past else shard for shard in shards),
            policy,
            settings.method,
            settings.partial_response,
            settings.parameters,
            late,
            settings.window,
            min(_TIMEOUTS * settings.timeout, left),
            tuple(bundles),
            settings.statistics.timeout,
            left,
            dict(most),
        )

    def later(self, seconds: float, *, repeated: bool) -> ReadRequest:
        """The next read of the same shards, `seconds` after this one.

        repeated: whether this read found duplicate series.
        """
        left = max(0.0, self.left - seconds)
        shards = tuple(replace(shard, repeated=repeated) for shard in self.shards)
        return replace(self, shards=shards, left=left, budget=min(_TIMEOUTS * self.timeout, left))

    @property
    def longest(self) -> int:
        """Bytes that a query may have in the URL or the form (`queries.sent_bytes`)."""
        return _LONGEST[self.method] - _REST - sent_bytes(self.url) - sent_bytes(f"{self.parameters}")

    @property
    def namespaces(self) -> list[str]:
        """The namespaces of the `bundles`."""
        return sorted({bundle.rpartition("/")[0] for bundle in self.bundles})

    def server(self, credentials: Credentials, table: TableName = "bundles") -> PrometheusClient:
        """A client of the server, for reads of `table`."""
        return PrometheusClient(
            self.url,
            self.timeout,
            credentials,
            method=self.method,
            partial_response=self.partial_response,
            parameters=self.parameters,
            largest=LARGEST_OF_BROKERS if table == "brokers" else LARGEST,
        )


@dataclass(frozen=True, slots=True)
class Secrets:
    """The credentials of one policy's reads: of its source, and of the brokers whose statistics are read."""

    source: Credentials = NO_CREDENTIALS
    brokers: Credentials = NO_CREDENTIALS
