"""Builders of the operator's records with default values: a test sets only the fields that it is about."""

from __future__ import annotations

from typing import Any

from trimtab_operator.kube.broker_records import BrokerRecord, PodRecord
from trimtab_operator.kube.records import BundleRecord, TopicNamespaceRecord
from trimtab_operator.state.ownership_changes import ChangeKind, OwnershipChange
from trimtab_strategies.model import NO_POLICY

NAN = float("nan")


def bundle(name: str = "b", owner: str = "x", serving: str | None = None, **changes: Any) -> BundleRecord:
    """A bundle with the desired owner `owner`, served by `serving` (default: `owner`), and without a pending move."""
    fields: dict[str, Any] = {
        "name": name,
        "topic_namespace": "t-n",
        "lower": "0x00000000",
        "upper": "0xffffffff",
        "owner": owner,
        "pinned": False,
        "generation": 3,
        "resource_version": "7",
        "status_owner": owner if serving is None else serving,
        "state": "Owned",
        "observed_generation": 3,
        "since": NAN,
        "assigned_at": NAN,
        "assigned_owner": owner,
        "reason": "",
    }
    return BundleRecord(**{**fields, **changes})


def moving_bundle(name: str = "b", source: str = "x", destination: str = "y", **changes: Any) -> BundleRecord:
    """A bundle served by `source`, with a pending move to `destination`."""
    return bundle(name, destination, source, **{"generation": 4, "observed_generation": 3, **changes})


def _serving(pod: str) -> dict[str, Any]:
    """The condition of a Broker whose pod has been ready since 1970."""
    since = "1970-01-01T00:00:00Z"
    return {
        "type": "Ready",
        "status": "True",
        "reason": "Serving",
        "message": f"pod {pod} is ready",
        "lastTransitionTime": since,
        "observedGeneration": 1,
    }


def broker(name: str = "x", **changes: Any) -> BrokerRecord:
    """A ready, schedulable broker with a pod of its own name."""
    fields: dict[str, Any] = {
        "name": name,
        "pod": name,
        "address": "",
        "schedulable": True,
        "capacity": {},
        "failure_domain": "",
        "version": "",
        "load_manager": "",
        "generation": 1,
        "observed_generation": 1,
        "resource_version": "7",
        "ready": True,
        "bundles": 0,
        "load": {},
        "conditions": (_serving(name),),
    }
    return BrokerRecord(**{**fields, **changes})


def by_name(*found: BrokerRecord) -> dict[str, BrokerRecord]:
    return {record.name: record for record in found}


def pod(name: str = "x", **changes: Any) -> PodRecord:
    """A ready pod with a broker's labels."""
    labels = {"app": "pulsar", "component": "broker"}
    fields: dict[str, Any] = {"name": name, "labels": labels, "ready": True, "deleted": False, "uid": f"uid-{name}"}
    return PodRecord(**{**fields, **changes})


def topic_namespace(name: str = "t-n", **changes: Any) -> TopicNamespaceRecord:
    """A namespace ``t/n`` without constraints and conditions."""
    fields: dict[str, Any] = {
        "name": name,
        "full_name": "t/n",
        "policy": NO_POLICY,
        "bundles": 1,
        "generation": 1,
        "resource_version": "7",
        "conditions": (),
    }
    return TopicNamespaceRecord(**{**fields, **changes})


def ownership_change(left: str, taken: str, at: float, kind: ChangeKind = ChangeKind.MOVED) -> OwnershipChange:
    """Bundle b went from the broker `left` to the broker `taken` at this time (seconds)."""
    return OwnershipChange("b", left, taken, at, kind)
