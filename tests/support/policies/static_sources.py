"""Sources without Spark and Prometheus, for tests of the steps after a measurement."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future

import numpy as np

from trimtab_pipeline.api import LoadSource, Observation, PrometheusSettings, SourceUnavailableError, Topology
from trimtab_strategies.model import Brokers, Bundles, ClusterLoad, DataQuality
from trimtab_strategies.model.cluster_load import FloatArray, IntArray, Topics


class StaticSource:
    """A source that always reports the values of `load`.

    Rows follow the topology: a bundle that has moved keeps its load, and a broker that is not in `load` counts as never
    measured. Assign `load` to change the measurement, or `error` to make every measurement fail with it.
    """

    def __init__(self, load: ClusterLoad) -> None:
        self.load = load
        self.error: SourceUnavailableError | None = None

    def observe(self, topology: Topology, at: float) -> Future[Observation]:
        """The content of `load`, as of `at`."""
        return self._observed(topology, at)

    def observe_brokers(self, topology: Topology, at: float) -> Future[Observation]:
        """The content of `load`; without bundles in the topology, only the brokers."""
        return self._observed(topology, at)

    def _observed(self, topology: Topology, at: float) -> Future[Observation]:
        outcome: Future[Observation] = Future()
        if self.error is not None:
            outcome.set_exception(self.error)
        else:
            outcome.set_result(Observation(self._aligned(topology, at), {"static": 0.0}))
        return outcome

    def _aligned(self, topology: Topology, at: float) -> ClusterLoad:
        broker = _rows(topology.brokers, self.load.brokers.index)
        bundle = _rows(topology.bundles, self.load.bundles.index)
        quality = DataQuality(missing_brokers=int((broker < 0).sum()), missing_bundles=int((bundle < 0).sum()))
        return ClusterLoad(
            self._brokers(topology, broker),
            self._bundles(topology, bundle),
            topology.namespaces,
            at,
            quality,
            self._topics(topology),
        )

    def _topics(self, topology: Topology) -> Topics:
        """The topics of bundles that are in the topology, with the topology's rows."""
        of, index = self.load.topics, {name: row for row, name in enumerate(topology.bundles)}
        bundle = np.array([index.get(self.load.bundles.names[row], -1) for row in of.bundle.tolist()], dtype=np.int64)
        known = np.flatnonzero(bundle >= 0)
        return Topics(tuple(of.names[row] for row in known), bundle[known], of.place[known], of.traffic[known])

    def _brokers(self, topology: Topology, row: IntArray) -> Brokers:
        of = self.load.brokers
        limit = _taken(of.limit, row, 0.0)
        return Brokers(
            names=topology.brokers,
            usage=_taken(of.usage, row),
            limit=np.where(np.isnan(topology.declared_limit), limit, topology.declared_limit),
            traffic=_taken(of.traffic, row),
            age=_taken(of.age, row, np.inf),
            ready=topology.ready,
            schedulable=topology.schedulable,
            trusted=np.append(of.trusted, False)[row],
        )

    def _bundles(self, topology: Topology, row: IntArray) -> Bundles:
        of = self.load.bundles
        return topology.carrying(
            short=_taken(of.short, row),
            long=_taken(of.long, row),
            topics=_taken(of.topics, row),
            sessions=_taken(of.sessions, row),
            newest=_taken(of.newest, row),
        )


class StaticSources:
    """`LoadSources` that gives every policy the same source. `settings` records the settings of each policy."""

    def __init__(self, source: LoadSource) -> None:
        self.source = source
        self.settings: dict[str, PrometheusSettings] = {}
        self.closed = False

    def open(self, policy: str, settings: PrometheusSettings) -> LoadSource:
        """The source, for any policy."""
        self.settings[policy] = settings
        return self.source

    def warm_up(self) -> Future[None]:
        """A future that is already done."""
        outcome: Future[None] = Future()
        outcome.set_result(None)
        return outcome

    def close(self) -> None:
        """Record that this was called."""
        self.closed = True


def _rows(names: tuple[str, ...], index: Mapping[str, int]) -> IntArray:
    return np.array([index.get(name, -1) for name in names], np.int64)


def _taken(values: FloatArray, row: IntArray, absent: float = float("nan")) -> FloatArray:
    """The rows of `values` (any number of columns), `absent` where a row is -1."""
    return np.concatenate([values, np.full((1, *values.shape[1:]), absent)])[row]
