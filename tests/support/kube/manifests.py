"""Valid, minimal objects as people write them: a test sets only the fields that it is about."""

from __future__ import annotations

from typing import Any

API_VERSION = "trimtab.dev/v1alpha1"


def _object(kind: str, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": API_VERSION, "kind": kind, "metadata": {"name": name}, "spec": spec}


def topic_namespace(name: str = "public-default", /, **spec: Any) -> dict[str, Any]:
    """A TopicNamespace object."""
    return _object("TopicNamespace", name, {"tenant": "public", "name": "default", **spec})


def bundle(name: str = "b", lower: str = "0x00000000", upper: str = "0x40000000", **spec: Any) -> dict[str, Any]:
    base = {"topicNamespace": "public-default", "range": {"lower": lower, "upper": upper}}
    return _object("Bundle", name, {**base, **spec})


def broker(name: str = "broker-0", **spec: Any) -> dict[str, Any]:
    """A Broker object. It stands for a pod of its name unless `spec` says otherwise."""
    return _object("Broker", name, spec or {"pod": name})


def bundle_split(name: str = "split", **spec: Any) -> dict[str, Any]:
    """A BundleSplit object."""
    return _object("BundleSplit", name, {"bundle": "b", "boundaries": ["0x20000000"], **spec})


def eager_strategies(history_percent: float = 0) -> dict[str, Any]:
    """Strategies in a policy's spec that act on the current load, almost without averages, and without minima."""
    return {
        "shedder": {
            "type": "ThresholdShedder",
            "thresholdShedder": {"threshold": 5, "historyPercent": history_percent, "minThroughput": 0},
        },
        "placement": {
            "type": "LeastResourceUsageWithWeight",
            "leastResourceUsageWithWeight": {"averageDifference": 5, "historyPercent": history_percent},
        },
    }


def policy(name: str = "main", **spec: Any) -> dict[str, Any]:
    """A BalancingPolicy object with all defaults."""
    base = {
        "source": {"prometheus": {"url": "http://prometheus.monitoring.svc:9090"}},
        "shedder": {"type": "ThresholdShedder"},
        "placement": {"type": "LeastResourceUsageWithWeight"},
    }
    return _object("BalancingPolicy", name, {**base, **spec})
