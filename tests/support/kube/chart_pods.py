"""Broker pods with the properties of those that Pulsar's own Helm chart (4.x) creates with its default values.

These are its labels, the name of its container (the name of the StatefulSet), its requests without limits, and its init
containers. Other properties of its pods do not concern Trimtab.
"""

from __future__ import annotations

from typing import Any

from trimtab_operator.kube.broker_records import PodRecord, pod_record

LABELS = {"app": "pulsar", "component": "broker", "release": "pulsar", "cluster": "pulsar"}
RESOURCES = {"requests": {"cpu": "200m", "memory": "512Mi"}}


def chart_pod(ordinal: int = 0, name: str = "pulsar-broker", **changes: Any) -> dict[str, Any]:
    """A running pod (as JSON). changes: parts of its spec and status; ``containers`` replaces all containers."""
    waits = [{"name": f"wait-{what}-ready", "resources": RESOURCES} for what in ("zookeeper", "bookkeeper")]
    main = {"name": name, "image": "apachepulsar/pulsar-all:4.0.8", "resources": changes.pop("resources", RESOURCES)}
    status = {
        "phase": "Running",
        "podIP": f"10.1.0.{7 + ordinal}",
        "hostIP": "10.0.0.3",
        "conditions": [{"type": "Ready", "status": "True"}],
        **changes.pop("status", {}),
    }
    meta = {"name": f"pulsar-broker-{ordinal}", "labels": LABELS, "uid": f"u{ordinal}"}
    spec = {"nodeName": f"node-{ordinal}", "initContainers": waits, "containers": [main], **changes}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec, "status": status}


def chart_record(ordinal: int = 0, **changes: Any) -> PodRecord:
    """The record of a `chart_pod`."""
    return pod_record(chart_pod(ordinal, **changes))
