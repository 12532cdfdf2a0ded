"""Batches of cycles that are due at the same time: what is read for them, and the relations that the stages get.

A batch is one job for the brokers, one for the bundles, and one for the topics of hot bundles if a policy wants them,
however many policies the batch has. So Spark schedules the shards of all policies together.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

import pyarrow as pa

from trimtab_pipeline.api import PrometheusSettings, Topology
from trimtab_pipeline.columns import BUNDLE_STATE, TRAFFIC
from trimtab_pipeline.history.files import read_state
from trimtab_pipeline.history.state import NO_STATE, LastState
from trimtab_pipeline.prometheus.containers import Containers
from trimtab_pipeline.prometheus.read_request import ReadRequest, Secrets, ShardRequest
from trimtab_pipeline.transform.relations import STATE, Cycle
from trimtab_pipeline.transform.snapshot import targets
from trimtab_pipeline.transform.topic_to_bundle import HashRanges

_BROKERS_EACH = 10  # brokers per shard, if enough tasks run at once; each shard sends its own queries
_AT_LEAST = 2  # shards, if there are that many brokers and tasks
Shards = tuple[tuple[str, ...], ...]
"""Pods of each shard."""


@dataclass(frozen=True, slots=True)
class PolicyCycle:
    """The cycle of one policy.

    last: the state that it continues from. ranges: hash ranges of all bundles, if topics are summed because bundles
    have no metrics of their own. asked, ends: times of its request and its deadline, in seconds of the monotonic clock.
    most: as in `ReadRequest`. past: whether it measures a past time. Of bundles it then reads only the traffic, and its
    topology has no owners.
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

    @property
    def name(self) -> str:
        """The policy (``namespace/name``)."""
        return self.cycle.policy

    @property
    def secrets(self) -> Secrets:
        """The credentials of its reads."""
        return Secrets(self.settings.credentials, self.settings.statistics.credentials)

    def shards(self, parallelism: int) -> Shards:
        """The pods of each shard, for an engine that runs `parallelism` tasks at once."""
        pods = pods_of(self.topology)
        wanted = max(_AT_LEAST, math.ceil(len(pods) / _BROKERS_EACH))
        count = min(wanted, parallelism, len(pods))
        return tuple(tuple(pods[k::count]) for k in range(count))

    def targets(self, shards: Shards) -> pa.Table:
        """The relation `TARGETS`."""
        return targets(self.name, self.topology, shards, self.last.brokers, self.cycle.at - self.cycle.horizon)

    def state(self) -> pa.Table:
        """The relation `STATE` of this policy. Raises `OSError` or `pyarrow.ArrowException`."""
        rows = read_state(self.last.bundles)
        columns = {name: rows[name] for name in BUNDLE_STATE.names}
        return pa.table({"policy": pa.repeat(pa.scalar(self.name), len(rows)), **columns}, schema=STATE)

    def shard(self, pods: Sequence[str], *, repeated: bool = False) -> ShardRequest:
        """The queries about these pods. repeated: whether some of their series are known to exist more than once."""
        topology = self.topology
        admin = dict(zip(topology.pods, topology.admin, strict=False))
        shard = ShardRequest.of(
            self.settings,
            pods,
            admin,
            containers=Containers.among(pods, topology),
            summing=self.ranges is not None,
            repeated=repeated,
        )
        return _of_past(shard) if self.past else shard

    def read(self, shards: Sequence[ShardRequest], bundles: Sequence[str] = ()) -> ReadRequest:
        """A read of these shards. bundles: the bundles whose topics are read."""
        now, at = time.monotonic(), self.cycle.at
        left = max(0.0, self.ends - now)
        late = now - self.asked
        return ReadRequest.of(
            self.settings, at, shards, late, policy=self.name, left=left, bundles=bundles, most=self.most
        )


@dataclass(frozen=True, slots=True)
class Batch:
    """The cycles that are due, and the shards of each."""

    due: tuple[PolicyCycle, ...]
    shards: tuple[Shards, ...]

    @classmethod
    def of(cls, due: Sequence[PolicyCycle], parallelism: int) -> Batch:
        """The batch for an engine that runs `parallelism` tasks at once."""
        return cls(tuple(due), tuple(one.shards(parallelism) for one in due))

    def only(self, names: Sequence[str]) -> Batch:
        """The batch of these policies alone."""
        rows = [k for k, one in enumerate(self.due) if one.name in names]
        return Batch(tuple(self.due[k] for k in rows), tuple(self.shards[k] for k in rows))

    @property
    def secrets(self) -> list[Secrets]:
        """The credentials of each policy's reads."""
        return [one.secrets for one in self.due]

    def broker_reads(self) -> list[ReadRequest]:
        """What is read about the brokers."""
        both = zip(self.due, self.shards, strict=True)
        return [one.read([one.shard(pods) for pods in shards]) for one, shards in both]

    def bundle_reads(self, failed: Mapping[str, set[int]], repeated: Mapping[str, set[str]]) -> list[ReadRequest]:
        """What is read about the bundles.

        failed: shards of each policy that got no answer; they are not read again. repeated: pods of each policy whose
        series exist more than once.
        """
        reads = []
        for one, shards in zip(self.due, self.shards, strict=True):
            asked = [
                ShardRequest(pods, summing=False)
                if number in failed[one.name]
                else one.shard(pods, repeated=not repeated[one.name].isdisjoint(pods))
                for number, pods in enumerate(shards)
            ]
            reads.append(one.read(asked))
        return reads


class Stages(Protocol):
    """Runs the stages of a batch, on Spark or on threads of this process. reads: one per cycle, in its order."""

    @property
    def parallelism(self) -> int:
        """Number of tasks that run at once."""

    def brokers(self, batch: Batch, reads: Sequence[ReadRequest]) -> pa.Table:
        """The relation `BROKER_LOAD` of all policies."""

    def bundles(self, batch: Batch, reads: Sequence[ReadRequest], times: pa.Table) -> pa.Table:
        """The relation `BUNDLE_LOAD` of all policies. times: the relation `POD_TIMES`."""

    def topics(self, batch: Batch, reads: Sequence[ReadRequest]) -> pa.Table:
        """The topics of the bundles that `reads` name, as `BUNDLE_SAMPLES`."""


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
