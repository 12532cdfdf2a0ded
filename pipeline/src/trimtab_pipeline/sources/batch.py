"""The policies that are due at once: what is read for them, as the relations that the stages take.

One batch is one job for the brokers and one for the bundles, whatever the number of policies, so Spark schedules the
shards of all policies together.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
import pyarrow as pa

from trimtab_pipeline.api import PrometheusSettings, Topology
from trimtab_pipeline.columns import TIMES, USAGE
from trimtab_pipeline.history.state import LastState
from trimtab_pipeline.prometheus.read_request import ReadRequest, Secrets, ShardRequest
from trimtab_pipeline.transform.cycle import Cycle, table
from trimtab_pipeline.transform.hash_ranges import HashRanges
from trimtab_pipeline.transform.relations import DECLARED, RANGES, TARGETS

_BROKERS_EACH = 10
"""Brokers of a shard, if there are enough of them: each shard sends its own queries."""
_AT_LEAST = 2  # shards, as long as there are brokers and tasks for them


@dataclass(frozen=True, slots=True)
class PolicyCycle:
    """The cycle of one policy.

    last: what it continues from. ranges: hash ranges of all bundles, if topics are summed where bundles have no metrics
    of their own. asked, ends: seconds of the monotonic clock, of its request and of its deadline.
    """

    cycle: Cycle
    settings: PrometheusSettings
    topology: Topology
    last: LastState
    ranges: HashRanges | None
    asked: float
    ends: float

    @property
    def pods(self) -> list[str]:
        """Pods of the brokers, each once."""
        return sorted({pod for pod in self.topology.pods if pod})

    def read(self, shards: Sequence[ShardRequest], namespaces: Sequence[str] = ()) -> ReadRequest:
        """A read of these shards."""
        now, cycle = time.monotonic(), self.cycle
        return ReadRequest.of(
            self.settings,
            cycle.at,
            shards,
            now - self.asked,
            policy=cycle.policy,
            left=max(0.0, self.ends - now),
            namespaces=namespaces,
        )

    def shard(self, pods: Sequence[str], *, repeated: bool = False) -> ShardRequest:
        """The queries about these pods. repeated: whether their series are known to be there more than once."""
        admin = dict(zip(self.topology.pods, self.topology.admin, strict=False))
        return ShardRequest.of(self.settings, pods, admin, summing=self.ranges is not None, repeated=repeated)


@dataclass(frozen=True, slots=True)
class Batch:
    """The cycles of the policies that are due, and for each the `shards` of its pods."""

    due: tuple[PolicyCycle, ...]
    shards: tuple[tuple[tuple[str, ...], ...], ...]

    @classmethod
    def of(cls, due: Sequence[PolicyCycle], parallelism: int) -> Batch:
        """The batch for an engine that runs `parallelism` tasks at once."""
        return cls(tuple(due), tuple(shards_of(one.pods, parallelism) for one in due))

    @property
    def secrets(self) -> tuple[Secrets, ...]:
        """The credentials of each policy's reads."""
        return tuple(Secrets(one.settings.credentials, one.settings.statistics.credentials) for one in self.due)

    def cycles(self) -> pa.Table:
        """The relation `CYCLES`."""
        return table(one.cycle for one in self.due)

    def targets(self) -> pa.Table:
        """The relation `TARGETS`."""
        return pa.concat_tables([_targets(one, shards) for one, shards in zip(self.due, self.shards, strict=True)])

    def ranges(self) -> pa.Table | None:
        """The relation `RANGES`; None when no policy reads topics."""
        found = [one.ranges.table(one.cycle.policy) for one in self.due if one.ranges is not None]
        return pa.concat_tables(found) if found else None

    def broker_reads(self) -> tuple[ReadRequest, ...]:
        """What is read about the brokers of each policy."""
        return self._reads(lambda one, pods: one.shard(pods))

    def bundle_reads(self, repeated: Mapping[str, frozenset[str]]) -> tuple[ReadRequest, ...]:
        """What is read about the bundles. repeated: pods of each policy whose series are there more than once."""
        return self._reads(lambda one, pods: one.shard(pods, repeated=not repeated[one.cycle.policy].isdisjoint(pods)))

    def _reads(self, shard: Callable[[PolicyCycle, tuple[str, ...]], ShardRequest]) -> tuple[ReadRequest, ...]:
        both = zip(self.due, self.shards, strict=True)
        return tuple(one.read([shard(one, pods) for pods in shards]) for one, shards in both)


class Stages(Protocol):
    """Runs the stages of a batch, on Spark or on threads of this process."""

    @property
    def parallelism(self) -> int:
        """Number of tasks that run at once."""

    def brokers(self, batch: Batch) -> pa.Table:
        """The relation `BROKER_LOAD` of all policies."""

    def bundles(self, batch: Batch, reads: Sequence[ReadRequest], times: pa.Table) -> pa.Table:
        """The relation `BUNDLE_LOAD` of all policies. times: the relation `POD_TIMES`."""

    def topics(self, batch: Batch, reads: Sequence[ReadRequest]) -> pa.Table:
        """The topics that `reads` ask for, in `BUNDLE_SAMPLES`."""


def shards_of(pods: Sequence[str], parallelism: int) -> tuple[tuple[str, ...], ...]:
    """The pods of each shard."""
    wanted = max(_AT_LEAST, math.ceil(len(pods) / _BROKERS_EACH))
    count = min(wanted, parallelism, len(pods))
    return tuple(tuple(pods[k::count]) for k in range(count))


def _targets(one: PolicyCycle, shards: Sequence[Sequence[str]]) -> pa.Table:
    """The brokers of a topology, and when they were last measured."""
    topology, cycle = one.topology, one.cycle
    shard = {pod: number for number, pods in enumerate(shards) for pod in pods}
    declared = {f"{name}_declared": _nullable(topology.declared_limit[:, k]) for k, name in enumerate(USAGE)}
    assert tuple(declared) == DECLARED
    known = {
        pod: times
        for pod, *times in zip(*(one.last.brokers[name].to_pylist() for name in ("pod", *TIMES)), strict=True)
        if max((time for time in times if time is not None), default=-math.inf) >= cycle.at - cycle.horizon
    }
    last = {
        f"last_{name}": pa.array([known.get(pod, (None, None))[k] for pod in topology.pods], pa.float64())
        for k, name in enumerate(TIMES)
    }
    columns = {
        "policy": pa.repeat(pa.scalar(cycle.policy), len(topology.pods)),
        "shard": pa.array([shard.get(pod) for pod in topology.pods], pa.int32()),
        "broker": pa.array(topology.brokers, pa.string()),
        "pod": pa.array(topology.pods, pa.string()),
    }
    return pa.table(columns | declared | last, schema=TARGETS)


def _nullable(values: np.ndarray) -> pa.DoubleArray:  # type: ignore[type-arg]
    return pa.array(values, from_pandas=True)
