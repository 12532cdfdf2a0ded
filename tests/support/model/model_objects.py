"""Objects that the models start with, and the operator's state as production code builds it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from process import MemoryApi
from static_sources import StaticSources
from trimtab_operator.app import new_cluster
from trimtab_operator.kube.conditions import timestamp
from trimtab_operator.state.cluster import ClusterState
from trimtab_operator.state.settings import Settings
from trimtab_operator.telemetry.metrics import Metrics

API_VERSION = "trimtab.dev/v1alpha1"
NOW = 1_800_000_000.0
SPACE = "t-n"
_METRICS = Metrics()


class NoSource:
    """A load source that must not be used."""

    def observe(self, *_: Any) -> Any:
        """Refuse."""
        raise AssertionError("the models measure nothing")

    observe_brokers = observe


def bundle(name: str, lower: str, upper: str, owner: str, **spec: Any) -> dict[str, Any]:
    """A bundle that `owner` serves and has confirmed."""
    return {
        "apiVersion": API_VERSION,
        "kind": "Bundle",
        "metadata": {"name": name, "uid": f"{name}.0", "generation": 1, "namespace": "ns"},
        "spec": {"topicNamespace": SPACE, "range": {"lower": lower, "upper": upper}, "owner": owner, **spec},
        "status": {"owner": owner, "state": "Owned", "observedGeneration": 1},
    }


def space(name: str = SPACE, bundles: int = 2) -> dict[str, Any]:
    """The TopicNamespace of all bundles."""
    ready = {"type": "Ready", "status": "True", "reason": "Ready", "message": "", "lastTransitionTime": timestamp(NOW)}
    return {
        "apiVersion": API_VERSION,
        "kind": "TopicNamespace",
        "metadata": {"name": name, "uid": "space", "generation": 1, "namespace": "ns", "resourceVersion": "1"},
        "spec": {"tenant": "t", "name": "n", "bundles": bundles},
        "status": {"bundles": bundles, "conditions": [ready]},
    }


def broker(name: str, *, ready: bool = True) -> dict[str, Any]:
    """A Broker that a person created."""
    return {
        "apiVersion": API_VERSION,
        "kind": "Broker",
        "metadata": {"name": name, "uid": name, "generation": 1, "namespace": "ns", "resourceVersion": f"{ready}"},
        "spec": {"address": f"{name}:8080"},
        "status": {"ready": ready},
    }


def policy(**spec: Any) -> dict[str, Any]:
    """The policy `main` of the brokers x, y and z."""
    base = {
        "mode": "Auto",
        "source": {"prometheus": {"url": "http://prometheus:9090"}},
        "shedder": {"type": "ThresholdShedder"},
        "placement": {"type": "LeastResourceUsageWithWeight"},
        "brokers": {"names": ["x", "y", "z"]},
    }
    return {
        "apiVersion": API_VERSION,
        "kind": "BalancingPolicy",
        "metadata": {"name": "main", "namespace": "ns", "uid": "policy", "generation": 1, "resourceVersion": "1"},
        "spec": {**base, **spec},
    }


class Clock:
    """A clock that a test sets."""

    def __init__(self, seconds: float = 0.0) -> None:
        self.seconds = seconds

    def __call__(self) -> float:
        return self.seconds


def cluster_of(
    api: MemoryApi, clock: Clock, epoch: int, objects: Mapping[str, Iterable[dict[str, Any]]], rules: dict[str, Any]
) -> ClusterState:
    """The real state of an operator whose stores show `objects`, by plural. rules: the policy."""
    cluster = new_cluster(
        api.real, "ns", StaticSources(NoSource()), _METRICS, now=lambda: NOW, clock=clock, chance=lambda: 0.5
    )
    cluster.process.epoch = epoch
    stores = cluster.stores
    by_plural = {store.ref.plural: store for store in stores.all()}
    for store in stores.all():
        store.synced.set()
        store._is_current()
    settings = Settings.of(rules)
    cluster.policies.settings["main"] = settings
    cluster.policies.claims["main"] = settings.claim
    for plural, raws in objects.items():
        for raw in raws:
            by_plural[plural]._take(raw)
    cluster.share_out()
    return cluster
