"""The cycle of one policy: what is read for it, and what its shards get."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import pyarrow as pa
import pyarrow.compute as pc

from trimtab_pipeline.api import PrometheusSettings, Topology
from trimtab_pipeline.columns import BUNDLE_STATE, TRAFFIC
from trimtab_pipeline.history.files import read_state
from trimtab_pipeline.history.state import NO_STATE, LastState
from trimtab_pipeline.prometheus.containers import Containers
from trimtab_pipeline.prometheus.read_request import ReadRequest, Secrets, ShardRequest
from trimtab_pipeline.transform.relations import TARGETS, Cycle
from trimtab_pipeline.transform.snapshot import targets
from trimtab_pipeline.transform.topic_to_bundle import HashRanges

_BROKERS_EACH = 10  # brokers per shard, if enough tasks run at once; each shard sends its own queries
_AT_LEAST = 2  # shards, if there are that many brokers and tasks
_LITTLE = 0.5  # seconds of reading up to which a second task does not pay for the memory of its worker
Shards = tuple[tuple[str, ...], ...]
"""Pods of each shard."""


@dataclass(frozen=True, slots=True)
class ShardOrders:
    """The order to measure the shards of a policy; plain data that is sent to Spark's tasks.

    tables: what is measured: the brokers alone, the brokers and the bundles, or only the topics of `read.bundles`.
    targets: `relations.TARGETS`. ranges: hash ranges of all bundles, if topics are added up.
    small: whether it is little work, so one task of Spark measures all shards.
    """

    tables: Literal["brokers", "bundles", "topics"]
    read: ReadRequest
    secrets: Secrets
    cycle: Cycle
    targets: pa.Table
    ranges: HashRanges | None = None
    small: bool = False

    def of_shard(self, shard: int | None) -> pa.Table:
        """The `targets` in a shard; None: those in no shard, because they have no pod."""
        shards = self.targets["shard"]
        return self.targets.filter(shards.is_null() if shard is None else pc.equal(shards, shard))


@dataclass(frozen=True, slots=True)
class PolicyCycle:
    """The cycle of one policy.

    last: the state that it continues from. ranges: hash ranges of all bundles, if topics are summed because bundles
    have no metrics of their own. asked, ends: times of its request and its deadline, in seconds of the monotonic clock.
    most: as in `ReadRequest`. past: whether it measures a past time. Of bundles it then reads only the traffic, and its
    topology has no owners. reading: seconds of reading in the last cycle, as far as known.
    """

    cycle: Cycle
    settings: PrometheusSettings
    topology: Topology
    asked: float
    ends: float
    last: LastState = NO_STATE
    ranges: HashRanges | None = None
    most: Mapping[str, int] = field(default_factory=dict)
    past: bool = False
    reading: float = 0.0

    @property
    def name(self) -> str:
        """The policy (``namespace/name``)."""
        return self.cycle.policy

    def orders(self, parallelism: int, *, bundles: bool) -> ShardOrders:
        """The order for an engine that runs `parallelism` tasks at once. bundles: whether they are measured, too."""
        shards = self._shards(parallelism)
        last, not_before = self.last.brokers, self.cycle.at - self.cycle.horizon
        return ShardOrders(
            "bundles" if bundles else "brokers",
            self._read([self._shard(pods) for pods in shards]),
            Secrets(self.settings.credentials, self.settings.statistics.credentials),
            self.cycle,
            targets(self.topology, shards, last, not_before, dict(self.settings.queries)),
            self.ranges if bundles else None,
            small=len(pods_of(self.topology)) <= _BROKERS_EACH and self.reading < _LITTLE,
        )

    def topic_orders(self, orders: ShardOrders, hot: pa.Table) -> ShardOrders:
        """The order to read the topics in `hot` bundles, on their pods. orders: those of the brokers and bundles.

        One shard is enough for Prometheus, which returns only the topics of the query's namespaces. A broker always
        returns all of its topics, so reads from brokers keep their shards.
        """
        pods = sorted(set(hot["pod"].to_pylist()))
        statistics = self.settings.bundle_metrics == "statistics"
        apart = [shard.pods for shard in orders.read.shards] if statistics else [pods]
        asked = [theirs for shard in apart if (theirs := [pod for pod in shard if pod in pods])]
        read = self._read([self._shard(theirs) for theirs in asked], sorted(set(hot["bundle"].to_pylist())))
        return replace(orders, tables="topics", read=read, ranges=None, targets=TARGETS.empty_table())

    def state(self) -> pa.Table:
        """Its bundles after the last cycle (`BUNDLE_STATE`). Raises `OSError` or `pyarrow.ArrowException`."""
        return read_state(self.last.bundles, BUNDLE_STATE.names)

    def _shards(self, parallelism: int) -> Shards:
        pods = pods_of(self.topology)
        wanted = max(_AT_LEAST, math.ceil(len(pods) / _BROKERS_EACH))
        count = min(wanted, parallelism, len(pods))
        return tuple(tuple(pods[k::count]) for k in range(count))

    def _shard(self, pods: Sequence[str]) -> ShardRequest:
        """The queries about these pods."""
        topology = self.topology
        admin = dict(zip(topology.pods, topology.admin, strict=False))
        containers = Containers.among(pods, topology)
        shard = ShardRequest.of(self.settings, pods, admin, containers=containers, summing=self.ranges is not None)
        return _of_past(shard) if self.past else shard

    def _read(self, shards: Sequence[ShardRequest], bundles: Sequence[str] = ()) -> ReadRequest:
        """A read of these shards. bundles: the bundles whose topics are read."""
        now, at = time.monotonic(), self.cycle.at
        left = max(0.0, self.ends - now)
        late = now - self.asked
        return ReadRequest.of(
            self.settings, at, shards, late, policy=self.name, left=left, bundles=bundles, most=self.most
        )


def _of_past(shard: ShardRequest) -> ShardRequest:
    """The shard with only the traffic of its bundles and topics, and without the check for samples from the future."""
    bundles, topics = (
        {name: promql for name, promql in queries.items() if name in TRAFFIC}
        for queries in (shard.bundles, shard.topics)
    )
    return replace(shard, ahead="", bundles=bundles, topics=topics)


def pods_of(topology: Topology) -> list[str]:
    """The brokers' pods, each once."""
    return sorted({pod for pod in topology.pods if pod})
