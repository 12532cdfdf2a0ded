"""The public interface of the pipeline: its inputs, its results and its protocols.

This module loads neither Spark nor pandas; `factory.spark_sources` loads them when it is called.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import numpy as np

from trimtab_pipeline.credentials import NO_CREDENTIALS, Credentials, CredentialsError
from trimtab_pipeline.query_additions import check_label, check_matcher, check_parameter
from trimtab_strategies.model import TRAFFIC, Bundles, ClusterLoad
from trimtab_strategies.model.cluster_load import BoolArray, FloatArray, IntArray
from trimtab_strategies.shedding.trim.samples import CycleSamples

__all__ = [
    "KEEP_A_DAY",
    "NOBODY_IN_PARTICULAR",
    "NO_CREDENTIALS",
    "Credentials",
    "CredentialsError",
    "DecisionEntry",
    "Fact",
    "KeepsDecisions",
    "KeepsFacts",
    "LoadSource",
    "LoadSources",
    "MeasuresPast",
    "Observation",
    "PrometheusSettings",
    "RecallsSamples",
    "Retention",
    "SourceMisconfiguredError",
    "SourceUnavailableError",
    "StatisticsSettings",
    "Topology",
    "Trust",
]


class SourceUnavailableError(RuntimeError):
    """Nothing could be measured: the source gave no usable answer. The message names the URL and the cause."""


class ForeignFileError(ValueError):
    """A file that is unreadable or not part of its history. The message says what was expected and found."""


class SourceMisconfiguredError(SourceUnavailableError):
    """Nothing can be measured until the source's settings change. The message names the setting and the finding."""


@dataclass(frozen=True, slots=True)
class Topology:
    """The brokers and bundles that have Kubernetes objects, in the order of the rows of the resulting `ClusterLoad`.

    brokers:        names of the Broker objects (n); `pods`: the label ``pod`` of each broker's metrics.
    declared_limit: (n, 5) limits that are known without the source (`RESOURCES` order): a user declared them, or the
                    pod has them. NaN where the source's limit applies.
    ready, schedulable: (n,).
    bundles:        Pulsar's spelling ``tenant/namespace/0x.._0x..`` (m); `namespace`, `owner`, `last_unload`, `pinned`,
                    `in_flight`, `moving_from`, `moving_share`: (m,) exactly as in `trimtab_strategies.model.Bundles`.
    admin:          base URL of each broker's admin REST (n), empty if unknown. No entries if it is not used.
    containers:     name of the broker's container in each pod (n), empty if unknown. No entries if none is known.
    unlimited:      resource (``cpu``, ``memory``) -> names of brokers whose pod is known to have no limit of it, so
                    that a limit in metrics is another pod's. Their node's allocatable amount applies.
    chosen:         resource (``cpu``, ``memory``) -> names of brokers whose `declared_limit` a user chose. Usage may
                    exceed it, unlike a limit that the kernel enforces.
    started:        epoch seconds (n) at which the newest container of each broker's pod started, NaN if unknown. No
                    entries if none is known.
    """

    brokers: tuple[str, ...]
    pods: tuple[str, ...]
    declared_limit: FloatArray
    ready: BoolArray
    schedulable: BoolArray
    namespaces: tuple[str, ...]
    bundles: tuple[str, ...]
    namespace: IntArray
    owner: IntArray
    last_unload: FloatArray
    pinned: BoolArray
    in_flight: BoolArray
    moving_from: IntArray
    moving_share: FloatArray
    admin: tuple[str, ...] = ()
    started: tuple[float, ...] = ()
    containers: tuple[str, ...] = ()
    unlimited: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    chosen: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def carrying(
        self,
        short: FloatArray,
        long: FloatArray,
        topics: FloatArray,
        sessions: FloatArray,
        newest: FloatArray | None = None,
    ) -> Bundles:
        """These bundles with measured load: averages (m, 4), counts (m,), newest samples (m, 4); NaN if unknown."""
        return Bundles(
            names=self.bundles,
            namespace=self.namespace,
            owner=self.owner,
            short=short,
            long=long,
            topics=topics,
            sessions=sessions,
            last_unload=self.last_unload,
            pinned=self.pinned,
            in_flight=self.in_flight,
            moving_from=self.moving_from,
            moving_share=self.moving_share,
            newest=np.full((len(self.bundles), len(TRAFFIC)), np.nan) if newest is None else newest,
        )


@dataclass(frozen=True, slots=True)
class Observation:
    """One measurement of the cluster.

    load:    the snapshot, rows as in the topology; `load.now` is the evaluation time.
    seconds: duration of each phase (``prometheus``, ``compute``, ``write``, ...), for `trimtab_cycle_seconds`.
    shown:   (n,) further signals of the brokers, by name, for display only; NaN if unknown.
             ``throttled``: ratio 0-1 of periods in which the CPU limit throttled a broker.
    unwritten: why the history could not be written; empty if it was written; None if there was nothing to write.
    """

    load: ClusterLoad
    seconds: Mapping[str, float]
    shown: Mapping[str, FloatArray] = field(default_factory=dict)
    unwritten: str | None = None


class LoadSource(Protocol):
    """The source of load. Implementations use their own thread; no method blocks an event loop."""

    def observe(self, topology: Topology, at: float) -> Future[Observation]:
        """Measure the cluster as of `at` (epoch seconds).

        The future fails with `SourceUnavailableError` when nothing could be measured. A missing part appears in
        `Observation.load.quality` and as untrusted brokers.
        """

    def observe_brokers(self, topology: Topology, at: float) -> Future[Observation]:
        """Measure only the brokers, as of `at`: much less work, and nothing is stored.

        No bundle of the topology is measured. The future fails like that of `observe`.
        """


@runtime_checkable
class MeasuresPast(Protocol):
    """Load sources that can measure a past minute."""

    def observe_past(self, topology: Topology, at: float) -> Future[CycleSamples | None]:
        """The samples that a cycle at `at` (epoch seconds) would have taken; None if the source has none of that time.

        Samples are trusted by the same rules as in a cycle. A bundle's load is what a pod of the topology reported
        then. Readiness and declared capacities are those of the topology, because those of that time are unknown.
        Nothing is stored. The future fails like that of `LoadSource.observe`.
        """


class LoadSources(Protocol):
    """Factory of one `LoadSource` per policy, all on one engine."""

    def open(self, policy: str, settings: PrometheusSettings) -> LoadSource:
        """A source for the policy `policy` (``namespace/name``). Its history folder has the policy's name."""

    def warm_up(self) -> Future[None]:
        """Prepare the engine, so that the first real cycle is as fast as the others.

        On Spark, this runs a cycle without samples.

        The future is done when the engine is warm; it fails with `SourceUnavailableError` when the engine can't start.
        """

    def close(self) -> None:
        """Stop the engine. Idempotent."""


@dataclass(frozen=True, slots=True)
class Trust:
    """Bounds beyond which samples are not trusted. The bound for their age is `PrometheusSettings.max_age`.

    above_limit:    usage above this multiple of its limit is impossible.
    max_resets:     resets of a broker's counters that are tolerated within the window of the rates. `rate()` handles
                    each, but a broker that restarts all the time has no rate.
    max_clock_skew: seconds by which a sample's time may be ahead of the evaluation time.
    min_samples:    the fewest samples of CPU in the window that give a rate.
    Raises `ValueError` for a bound with which no broker would be trusted, or that a query can't express.
    """

    above_limit: float = 10.0
    max_resets: int = 3
    max_clock_skew: float = 30.0
    min_samples: int = 2

    def __post_init__(self) -> None:
        bounds = {"above_limit": (1, 1e6), "max_resets": (0, 1e6), "max_clock_skew": (1, 300), "min_samples": (2, 1e6)}
        for name, (lowest, highest) in bounds.items():
            if not lowest <= (value := getattr(self, name)) <= highest:
                raise ValueError(f"trust {name} {value!r} must be {lowest:g} to {highest:g}")


@dataclass(frozen=True, slots=True)
class StatisticsSettings:
    """Settings for reading the brokers' own statistics, at the URLs in `Topology.admin`.

    credentials: for the requests. timeout: seconds for one broker's whole answer.
    """

    credentials: Credentials = NO_CREDENTIALS
    timeout: float = 10.0


NOBODY_IN_PARTICULAR = StatisticsSettings()
"""The default settings: requests to brokers carry no credentials."""


@dataclass(frozen=True, slots=True)
class PrometheusSettings:
    """Settings for reading one Prometheus.

    url:        base URL, e.g. ``http://prometheus.monitoring.svc:9090``.
    namespace:  Kubernetes namespace whose pods are the brokers.
    resources:  ``kubernetes`` (cAdvisor and kube-state-metrics) or ``pulsar`` (``pulsar_lb_*``, percent).
    window:     seconds over which rates are taken; at least two scrape intervals.
    timeout:    seconds for one query.
    max_age:    seconds after which the newest sample of a broker counts as stale.
    trust:      further conditions for trusting a broker's samples.
    nic_speed:  bytes/s that count as 100 % of network in, and of network out, where node exporter does not report it
                (preset ``kubernetes``).
    network_device: the node's network device that counts for brokers with ``hostNetwork``, if its name and traffic do
                not show that. Empty: they show it.
    container:  name of the brokers' container in their pods, if a user gave one. Empty: `Topology.containers`, and
                whatever rows exist.
    namespace_label: label of the Kubernetes namespace on the brokers' own metrics. Name it here if the scrape
                configuration uses another label (Pulsar has its own label ``namespace``).
    averages:   ``time``: exponential, by the time between samples. ``samples``: Pulsar's, which count samples, one per
                cycle (see `trimtab_pipeline.transform.averages`).
    short_tau, long_tau: time constants (seconds) of the short- and long-term averages by time.
    bundle_metrics: source of the bundles' load. ``bundle``: their own metrics. ``topic``: the sum of their topics'
                metrics, because the extensible load manager exports no others. ``auto``: their own where they exist.
                ``statistics``: the sum of their topics, read from the brokers' admin REST.
    queries:    (signal, PromQL) for signals that the preset's query does not fit (`prometheus.queries.SIGNALS`).
                Their series must have exactly the label ``pod`` (``bundle`` and ``pod`` for a bundle's signal).
    hot_bundles: number of bundles whose topics are reported: this many with the most messages, and as many with the
                most bytes; 0: none.
    credentials: for the requests.
    method:     ``POST``, or ``GET`` for a server or proxy that refuses POST. As URLs must be short, more queries are
                then sent.
    matchers:   (label, value) that each selector of the presets has in addition, for a store of several clusters.
    parameters: (name, value) of further URL parameters of each query, such as a tenant. No text shows the values.
    partial_response: True: Thanos may leave out stores that don't answer. It then warns, and the data counts as
                partial. False: the query fails instead. None: Thanos decides. Other servers have no such parameter.
    statistics: settings for requests to brokers, for ``bundle_metrics: statistics``.
    Raises `ValueError` for a URL with a password, because messages would show it, and for an invalid setting.
    """

    url: str
    namespace: str
    resources: str = "kubernetes"
    window: float = 60.0
    timeout: float = 10.0
    max_age: float = 120.0
    trust: Trust = Trust()
    nic_speed: float = 1.25e9
    network_device: str = ""
    container: str = ""
    namespace_label: str = "namespace"
    averages: str = "time"
    short_tau: float = 120.0
    long_tau: float = 3600.0
    bundle_metrics: str = "auto"
    queries: tuple[tuple[str, str], ...] = ()
    hot_bundles: int = 0
    credentials: Credentials = NO_CREDENTIALS
    method: str = "POST"
    matchers: tuple[tuple[str, str], ...] = ()
    parameters: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    partial_response: bool | None = None
    statistics: StatisticsSettings = NOBODY_IN_PARTICULAR

    def __post_init__(self) -> None:
        if "@" in self.url.partition("//")[2].partition("/")[0]:
            raise ValueError("the source's url holds a user name; leave it out, and give it as credentials")
        check_label("namespace_label", self.namespace_label)
        for label, value in self.matchers:
            check_matcher(label, value)
        for name, value in self.parameters:
            check_parameter(name, value)
        if self.method not in {"POST", "GET"}:
            raise ValueError(f"method {self.method!r} must be POST or GET")
        if self.averages not in {"time", "samples"}:
            raise ValueError(f"averages {self.averages!r} must be time or samples")
        if self.bundle_metrics not in {"auto", "bundle", "topic", "statistics"}:
            raise ValueError(f"bundle_metrics {self.bundle_metrics!r} must be auto, bundle, topic or statistics")


@dataclass(frozen=True, slots=True)
class Retention:
    """How much of a policy's history is kept. The folder `state`, with the last two cycles, is always kept.

    seconds:     maximum age.
    bytes:       maximum size. The oldest hour is deleted first. Measured sizes of a cycle: 0.74 MB with 60,000 bundles,
                 0.02 MB with 1,000.
    merge_after: seconds after the end of an hour until its cycles are merged into one file.
    Raises `ValueError` for a bound that is out of range.
    """

    seconds: float = 86_400.0
    bytes: int = 8 * 2**30
    merge_after: float = 3600.0

    def __post_init__(self) -> None:
        for name in ("seconds", "bytes"):
            if not getattr(self, name) > 0:
                raise ValueError(f"history {name} {getattr(self, name)!r} must be more than 0")
        if not self.merge_after >= 0:
            raise ValueError(f"history merge_after {self.merge_after!r} must be 0 seconds or more")


KEEP_A_DAY = Retention()
"""Keep a day of cycles, but at most 8 GiB."""


@dataclass(frozen=True, slots=True)
class DecisionEntry:
    """A decision in the history. of: its time in epoch seconds, to the millisecond. moves: number of planned moves."""

    of: float
    outcome: str
    moves: int
    record: str


@runtime_checkable
class KeepsDecisions(Protocol):
    """Load sources whose histories also store decisions."""

    def keep_decisions(self, policy: str, at: float, entries: Sequence[DecisionEntry]) -> None:
        """Write the decisions of `policy` (``namespace/name``) that were made or updated at `at` (epoch seconds).

        Blocks for some milliseconds. Raises `OSError` when the disk can't be written.
        """


@dataclass(frozen=True, slots=True)
class Fact:
    """A fact from Kubernetes objects. value: any JSON value; None if what the fact is about no longer exists."""

    kind: str
    name: str
    value: Any


@runtime_checkable
class KeepsFacts(Protocol):
    """Load sources whose histories also store facts, and the policy in force.

    Both methods write what changed, and once an hour everything. They block for some milliseconds. They raise `OSError`
    when the disk can't be written. The next call then writes everything.
    """

    def write_facts(self, policy: str, at: float, facts: Iterable[Fact], complete: Collection[str] = ()) -> None:
        """Write `facts` as of `at` (epoch seconds).

        complete: kinds of which `facts` lists all facts. A fact of such a kind that is not in `facts` no longer exists.
        """

    def keep_policy(self, policy: str, at: float, spec: Any, memory: Any) -> None:
        """Write the policy and its strategies' memory (JSON values) as of `at` (epoch seconds)."""


@runtime_checkable
class RecallsSamples(Protocol):
    """Load sources whose histories hold the samples of past cycles."""

    def recall_samples(self, policy: str, begin: float, end: float) -> Iterator[CycleSamples]:
        """The samples of the cycles of `policy` from `begin` until before `end` (epoch seconds), oldest first.

        Without a history there are none. Cycles that can't be read are skipped, with one log message for all. Each step
        blocks for some milliseconds. It raises `OSError` or `ValueError` when the history can't be read at all.
        """
