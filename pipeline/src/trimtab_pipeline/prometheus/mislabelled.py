"""Metrics of the brokers that exist, but name the pods in another label than ``pod``, so that no query finds them.

A scrape configuration decides on the labels. Pulsar's older charts name the pod in ``kubernetes_pod_name``. Without
``honor_labels``, the pods in the metrics of kube-state-metrics are in ``exported_pod``, because ``pod`` is its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from trimtab_pipeline.api import PrometheusSettings
from trimtab_pipeline.prometheus.queries import broker_selector, matchers_of, naming, quoted
from trimtab_pipeline.prometheus.samples import Samples
from trimtab_strategies.model import some

TRAFFIC_METRIC, LIMITS_METRIC = "pulsar_broker_rate_in", "kube_pod_container_resource_limits"


def traffic_elsewhere(settings: PrometheusSettings) -> str:
    """PromQL for a series of the brokers' traffic that has no label ``pod``."""
    return f'topk(1, {TRAFFIC_METRIC}{{{broker_selector(settings)},pod=""}})'


def limits_elsewhere(settings: PrometheusSettings, pods: Sequence[str]) -> str:
    """PromQL for a series of the limits of `pods` that names the pod in ``exported_pod``."""
    where = f"exported_namespace={quoted(settings.namespace)},exported_{naming(pods)}{matchers_of(settings)}"
    return f"topk(1, {LIMITS_METRIC}{{{where}}})"


def traffic_note(answer: Samples) -> str:
    """What is wrong if `traffic_elsewhere` has this answer; empty if nothing is."""
    labels = _labels(answer)
    if not labels:
        return ""
    holder = next((name for name in labels if "pod" in name), "")
    fix = f"rename {holder} ({labels[holder]}) to pod" if holder else "add it from __meta_kubernetes_pod_name"
    there = some([name for name in sorted(labels) if name != "__name__"], 12)
    return f"{TRAFFIC_METRIC} has no label pod, so it is known of no broker; {fix} in its scrape job (it has {there})"


def limits_note(answer: Samples) -> str:
    """What is wrong if `limits_elsewhere` has this answer; empty if nothing is."""
    labels = _labels(answer)
    if not labels:
        return ""
    return (
        f"{LIMITS_METRIC} names {labels['exported_pod']} in exported_pod, and not in pod, so no limit is found in the "
        "metrics; set honor_labels: true (honorLabels of a ServiceMonitor) in the scrape job of kube-state-metrics"
    )


def _labels(answer: Samples) -> Mapping[str, str]:
    """The labels of the first series."""
    if not len(answer):
        return {}
    return {name: text for name, column in answer.labels.items() if (text := column[0].as_py())}
