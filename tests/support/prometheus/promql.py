"""Finds the names in a PromQL query by regular expressions: metrics, their labels, and labels of groups and joins."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from trimtab_operator.telemetry.metrics import Metrics

TARGET = frozenset({"namespace", "pod", "instance", "job"})
"""Labels that Prometheus adds to what it scrapes."""

OTHERS = {
    "kube_configmap_info": TARGET | {"configmap"},
    "kube_pod_container_resource_limits": TARGET | {"container", "resource"},
    "container_memory_working_set_bytes": TARGET | {"container"},
    "ALERTS": TARGET | {"alertname", "alertstate"},
}
"""Metrics of kube-state-metrics, of the kubelet, and of Prometheus itself, with the labels that we use."""

_STRING = r'"(?:[^"\\]|\\.)*"'
_METRIC = re.compile(rf"\b([a-zA-Z_:][\w:]*+)(?!\s*\()(?:\s*\{{((?:{_STRING}|[^}}\"])*)\}})?")
_WINDOW = re.compile(r"\[[^]]*\]")
_MATCHER = re.compile(rf"(\w+)\s*(=~|!~|!=|=)\s*({_STRING})")
_GROUPING = re.compile(r"\b(?:by|on|without|ignoring)\s*\(([^)]*)\)")
_WORDS = frozenset({"and", "or", "unless"})


@dataclass(frozen=True)
class Selector:
    """One selection of series. matchers: label, operator, value without its quotes."""

    metric: str
    matchers: tuple[tuple[str, str, str], ...]
    text: str


def selectors(query: str) -> Iterator[Selector]:
    """Every selection in a query."""
    for found in _METRIC.finditer(_WINDOW.sub("", _GROUPING.sub("", query))):
        if found[1] not in _WORDS:
            matchers = tuple((m[1], m[2], m[3][1:-1]) for m in _MATCHER.finditer(found[2] or ""))
            yield Selector(found[1], matchers, found[0])


def grouping(query: str) -> set[str]:
    """The labels by which a query groups or joins."""
    return {label.strip() for found in _GROUPING.finditer(query) for label in found[1].split(",") if label.strip()}


def known_metrics() -> dict[str, frozenset[str]]:
    """Labels of each series that a query may use, by stored name."""
    found: dict[str, frozenset[str]] = dict(OTHERS)
    for metric in Metrics().described:
        labels = TARGET | set(metric.labels)
        if metric.type == "histogram":
            found |= {f"{metric.name}_sum": labels, f"{metric.name}_count": labels}
            found[f"{metric.name}_bucket"] = labels | {"le"}
        else:
            found[metric.name] = labels
    return found
