"""What is asked of Prometheus, as data: two tables (brokers, bundles), and presets for where broker usage comes from.

Every query aggregates with ``max by``: the label set is then fixed, which the fast parser needs, and rows that describe
the same thing twice (a pod scraped by two jobs, a restarted container's old series, a kubelet's pod-level row) do not
add up. Of a restarted pod's old and new container only the one with the newest sample counts: cAdvisor gives its
samples times of its own, so Prometheus does not notice that a series ended, and shows its last sample for five minutes.
The same rule serves servers that hold the series of two replicas, of which one may have died minutes ago. For bundles
and topics it would cost thrice the time, so there `of_newest` adds it where something is known to be there twice.
Usage itself is asked for as raw samples (`Series`): what they say, and how much of the window they cover, is worked out
by `trimtab_pipeline.coverage`, as PromQL's `rate()` does not tell a broker that is idle from one that is not scraped.
Queries are `string.Template` texts with these selectors:

    $container  cAdvisor and kube-state-metrics rows of the broker's container
    $network    cAdvisor rows of the pod's interfaces, which carry no container name worth filtering by
    $pod        kube-state-metrics rows of the pod
    $broker     what the brokers themselves expose
    $topic      what they expose of topics, where the namespace label may be Pulsar's own; `topics_in` says of which
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from string import Template
from types import MappingProxyType

from trimtab_pipeline.api import PrometheusSettings
from trimtab_pipeline.coverage import RANGE

TRAFFIC = ("rate_in", "rate_out", "throughput_in", "throughput_out")
"""Traffic columns of both tables, in the order of `trimtab_strategies.model.TRAFFIC`."""
RESOURCES = (
    *("cpu", "cpu_limit", "memory", "memory_limit", "direct_memory"),
    *("network_in", "network_out", "network_limit", "throttled"),
)
"""Usage and limits of a broker; a preset need not ask for all of them. ``throttled`` is the ratio 0-1 of periods in
which it was kept from using more CPU: shown, as a limit that bites explains much, and not balanced by."""
TIMES = ("resource_time", "traffic_time")
"""Epoch seconds of a broker's newest samples: of its usage, and of its own traffic metrics."""

CHECKS = ("samples", "resets", "copies", "ahead")
"""What tells whether a broker's samples can be believed; null where nobody says. ``samples``: of CPU in the window of
the rates. ``resets``: of its counters in that window. ``copies``: series of the same thing, 1 if there is no other.
``ahead``: samples of a time that is further ahead of the evaluation time than clocks may differ."""
USAGE = ("cpu", "memory", "direct_memory", "network_in", "network_out")
"""Measured usage columns, in the order of `trimtab_strategies.model.RESOURCES`."""
SAMPLED_TIME, SAMPLED_INTERVAL, SAMPLED_COVER = (
    tuple(f"{name}_{what}" for name in USAGE) for what in ("time", "interval", "cover")
)
"""Of each resource in `USAGE`: epoch seconds of its newest sample, seconds between its samples, and, of a counter,
seconds that the samples of its window cover. Null where nobody says."""
SAMPLED = (*SAMPLED_TIME, *SAMPLED_INTERVAL, *SAMPLED_COVER)
_AHEAD = 600
"""Seconds: Prometheus takes no samples that are further ahead of its clock."""


class UnknownPresetError(ValueError):
    """A name that is no preset of broker usage. Says which ones there are."""


class UnknownSignalError(ValueError):
    """A query of something that is not measured. Says what is."""


@dataclass(frozen=True, slots=True)
class Series:
    """Raw samples to ask for.

    promql: a range selector, whose series carry the label ``pod``. counts: whether they are counters.
    above: only values above it count; None: all do. checked: they only tell how far a rate that a person wrote is
    covered.
    """

    promql: str
    counts: bool = False
    above: float | None = None
    checked: bool = False


@dataclass(frozen=True, slots=True)
class Table:
    """A wide table made of instant queries that share their labels.

    keys:    labels every series carries; together they name a row.
    columns: value columns; null where `queries` has no PromQL template for one.
    custom:  columns whose query a person wrote -> the name by which that person knows it.
    sampled: columns that are worked out from raw samples -> which.
    """

    keys: tuple[str, ...]
    columns: tuple[str, ...]
    queries: Mapping[str, str]
    custom: Mapping[str, str] = field(default_factory=dict)
    sampled: Mapping[str, Series] = field(default_factory=dict)

    def overridden(self, queries: Mapping[str, str], prefix: str = "") -> Table:
        """The same with those of `queries` (signal -> PromQL) that name a column after `prefix`."""
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
    """The raw samples of the first counter whose rate in the window a person's query takes; none if it takes none."""
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
    """What counts as 100 %: the container's limit, else its request, else what its node has for pods."""
    container = f'{{$container,resource="{resource}"}}'
    node = f'max by (node) (kube_node_status_allocatable{{resource="{resource}"}})'
    choices = (
        f"max by (pod) (kube_pod_container_resource_limits{container} > 0)",
        f"max by (pod) (kube_pod_container_resource_requests{container} > 0)",
        f"max by (pod) ({_ON_NODE} {node})",
    )
    return f"max by (pod) ({' or '.join(choices)})"


def _ahead(*series: str) -> str:
    """How many samples are further ahead than allowed. A negative offset: an instant query sees nothing ahead of it."""
    return f"max by (pod) ({' or '.join(f'count_over_time({one}[$beyond] offset -{_AHEAD}s)' for one in series)})"


_RATE = re.compile(
    r'\b(?:rate|increase)\s*\(\s*([a-zA-Z_:][\w:]*\s*(?:\{(?:"(?:[^"\\]|\\.)*"|[^"}])*\})?)\s*\[\$window\]'
)
_ON_NODE = 'kube_pod_info{$pod,node!=""} * on (node) group_left ()'
_VIRTUAL = "lo|veth.*|docker.*|cni.*|cali.*|cilium.*|lxc.*|flannel.*|vxlan.*|tunl.*|br-.*|virbr.*|kube-.*|dummy.*"
_SPEED = f'node_network_speed_bytes{{device!~"{_VIRTUAL}",node'
_BY_INSTANCE = f'label_replace({_SPEED}=""}} > 0, "node", "$$1", "instance", "([^:]+).*")'  # no label of its own
_NIC = f'max by (node) ({_SPEED}!=""}} > 0 or {_BY_INSTANCE})'
_CPU, _MEMORY = "container_cpu_usage_seconds_total{$container}", "container_memory_working_set_bytes{$container}"
_RECEIVED, _TRAFFIC = "container_network_receive_bytes_total{$network}", "pulsar_broker_rate_in{$broker}"
_LB_CPU = "pulsar_lb_cpu_usage{$broker}"
_CONTAINER = "__name__, pod, id, name"  # whose containers differ by id and name where a pod has restarted
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
"""Percent of CPU: a broker looks at its host once a minute, and shows less than that until it has looked twice."""
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

    ``resource_time`` and ``traffic_time`` are there because an instant query answers with samples up to 5 minutes old
    without saying so. Raises `UnknownPresetError`.
    """
    if preset not in RESOURCE_PRESETS:
        raise UnknownPresetError(f"resources {preset!r} is no preset; use one of {', '.join(RESOURCE_PRESETS)}")
    queries, sampled = RESOURCE_PRESETS[preset]
    columns = (*RESOURCES, *TRAFFIC, *TIMES, *CHECKS, *SAMPLED)
    return Table(("pod",), columns, MappingProxyType({**queries, **_BROKER_TRAFFIC}), sampled=sampled)


BUNDLE = "bundle_"
"""What the name of a bundle's signal begins with, among the queries that a person writes."""
SIGNALS = frozenset({*RESOURCES, *TRAFFIC, *TIMES, *(BUNDLE + name for name in BUNDLES.columns)}) - {"direct_memory"}
"""Signals for which a person may write a query; direct memory has no limit that it could be measured by."""

_CHECKED = {"cpu", "rate_in"}
"""Signals whose series `CHECKS` look at. Whoever writes a query of one's own has other series, of which nobody knows
what they should be like."""


def tables(settings: PrometheusSettings) -> tuple[Table, Table]:
    """Brokers and bundles, the preset's queries replaced by those a person wrote.

    Raises `UnknownPresetError`, and `UnknownSignalError` for a query of something else.
    """
    queries = dict(settings.queries)
    if unknown := sorted(set(queries) - SIGNALS):
        raise UnknownSignalError(f"queries: {unknown[0]!r} is no signal; use some of {', '.join(sorted(SIGNALS))}")
    ours = brokers(settings.resources)
    if _CHECKED & set(queries):
        ours = replace(ours, queries={name: promql for name, promql in ours.queries.items() if name not in CHECKS})
    return ours.overridden(queries), BUNDLES.overridden(queries, BUNDLE)


def render(table: Table, settings: PrometheusSettings, pods: Sequence[str]) -> dict[str, str]:
    """PromQL of each column of `table`, restricted to the brokers' `pods` in their Kubernetes namespace.

    What a person wrote may use the same words; what looks like another one is left as it is, as PromQL has dollars too.
    """
    words = _words(settings, pods)
    return {column: Template(text).safe_substitute(words) for column, text in table.queries.items()}


def render_series(table: Table, settings: PrometheusSettings, pods: Sequence[str]) -> dict[str, Series]:
    """The raw samples of each column of `table` that is worked out from them, restricted as by `render`."""
    words = _words(settings, pods)
    return {
        column: replace(series, promql=Template(series.promql).safe_substitute(words))
        for column, series in table.sampled.items()
    }


def _words(settings: PrometheusSettings, pods: Sequence[str]) -> Mapping[str, str]:
    """What the words in a query's text stand for."""
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
    """The check ``ahead`` as it is asked `seconds` after its evaluation time: what was scraped since is no future."""

    def shorter(found: re.Match[str]) -> str:
        length = int(found[1]) / (1000 if found[2] == "ms" else 1)
        return f"[{_duration(max(1.0, length - math.ceil(seconds)))}] offset -{_AHEAD}s"

    return re.sub(rf"\[(\d+)(ms|s)\] offset -{_AHEAD}s", shorter, ahead)


def of_newest(promql: str) -> str:
    """A query of `BUNDLES` or `TOPICS` that leaves out series whose pod has newer samples in others."""
    keys, _, series = promql.removesuffix(")").partition(") (")
    return f"{keys}) ({series} and ({_latest(series)}))"


def _any_of(names: Iterable[str]) -> str:
    return "|".join(re.sub(r"([.\\+*?()|\[\]{}^$])", r"\\\1", name) for name in names)


def quoted(text: str) -> str:
    """`text` as a string of PromQL, which ends at a line break as at a quote."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def _duration(seconds: float) -> str:
    return f"{seconds:.0f}s" if seconds == int(seconds) else f"{seconds * 1000:.0f}ms"
