"""The queries to Prometheus, as data: two tables (brokers, bundles), and presets for the source of broker usage.

Every query aggregates with ``max by``: this fixes the label set, which the fast parser needs, and duplicate rows (a pod
scraped by two jobs, a restarted container's old series, a kubelet's pod-level row) do not add up. Of a restarted pod's
old and new container only the one with the newest sample counts: cAdvisor sets its own sample times, so Prometheus does
not notice that a series ended, and returns its last sample for five minutes. The same rule serves servers that hold the
series of two replicas, one of which may have died minutes ago. For bundles and topics it would take three times as
long, so `of_newest` adds it only where duplicates are known. Usage is read as raw samples (`Series`), from which
`transform.rates` computes values and their coverage, as PromQL's `rate()` does not distinguish an idle broker
from one without samples. Queries are `string.Template` texts with these selectors:

    $container  cAdvisor and kube-state-metrics rows of the broker's container
    $network    cAdvisor rows of the pod's interfaces, which carry no container name worth filtering by
    $pod        kube-state-metrics rows of the pod
    $broker     the brokers' own metrics
    $topic      their metrics of topics, where the namespace label may be Pulsar's own; `topics_in` selects topics
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from string import Template
from types import MappingProxyType

from trimtab_pipeline.api import PrometheusSettings
from trimtab_pipeline.columns import CHECKS, RESOURCES, SAMPLED, TIMES, TRAFFIC, USAGE

RANGE = 5.0
"""Number of windows of raw samples to read: one complete window before the newest sample, and enough to find the scrape
interval."""
_AHEAD = 600
"""Seconds: Prometheus rejects samples that are further ahead of its clock."""


class UnknownPresetError(ValueError):
    """An unknown preset of broker usage. The text lists the known ones."""


class UnknownSignalError(ValueError):
    """A query for an unknown signal. The text lists the known ones."""


@dataclass(frozen=True, slots=True)
class Series:
    """Raw samples to read.

    promql: a range selector, whose series carry the label ``pod``. counts: whether they are counters.
    above: only values above it count; None: all do. checked: they only give the coverage of a rate in a user's query.
    """

    promql: str
    counts: bool = False
    above: float | None = None
    checked: bool = False


@dataclass(frozen=True, slots=True)
class Table:
    """A wide table from instant queries that share their labels.

    keys:    labels every series carries; together they name a row.
    columns: value columns; null where `queries` has no PromQL template for one.
    custom:  columns with a user's query -> name of the signal.
    sampled: columns that are computed from raw samples -> their series.
    """

    keys: tuple[str, ...]
    columns: tuple[str, ...]
    queries: Mapping[str, str]
    custom: Mapping[str, str] = field(default_factory=dict)
    sampled: Mapping[str, Series] = field(default_factory=dict)

    def overridden(self, queries: Mapping[str, str], prefix: str = "") -> Table:
        """The table with those of `queries` (signal -> PromQL) whose signal is `prefix` and a column."""
        named = {column: prefix + column for column in self.columns if prefix + column in queries}
        texts = {column: queries[signal] for column, signal in named.items()}
        sampled = {column: series for column, series in self.sampled.items() if column not in named}
        sampled |= {column: series for column, text in texts.items() if column in USAGE for series in _rated(text)}
        return replace(
            self,
            queries=MappingProxyType({**self.queries, **texts}),
            custom=MappingProxyType(named),
            sampled=MappingProxyType(sampled),
        )


def _rated(promql: str) -> list[Series]:
    """The raw samples of the first counter whose rate over the window a user's query takes; none without one."""
    found = _RATE.search(promql)
    return [] if found is None else [Series(f"{found[1]}[$samples]", counts=True, checked=True)]


def _latest(series: str) -> str:
    """Those of the `series` whose newest sample is their pod's newest."""
    return f"timestamp({series}) == on (pod) group_left () max by (pod) (timestamp({series}))"


def _newest(series: str, value: str = "") -> str:
    """The highest `value` (their own if left out) per pod among the `series` with the pod's newest samples."""
    return f"max by (pod) ({value or series} and ({_latest(series)}))"


def _counter(series: str) -> Series:
    return Series(f"{series}[$samples]", counts=True)


def _gauge(series: str, above: float | None = None) -> Series:
    return Series(f"{series}[$samples]", above=above)


def _limit(resource: str) -> str:
    """The limit of a resource: the container's limit, else its request, else the node's allocatable amount."""
    container = f'{{$container,resource="{resource}"}}'
    node = f'max by (node) (kube_node_status_allocatable{{resource="{resource}"}})'
    choices = (
        f"max by (pod) (kube_pod_container_resource_limits{container} > 0)",
        f"max by (pod) (kube_pod_container_resource_requests{container} > 0)",
        f"max by (pod) ({_ON_NODE} {node})",
    )
    return f"max by (pod) ({' or '.join(choices)})"


def _ahead(*series: str) -> str:
    """Number of samples further ahead than allowed. It needs a negative offset: an instant query ends at its time."""
    return f"max by (pod) ({' or '.join(f'count_over_time({one}[$beyond] offset -{_AHEAD}s)' for one in series)})"


_RATE = re.compile(
    r'\b(?:rate|increase)\s*\(\s*([a-zA-Z_:][\w:]*\s*(?:\{(?:"(?:[^"\\]|\\.)*"|[^"}])*\})?)\s*\[\$window\]'
)
_ON_NODE = 'kube_pod_info{$pod,node!=""} * on (node) group_left ()'
_VIRTUAL = "lo|veth.*|docker.*|cni.*|cali.*|cilium.*|lxc.*|flannel.*|vxlan.*|tunl.*|br-.*|virbr.*|kube-.*|dummy.*"
_SPEED = f'node_network_speed_bytes{{device!~"{_VIRTUAL}",node'
_BY_INSTANCE = f'label_replace({_SPEED}=""}} > 0, "node", "$$1", "instance", "([^:]+).*")'  # it has no label ``node``
_NIC = f'max by (node) ({_SPEED}!=""}} > 0 or {_BY_INSTANCE})'
_CPU, _MEMORY = "container_cpu_usage_seconds_total{$container}", "container_memory_working_set_bytes{$container}"
_RECEIVED, _TRAFFIC = "container_network_receive_bytes_total{$network}", "pulsar_broker_rate_in{$broker}"
_LB_CPU = "pulsar_lb_cpu_usage{$broker}"
_CONTAINER = "__name__, pod, id, name"  # containers of a restarted pod differ by id and name
_PERIODS, _THROTTLED = (f"container_cpu_cfs_{name}periods_total{{$container}}" for name in ("", "throttled_"))

_KUBERNETES = {
    "cpu_limit": _limit("cpu"),
    "memory_limit": _limit("memory"),
    "network_limit": f"max by (pod) ({_ON_NODE} {_NIC})",
    "throttled": _newest(_THROTTLED, f"rate({_THROTTLED}[$window]) / (rate({_PERIODS}[$window]) > 0)"),
    "resource_time": f"max by (pod) (timestamp({_CPU}))",
    "copies": f"max by (pod) (count by ({_CONTAINER}) ({_CPU}) or count by (__name__, pod) ({_TRAFFIC}))",
    "ahead": _ahead(_CPU, _TRAFFIC),
}
_KUBERNETES_SERIES = {
    "cpu": _counter(_CPU),
    "memory": _gauge(_MEMORY),
    "network_in": _counter(_RECEIVED),
    "network_out": _counter("container_network_transmit_bytes_total{$network}"),
}
_PULSAR = {
    "resource_time": f"max by (pod) (timestamp({_LB_CPU}))",
    "copies": f"max by (pod) (count by (__name__, pod) ({_LB_CPU}) or count by (__name__, pod) ({_TRAFFIC}))",
    "ahead": _ahead(_LB_CPU, _TRAFFIC),
}
_NOT_YET = 0.001
"""Percent of CPU: a broker samples its host once a minute, and exports a lower value until its second sample."""
_PULSAR_SERIES = {
    "cpu": _gauge(_LB_CPU, above=_NOT_YET),
    "memory": _gauge("pulsar_lb_memory_usage{$broker}"),
    "direct_memory": _gauge("pulsar_lb_directMemory_usage{$broker}"),
    "network_in": _gauge("pulsar_lb_bandwidth_in_usage{$broker}"),
    "network_out": _gauge("pulsar_lb_bandwidth_out_usage{$broker}"),
}
_BROKER_TRAFFIC = {
    **{name: _newest(f"pulsar_broker_{name}{{$broker}}") for name in TRAFFIC},
    "traffic_time": "max by (pod) (timestamp(pulsar_broker_rate_in{$broker}))",
}

RESOURCE_PRESETS: Mapping[str, tuple[Mapping[str, str], Mapping[str, Series]]] = MappingProxyType(
    {"kubernetes": (_KUBERNETES, _KUBERNETES_SERIES), "pulsar": (_PULSAR, _PULSAR_SERIES)}
)
"""Queries and raw samples of broker usage. ``kubernetes``: cores, bytes and bytes/s beside limits. ``pulsar``: percent,
limit 100."""

BUNDLES = Table(
    keys=("bundle", "pod"),
    columns=(*TRAFFIC, "topics", "producers", "consumers"),
    queries=MappingProxyType(
        {
            "rate_in": "max by (bundle, pod) (pulsar_bundle_msg_rate_in{$broker})",
            "rate_out": "max by (bundle, pod) (pulsar_bundle_msg_rate_out{$broker})",
            "throughput_in": "max by (bundle, pod) (pulsar_bundle_msg_throughput_in{$broker})",
            "throughput_out": "max by (bundle, pod) (pulsar_bundle_msg_throughput_out{$broker})",
            "topics": "max by (bundle, pod) (pulsar_bundle_topics_count{$broker})",
            "producers": "max by (bundle, pod) (pulsar_bundle_producer_count{$broker})",
            "consumers": "max by (bundle, pod) (pulsar_bundle_consumer_count{$broker})",
        },
    ),
)
"""Traffic of each bundle on each pod that reports it: msg/s, bytes/s, counts."""


TOPICS = Table(
    keys=("topic", "partition", "pod"),
    columns=(*TRAFFIC, "producers", "consumers"),
    queries=MappingProxyType(
        {
            column: f"max by (topic, partition, pod) (pulsar_{metric}{{$topic}})"
            for column, metric in {
                **{name: name for name in TRAFFIC},
                "producers": "producers_count",
                "consumers": "consumers_count",
            }.items()
        },
    ),
)
"""Traffic of each topic on each pod that serves it. ``partition`` is empty unless a broker splits it off the name."""


def brokers(preset: str) -> Table:
    """The broker table of a preset: usage, limits, own traffic, and the time (epoch s) of the newest samples.

    ``resource_time`` and ``traffic_time`` are needed because an instant query returns samples up to 5 minutes old
    without their times. Raises `UnknownPresetError`.
    """
    if preset not in RESOURCE_PRESETS:
        raise UnknownPresetError(f"resources {preset!r} is not a preset; use one of {', '.join(RESOURCE_PRESETS)}")
    queries, sampled = RESOURCE_PRESETS[preset]
    columns = (*RESOURCES, *TRAFFIC, *TIMES, *CHECKS, *SAMPLED)
    return Table(("pod",), columns, MappingProxyType({**queries, **_BROKER_TRAFFIC}), sampled=sampled)


BUNDLE = "bundle_"
"""Prefix of the names of bundle signals in users' queries."""
SIGNALS = frozenset({*RESOURCES, *TRAFFIC, *TIMES, *(BUNDLE + name for name in BUNDLES.columns)}) - {"direct_memory"}
"""Signals for which users may write a query; direct memory is missing, as it has no limit to compare with."""

_CHECKED = {"cpu", "rate_in"}
"""Signals whose series `CHECKS` test. A user's query has other series, for which there are no expectations."""


def tables(settings: PrometheusSettings) -> tuple[Table, Table]:
    """The tables of brokers and bundles, with users' queries in place of the preset's.

    Raises `UnknownPresetError`, and `UnknownSignalError` for a query of an unknown signal.
    """
    queries = dict(settings.queries)
    if unknown := sorted(set(queries) - SIGNALS):
        raise UnknownSignalError(f"queries: {unknown[0]!r} is not a signal; use some of {', '.join(sorted(SIGNALS))}")
    ours = brokers(settings.resources)
    if _CHECKED & set(queries):
        ours = replace(ours, queries={name: promql for name, promql in ours.queries.items() if name not in CHECKS})
    return ours.overridden(queries), BUNDLES.overridden(queries, BUNDLE)


def render(table: Table, settings: PrometheusSettings, pods: Sequence[str]) -> dict[str, str]:
    """PromQL of each column of `table`, restricted to the brokers' `pods` in their Kubernetes namespace.

    Users' queries may use the same selectors. Other words with a dollar stay unchanged, as PromQL has dollars too.
    """
    words = _words(settings, pods)
    return {column: Template(text).safe_substitute(words) for column, text in table.queries.items()}


def render_series(table: Table, settings: PrometheusSettings, pods: Sequence[str]) -> dict[str, Series]:
    """The raw samples of each column of `table` that is computed from them, restricted as by `render`."""
    words = _words(settings, pods)
    return {
        column: replace(series, promql=Template(series.promql).safe_substitute(words))
        for column, series in table.sampled.items()
    }


def _words(settings: PrometheusSettings, pods: Sequence[str]) -> Mapping[str, str]:
    """The values of the selectors in a query's text."""
    namespace, pod = quoted(settings.namespace), f"pod=~{quoted(_any_of(pods))}"
    kubelet, either = f"namespace={namespace},{pod}", quoted(f"{_any_of([settings.namespace])}|.+/.+")
    return {
        "container": f"{kubelet},container={quoted(settings.container)}",
        "network": f'{kubelet},interface!="lo"',
        "pod": kubelet,
        "broker": f"{settings.namespace_label}={namespace},{pod}",
        "topic": f'{settings.namespace_label}=~{either},{pod},topic=~"$topics"',
        "window": _duration(settings.window),
        "samples": _duration(RANGE * settings.window),
        "beyond": _duration(_AHEAD - settings.trust.max_clock_skew),
    }


def topics_in(promql: str, namespaces: Iterable[str] | None = None) -> str:
    """A query of `TOPICS` about the topics of these namespaces, or about all of them."""
    pattern = ".+" if namespaces is None else f"(non-)?persistent://({_any_of(namespaces)})/.+"
    return promql.replace('"$topics"', quoted(pattern))


def asked_late(ahead: str, seconds: float) -> str:
    """The check ``ahead``, sent `seconds` after its evaluation time: samples scraped since then are not ahead."""

    def shorter(found: re.Match[str]) -> str:
        length = int(found[1]) / (1000 if found[2] == "ms" else 1)
        return f"[{_duration(max(1.0, length - math.ceil(seconds)))}] offset -{_AHEAD}s"

    return re.sub(rf"\[(\d+)(ms|s)\] offset -{_AHEAD}s", shorter, ahead)


def of_newest(promql: str) -> str:
    """A query of `BUNDLES` or `TOPICS` without series whose pod has newer samples in other series."""
    keys, _, series = promql.removesuffix(")").partition(") (")
    return f"{keys}) ({series} and ({_latest(series)}))"


def _any_of(names: Iterable[str]) -> str:
    return "|".join(re.sub(r"([.\\+*?()|\[\]{}^$])", r"\\\1", name) for name in names)


def quoted(text: str) -> str:
    """`text` as a PromQL string, which a line break or a quote would end."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def _duration(seconds: float) -> str:
    return f"{seconds:.0f}s" if seconds == int(seconds) else f"{seconds * 1000:.0f}ms"
