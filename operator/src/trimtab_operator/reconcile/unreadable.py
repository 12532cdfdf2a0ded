"""Reports stored objects that can't be read, such as those that an older CRD allowed.

The stores leave these objects out, so nothing acts on them. The report is a condition. It is an Event for a Bundle,
which has no conditions, and where the API server refuses the status of an object whose spec is invalid.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel, ValidationError

from trimtab_operator.kube.client import ConflictError, NotFoundError, RefusedError, ResourceRef
from trimtab_operator.kube.conditions import set_condition
from trimtab_operator.resources.broker import BrokerSpec
from trimtab_operator.resources.bundle import BundleSpec
from trimtab_operator.resources.bundle_split import BundleSplitSpec
from trimtab_operator.resources.common import problems_of
from trimtab_operator.resources.conditions import (
    BrokerCondition,
    ConditionReason,
    ConditionType,
    SplitCondition,
    TopicNamespaceCondition,
)
from trimtab_operator.resources.topic_namespace import TopicNamespaceSpec
from trimtab_operator.state.cluster import ClusterState
from trimtab_operator.status.conditions import shortened

log = logging.getLogger(__name__)

_KINDS: Mapping[str, tuple[type[BaseModel], ConditionType | None]] = {
    "TopicNamespace": (TopicNamespaceSpec, TopicNamespaceCondition.VALID),
    "Broker": (BrokerSpec, BrokerCondition.READY),
    "BundleSplit": (BundleSplitSpec, SplitCondition.ACCEPTED),
    "Bundle": (BundleSpec, None),
}
"""The model of each kind's spec, and the condition that reports an unreadable object."""


@dataclass(slots=True)
class UnreadableObjects:
    """Reports the unreadable objects of one Kubernetes namespace, each once.

    _reported: (kind, uid) -> the reported text.
    """

    cluster: ClusterState
    _reported: dict[tuple[str, str], str] = field(default_factory=dict)

    async def report(self) -> None:
        """Report what is new. Raises `ApiUnavailableError`."""
        before, self._reported = self._reported, {}
        for store in self.cluster.stores.all():
            for raw, error in list(store.unreadable.values()) if store.ref.kind in _KINDS else ():
                key, text = (store.ref.kind, raw["metadata"]["uid"]), _why(store.ref.kind, raw, error)
                if before.get(key) == text or await self._write(store.ref, raw, text):
                    self._reported[key] = text

    async def _write(self, ref: ResourceRef, raw: Mapping[str, Any], text: str) -> bool:
        """Write the condition, or post the Event. False: the object has changed, so the next round looks again."""
        cluster, meta, (_, condition) = self.cluster, raw["metadata"], _KINDS[ref.kind]
        if condition is not None:
            try:
                body = _patch(raw, condition, text, cluster.now())
                await cluster.api.patch(ref, cluster.namespace, meta["name"], body, subresource="status")
            except (ConflictError, NotFoundError):
                return False
            except RefusedError as error:
                log.warning("%s %s: its condition can't be written: %s", ref.kind, meta["name"], error)
            else:
                return True
        event = "Warning", str(ConditionReason.INVALID_SPEC), text
        await cluster.post(ref.kind, meta["name"], event, action="Watch", uid=meta["uid"])
        return True


def _patch(raw: Mapping[str, Any], condition: ConditionType, text: str, now: float) -> dict[str, Any]:
    meta, before = raw["metadata"], (raw.get("status") or {}).get("conditions") or []
    values = "False", str(ConditionReason.INVALID_SPEC), text
    conditions = set_condition(before, condition, *values, meta["generation"], now)
    return {"metadata": {"resourceVersion": meta["resourceVersion"]}, "status": {"conditions": conditions}}


def _why(kind: str, raw: Mapping[str, Any], error: Exception) -> str:
    """What is wrong with an object. error: what reading it raised."""
    model, _ = _KINDS[kind]
    try:
        model.model_validate(raw.get("spec") or {})
    except ValidationError as invalid:
        found = problems_of(invalid)
    else:
        found = problems_of(error) if isinstance(error, ValidationError) else f"{error!r:.200}"
    return shortened(f"it can't be read, so nothing acts on it: {found}; correct it, or delete it")
