"""The request of one read of Prometheus, as plain data that is sent to Spark's tasks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from trimtab_pipeline.api import Credentials, PrometheusSettings
from trimtab_pipeline.prometheus.client import LARGEST, LARGEST_OF_BROKERS, PrometheusClient
from trimtab_pipeline.prometheus.queries import TOPICS, Series, render, render_series, tables


@dataclass(frozen=True, slots=True)
class ShardRequest:
    """The queries of one shard: the PromQL of each column, restricted to the shard's brokers.

    bundles: empty when the bundles' own metrics are not read. topics: of all topics, see `topics_in`.
    custom: a user's PromQL -> name of its signal; its answer may contain brokers outside `pods`, the shard's brokers.
    statistics: pod -> base URL of the admin REST of brokers whose own statistics are read; empty when they are not.
    sampled: columns of the brokers that are computed from raw samples -> their series.
    """

    brokers: Mapping[str, str]
    bundles: Mapping[str, str]
    topics: Mapping[str, str] = field(default_factory=dict)
    custom: Mapping[str, str] = field(default_factory=dict)
    pods: Sequence[str] = ()
    statistics: Mapping[str, str] = field(default_factory=dict)
    sampled: Mapping[str, Series] = field(default_factory=dict)

    @classmethod
    def of(
        cls, settings: PrometheusSettings, pods: Sequence[str], admin: Mapping[str, str] | None = None
    ) -> ShardRequest:
        """The request for `pods` by `settings`. admin: URLs of brokers' admin REST, by pod. Raises as `tables` does."""
        broker_table, bundle_table = tables(settings)
        asked = [(table, render(table, settings, pods)) for table in (broker_table, bundle_table)]
        custom = {queries[column]: signal for table, queries in asked for column, signal in table.custom.items()}
        ours = tuple(pods) if custom else ()
        sampled = render_series(broker_table, settings, pods)
        if settings.bundle_metrics == "statistics":
            statistics = {pod: (admin or {}).get(pod, "") for pod in pods}
            return cls(asked[0][1], {}, {}, custom, ours, statistics, sampled)
        own = {} if settings.bundle_metrics == "topic" else asked[1][1]
        return cls(asked[0][1], own, render(TOPICS, settings, pods), custom, ours, sampled=sampled)

    @property
    def brokers_alone(self) -> ShardRequest:
        """This request without bundles and topics."""
        return replace(self, bundles={}, topics={}, statistics={})


@dataclass(frozen=True, slots=True)
class ReadRequest:
    """One read of all shards. It holds no credentials, because it is pickled for the tasks.

    at: evaluation time, epoch seconds. late: seconds between `at` and the start of the read.
    timeout: seconds per query. window: seconds of the rates. method, partial_response, hot_bundles, max_age: as in
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
    late: float = 0.0
    window: float = 60.0

    @classmethod
    def of(
        cls, settings: PrometheusSettings, at: float, shards: Iterable[ShardRequest], late: float = 0.0
    ) -> ReadRequest:
        """A read of `shards` by `settings`."""
        same = ("url", "timeout", "method", "partial_response", "hot_bundles", "max_age", "window")
        return cls(at=at, shards=tuple(shards), late=late, **{name: getattr(settings, name) for name in same})

    def server(self, credentials: Credentials) -> PrometheusClient:
        """A client of the server."""
        alone = all(not shard.bundles and not shard.topics for shard in self.shards)
        return PrometheusClient(
            self.url,
            self.timeout,
            credentials,
            method=self.method,
            partial_response=self.partial_response,
            largest=LARGEST_OF_BROKERS if alone else LARGEST,
        )
