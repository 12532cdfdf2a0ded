"""What is asked of Prometheus, as data: two tables (brokers, bundles), and presets for where broker usage comes from.

Every query aggregates with ``max by``: the label set is then fixed, which the fast parser needs, and rows that describe
the same thing twice (a pod scraped by two jobs, a restarted container's old series, a kubelet's pod-level row) do not
add up. Queries are `string.Template` texts with these selectors:

    $container  cAdvisor and kube-state-metrics rows of the broker's container
    $network    cAdvisor rows of the pod's interfaces, which carry no container name worth filtering by
    $broker     what the brokers themselves expose
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from string import Template
from types import MappingProxyType

from trimtab_pipeline.source import PrometheusSettings

TRAFFIC = ("rate_in", "rate_out", "throughput_in", "throughput_out")
"""Traffic columns of both tables, in the order of `trimtab_strategies.model.TRAFFIC`."""
RESOURCES = ("cpu", "cpu_limit", "memory", "memory_limit", "direct_memory", "network_in", "network_out")
"""Usage and limits of a broker; a preset need not ask for all of them."""
TIMES = ("resource_time", "traffic_time")
"""Epoch seconds of a broker's newest samples: of its usage, and of its own traffic metrics."""


class UnknownPresetError(ValueError):
    """A name that is no preset of broker usage. Says which ones there are."""


@dataclass(frozen=True, slots=True)
class Table:
    """A wide table made of instant queries that share their labels.

    keys:    labels every series carries; together they name a row.
    columns: value columns; null where `queries` has no PromQL template for one.
    """

    keys: tuple[str, ...]
    columns: tuple[str, ...]
    queries: Mapping[str, str]


_KUBERNETES = {
    "cpu": "max by (pod) (rate(container_cpu_usage_seconds_total{$container}[$window]))",
    "cpu_limit": 'max by (pod) (kube_pod_container_resource_limits{$container,resource="cpu"})',
    "memory": "max by (pod) (container_memory_working_set_bytes{$container})",
    "memory_limit": 'max by (pod) (kube_pod_container_resource_limits{$container,resource="memory"})',
    "network_in": "max by (pod) (rate(container_network_receive_bytes_total{$network}[$window]))",
    "network_out": "max by (pod) (rate(container_network_transmit_bytes_total{$network}[$window]))",
    "resource_time": "max by (pod) (timestamp(container_cpu_usage_seconds_total{$container}))",
}
_PULSAR = {
    "cpu": "max by (pod) (pulsar_lb_cpu_usage{$broker})",
    "memory": "max by (pod) (pulsar_lb_memory_usage{$broker})",
    "direct_memory": "max by (pod) (pulsar_lb_directMemory_usage{$broker})",
    "network_in": "max by (pod) (pulsar_lb_bandwidth_in_usage{$broker})",
    "network_out": "max by (pod) (pulsar_lb_bandwidth_out_usage{$broker})",
    "resource_time": "max by (pod) (timestamp(pulsar_lb_cpu_usage{$broker}))",
}
_BROKER_TRAFFIC = {
    "rate_in": "max by (pod) (pulsar_broker_rate_in{$broker})",
    "rate_out": "max by (pod) (pulsar_broker_rate_out{$broker})",
    "throughput_in": "max by (pod) (pulsar_broker_throughput_in{$broker})",
    "throughput_out": "max by (pod) (pulsar_broker_throughput_out{$broker})",
    "traffic_time": "max by (pod) (timestamp(pulsar_broker_rate_in{$broker}))",
}

RESOURCE_PRESETS: Mapping[str, Mapping[str, str]] = MappingProxyType({"kubernetes": _KUBERNETES, "pulsar": _PULSAR})
"""Queries of broker usage. ``kubernetes``: cores, bytes and bytes/s beside limits. ``pulsar``: percent, limit 100."""

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


def brokers(preset: str) -> Table:
    """The broker table of a preset: usage, limits, own traffic, and the time (epoch s) of the newest samples.

    ``resource_time`` and ``traffic_time`` are there because an instant query answers with samples up to 5 minutes old
    without saying so. Raises `UnknownPresetError`.
    """
    if preset not in RESOURCE_PRESETS:
        raise UnknownPresetError(f"resources {preset!r} is no preset; use one of {', '.join(RESOURCE_PRESETS)}")
    queries = MappingProxyType({**RESOURCE_PRESETS[preset], **_BROKER_TRAFFIC})
    return Table(("pod",), (*RESOURCES, *TRAFFIC, *TIMES), queries)


def render(table: Table, settings: PrometheusSettings, pods: Sequence[str]) -> dict[str, str]:
    """PromQL of each column of `table`, restricted to the brokers' `pods` in their Kubernetes namespace."""
    namespace, pod = _quote(settings.namespace), f"pod=~{_quote(_any_of(pods))}"
    kubelet = f"namespace={namespace},{pod}"
    words = {
        "container": f"{kubelet},container={_quote(settings.container)}",
        "network": f'{kubelet},interface!="lo"',
        "broker": f"{settings.namespace_label}={namespace},{pod}",
        "window": _duration(settings.window),
    }
    return {column: Template(text).substitute(words) for column, text in table.queries.items()}


def _any_of(names: Sequence[str]) -> str:
    return "|".join(re.sub(r"([.\\+*?()|\[\]{}^$])", r"\\\1", name) for name in names)


def _quote(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _duration(seconds: float) -> str:
    return f"{seconds:.0f}s" if seconds == int(seconds) else f"{seconds * 1000:.0f}ms"
