"""Samples of counters and gauges, and the series of two brokers, for `raw_samples`."""

from __future__ import annotations

import numpy as np

from raw_samples import Kept
from trimtab_strategies.model.cluster_load import FloatArray

AT = 1_000_000.0


def counter(rate: float, begin: float = 1e5, *, interval: float = 15, phase: float = 0, late: float = 0) -> FloatArray:
    """Samples of the last five minutes. begin: the counter's value at `AT`. late: seconds that values are behind."""
    times = AT - phase - interval * np.arange(int(300 / interval))[::-1]
    return np.stack([times, begin + rate * (times - late - AT)], axis=1)


def gauge(*values: float, interval: float = 15, phase: float = 0) -> FloatArray:
    times = AT - phase - interval * np.arange(len(values))[::-1]
    return np.stack([times, values], axis=1)


PODS = ("b-0", "b-1")


def world(**west: float) -> Kept:
    """Two brokers of a cluster, and the series of another cluster with brokers of these names: what `west` scales."""
    kept = Kept()
    for pod in PODS:
        for cluster in ("east", "west") if west else ("east",):
            scale = 1.0 if cluster == "east" else west["scale"]
            own = {"namespace": "ns", "pod": pod, "cluster": cluster}
            container = {**own, "container": "broker"}
            cpu = counter(1.5 * scale, 1e5 * scale).tolist()
            kept.add("container_cpu_usage_seconds_total", cpu, **container, cpu="total")
            kept.add("container_memory_working_set_bytes", gauge(*[2e9] * 20).tolist(), **container)
            for direction in ("receive", "transmit"):
                traffic = counter(1e6 * scale, 1e12 * scale).tolist()
                kept.add(f"container_network_{direction}_bytes_total", traffic, **own, interface="eth0")
            for name in ("rate_in", "rate_out", "throughput_in", "throughput_out"):
                kept.add(f"pulsar_broker_{name}", gauge(*[100.0 * scale] * 20).tolist(), **own)
            for resource, limit in {"cpu": 2, "memory": 4e9}.items():
                points = gauge(*[limit] * 20).tolist()
                kept.add("kube_pod_container_resource_limits", points, **container, resource=resource)
    return kept
