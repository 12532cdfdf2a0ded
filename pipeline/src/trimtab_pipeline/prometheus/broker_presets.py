"""The presets of queries about brokers: raw samples of usage and traffic, and single values from instant queries.

Raw samples are read as they are. A later stage computes rates from them, because PromQL's `rate()` does not distinguish
an idle broker from one without samples. A single value aggregates with ``max by (pod)``, so duplicate rows (a pod
scraped by two jobs, a kubelet's pod-level row) do not add up. Queries are `string.Template` texts with these selectors:

    $container  cAdvisor and kube-state-metrics rows of the broker's container
    $containers rows of this container in all pods of the namespace. A query that names many pods is long, so it names
                them only where it begins, and not in what its series are only matched with
    $every      cAdvisor rows of all containers of the pod, and of the pod as a whole; `Containers` chooses among them
    $network    cAdvisor rows of the pod's interfaces, which have no useful container name
    $nics       node exporter's rows of the declared device, or of those that have the name of a NIC
    $devices    the same, but else of all devices that are not virtual
    $pod        kube-state-metrics rows of the pod
    $pods       those of all pods of the namespace
    $broker     the brokers' own metrics
    $matchers   the user's matchers, each after a comma. They are in the other selectors, too
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from trimtab_pipeline.columns import TRAFFIC

BEYOND = 600
"""Seconds: Prometheus rejects samples that are further ahead of its clock."""


EVERY = "$every"
"""The selector of rows of all containers."""


class UnknownPresetError(ValueError):
    """An unknown preset of broker usage. The text lists the known ones."""


@dataclass(frozen=True, slots=True)
class Series:
    """The raw samples of one signal of brokers.

    metric, selector: its series; they have the label ``pod``. kind: ``counter`` or ``gauge``. part: the label that
    names a part of the signal; parts are added up. It is empty if there are no parts. above: lower or equal
    values are ignored; None: no value is.
    """

    metric: str
    selector: str
    kind: str = "gauge"
    part: str = ""
    above: float | None = None


@dataclass(frozen=True, slots=True)
class BrokerPreset:
    """What is read about brokers. values: instant query of each signal. series: raw samples of each signal.

    ahead: instant query that counts samples with a time further in the future than `Trust.max_clock_skew` allows.
    apart: instant query for the series about limits of a pod that contradict each other, with all their labels; empty
    if there are no limits.
    """

    values: Mapping[str, str]
    series: Mapping[str, Series]
    ahead: str
    apart: str = ""


def latest(series: str) -> str:
    """PromQL for those of the `series` whose newest sample is their pod's newest.

    For five minutes, Prometheus also returns the last sample of a container or replica that is gone.
    """
    return f"timestamp({series}) == on (pod) group_left () max by (pod) (timestamp({series}))"


def _limit(resource: str, in_force: str) -> str:
    """The limit of the container: the one that the kernel has `in_force`, else the one that Kubernetes wants.

    They differ while a resize is pending. A request is no limit. A limit of NaN stays NaN, so that nothing silently
    replaces it.
    """
    ours, all_ours = (
        f'kube_pod_container_resource_limits{{{selector},resource="{resource}"}}'
        for selector in ("$container", "$containers")
    )
    return f"max by (pod) ({in_force} or max by (pod) ({ours} unless {all_ours} <= 0))"


def _of_node(resource: str) -> str:
    """What the pod's node can allocate to pods."""
    node = f'kube_node_status_allocatable{{resource="{resource}"$matchers}}'
    return f"max by (pod) ({_ON_NODE} max by (node) ({node}))"


def _apart() -> str:
    """PromQL for the limits of containers, and for pods on several nodes, where the values of a pod differ."""
    limits, all_limits = (
        f'kube_pod_container_resource_limits{{{selector},resource=~"cpu|memory"}}'
        for selector in ("$container", "$containers")
    )
    found = [f"{limits} and on (pod, resource) ({_differ('pod, resource', all_limits, all_limits)})"]
    for resource in ("cpu", "memory"):
        node = f'by (node) (kube_node_status_allocatable{{resource="{resource}"$matchers}})'
        high, low = (
            f'kube_pod_info{{$pods,node!=""}} * on (node) group_left () {kind} {node}' for kind in ("max", "min")
        )
        found.append(f'kube_pod_info{{$pod,node!=""}} and on (pod) ({_differ("pod", high, low)})')
    return " or ".join(found)


def _differ(labels: str, high: str, low: str) -> str:
    return f"max by ({labels}) ({high}) > min by ({labels}) ({low})"


def _ahead(*series: str) -> str:
    """PromQL that counts samples further ahead than allowed. Without the negative offset it would not see them."""
    return f"max by (pod) ({' or '.join(f'count_over_time({one}[$beyond] offset -{BEYOND}s)' for one in series)})"


def _speed(devices: str) -> str:
    """PromQL for the known speeds of a node's devices. The instance names the node if there is no label ``node``."""
    of = f"node_network_speed_bytes{{{devices}$matchers,node"
    return f'{of}!=""}} > 0 or label_replace({of}=""}} > 0, "node", "$$1", "instance", "([^:]+).*")'


_ON_NODE = 'kube_pod_info{$pod,node!=""} * on (node) group_left ()'
_NIC = " or ".join(f"max by (node) ({_speed(devices)})" for devices in ("$nics", "$devices"))
_CPU, _TRAFFIC, _LB_CPU = (
    "container_cpu_usage_seconds_total{$every}",
    "pulsar_broker_rate_in{$broker}",
    "pulsar_lb_cpu_usage{$broker}",
)
_PERIODS, _THROTTLED = (f"container_cpu_cfs_{name}periods_total{{$containers}}" for name in ("", "throttled_"))
_QUOTA = "max by (pod) ((container_spec_cpu_quota{$container} > 0) / container_spec_cpu_period{$containers})"
_BYTES = "max by (pod) (container_spec_memory_limit_bytes{$container} > 0)"
_TRAFFIC_TIME = {"traffic_time": f"max by (pod) (timestamp({_TRAFFIC}))"}
_TRAFFIC_SERIES = {name: Series(f"pulsar_broker_{name}", "$broker") for name in TRAFFIC}
_NOT_YET = 0.001
"""Percent of CPU: a broker samples its host once a minute, and exports a value below this until its second sample."""

_KUBERNETES = BrokerPreset(
    values={
        "cpu_limit": _limit("cpu", _QUOTA),
        "memory_limit": _limit("memory", _BYTES),
        "cpu_node": _of_node("cpu"),
        "memory_node": _of_node("memory"),
        "network_limit": f"max by (pod) ({_ON_NODE} ({_NIC}))",
        "throttled": "max by (pod) (rate(container_cpu_cfs_throttled_periods_total{$container}[$window])"
        f" / (rate({_PERIODS}[$window]) > 0) and ({latest(_THROTTLED)}))",
        "resource_time": f"max by (pod) (timestamp({_CPU}))",
        **_TRAFFIC_TIME,
    },
    series={
        "cpu": Series("container_cpu_usage_seconds_total", EVERY, "counter", part="cpu"),
        "memory": Series("container_memory_working_set_bytes", EVERY),
        "network_in": Series("container_network_receive_bytes_total", "$network", "counter", part="interface"),
        "network_out": Series("container_network_transmit_bytes_total", "$network", "counter", part="interface"),
        **_TRAFFIC_SERIES,
    },
    ahead=_ahead(_CPU, _TRAFFIC),
    apart=_apart(),
)
_PULSAR = BrokerPreset(
    values={"resource_time": f"max by (pod) (timestamp({_LB_CPU}))", **_TRAFFIC_TIME},
    series={
        "cpu": Series("pulsar_lb_cpu_usage", "$broker", above=_NOT_YET),
        "memory": Series("pulsar_lb_memory_usage", "$broker"),
        "direct_memory": Series("pulsar_lb_directMemory_usage", "$broker"),
        "network_in": Series("pulsar_lb_bandwidth_in_usage", "$broker"),
        "network_out": Series("pulsar_lb_bandwidth_out_usage", "$broker"),
        **_TRAFFIC_SERIES,
    },
    ahead=_ahead(_LB_CPU, _TRAFFIC),
)

RESOURCE_PRESETS: Mapping[str, BrokerPreset] = MappingProxyType({"kubernetes": _KUBERNETES, "pulsar": _PULSAR})
"""``kubernetes``: cores, bytes and bytes/s, with limits. ``pulsar``: percent, limit 100.

Both query the times of samples, because an instant query returns samples up to 5 minutes old without their times."""


def preset(name: str) -> BrokerPreset:
    """The preset `name`. Raises `UnknownPresetError`."""
    if name not in RESOURCE_PRESETS:
        raise UnknownPresetError(f"resources {name!r} is not a preset; use one of {', '.join(RESOURCE_PRESETS)}")
    return RESOURCE_PRESETS[name]
