"""A broker's `/metrics` page in Prometheus' text format, with the metric names of a real cluster.

In a cluster these metrics come from the kubelet (cAdvisor), kube-state-metrics and the broker. Here one page has them
all. Like the kubelet, it repeats CPU and memory in a pod-level row without a container. So a query that forgets
``container=`` counts usage twice here, as it would in a cluster.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import groupby
from typing import NamedTuple

from trimtab_testbed.simulated.load import SimulatedBrokerLoad, traffic

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
CONTAINER = "broker"
CLUSTER = "testbed"

_NIC = 1.25e9  # bytes/s that the brokers' own percentages of bandwidth refer to
_TO_ESCAPE = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


class Sample(NamedTuple):
    """One line: metric name, labels, value."""

    name: str
    labels: Mapping[str, str]
    value: float


def page(load: SimulatedBrokerLoad, namespace: str, at: float) -> str:
    """The page of a broker at `at` (epoch seconds). namespace: the Kubernetes namespace of its pod."""
    load.advance(at)
    pod = {"namespace": namespace, "pod": load.shape.name}
    state = state_rows(pod, load.shape.cores, load.shape.memory)
    return render([*_kubelet(load, pod, at), *state, *_broker(load, at), *_bundles(load, at)])


def render(samples: Iterable[Sample]) -> str:
    """Text format, with the samples of each metric grouped, as the format requires."""
    lines: list[str] = []
    for name, group in groupby(sorted(samples, key=lambda sample: sample.name), key=lambda sample: sample.name):
        lines.append(f"# TYPE {name} {'counter' if name.endswith('_total') else 'gauge'}")
        lines += [f"{name}{_labels(sample.labels)} {sample.value!r}" for sample in group]
    return "\n".join(lines) + "\n"


def _labels(labels: Mapping[str, str]) -> str:
    return "{" + ",".join(f'{key}="{value.translate(_TO_ESCAPE)}"' for key, value in labels.items()) + "}"


def _kubelet(load: SimulatedBrokerLoad, pod: Mapping[str, str], at: float) -> Iterable[Sample]:
    yield from usage_rows(pod, load.cpu_seconds, load.memory(at))
    card = {**pod, "interface": "eth0"}
    yield Sample("container_network_receive_bytes_total", card, load.received_bytes)
    yield Sample("container_network_transmit_bytes_total", card, load.sent_bytes)


def usage_rows(pod: Mapping[str, str], cpu: float, memory: float) -> Iterable[Sample]:
    """What the kubelet says of a pod's CPU (seconds) and memory (bytes). pod: labels."""
    for container in (CONTAINER, ""):
        row = {**pod, "container": container}
        yield Sample("container_cpu_usage_seconds_total", row, cpu)
        yield Sample("container_memory_working_set_bytes", row, memory)


def state_rows(pod: Mapping[str, str], cores: float, memory: float) -> Iterable[Sample]:
    """What kube-state-metrics says of a ready pod with limits of `cores` and `memory` (bytes). pod: labels."""
    for resource, unit, limit in (("cpu", "core", cores), ("memory", "byte", memory)):
        row = {**pod, "container": CONTAINER, "resource": resource, "unit": unit}
        yield Sample("kube_pod_container_resource_limits", row, limit)
    yield Sample("kube_pod_status_ready", {**pod, "condition": "true"}, 1.0)


def _broker(load: SimulatedBrokerLoad, at: float) -> Iterable[Sample]:
    total, memory = load.total(at), 100 * load.memory(at) / load.shape.memory
    own = {"cluster": CLUSTER, "broker": load.shape.name, "metric": "loadBalance"}
    yield Sample("pulsar_lb_cpu_usage", own, 100 * load.cpu(at) / load.shape.cores)
    yield Sample("pulsar_lb_memory_usage", own, memory)
    yield Sample("pulsar_lb_directMemory_usage", own, memory / 2)
    yield Sample("pulsar_lb_bandwidth_in_usage", own, 100 * total.throughput_in / _NIC)
    yield Sample("pulsar_lb_bandwidth_out_usage", own, 100 * total.throughput_out / _NIC)
    cluster = {"cluster": CLUSTER, "metric": "broker"}
    yield Sample("pulsar_broker_rate_in", cluster, total.rate_in)
    yield Sample("pulsar_broker_rate_out", cluster, total.rate_out)
    yield Sample("pulsar_broker_throughput_in", cluster, total.throughput_in)
    yield Sample("pulsar_broker_throughput_out", cluster, total.throughput_out)


def _bundles(load: SimulatedBrokerLoad, at: float) -> Iterable[Sample]:
    for bundle in load.loads():
        row = {"cluster": CLUSTER, "broker": load.shape.name, "bundle": bundle.name, "metric": "bundle"}
        now = traffic(bundle, at)
        yield Sample("pulsar_bundle_msg_rate_in", row, now.rate_in)
        yield Sample("pulsar_bundle_msg_rate_out", row, now.rate_out)
        yield Sample("pulsar_bundle_msg_throughput_in", row, now.throughput_in)
        yield Sample("pulsar_bundle_msg_throughput_out", row, now.throughput_out)
        yield Sample("pulsar_bundle_topics_count", row, float(bundle.topics))
        yield Sample("pulsar_bundle_producer_count", row, float(bundle.producers))
        yield Sample("pulsar_bundle_consumer_count", row, float(bundle.consumers))
