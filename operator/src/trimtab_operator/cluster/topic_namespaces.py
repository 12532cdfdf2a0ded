"""`TopicNamespaceRecord`: what the operator keeps of a TopicNamespace object."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trimtab_operator.cluster.move_costs import NOT_MEASURED, MoveCosts
from trimtab_operator.resources.broker import DISCOVERED
from trimtab_operator.resources.topic_namespace import DEFAULT_BUNDLES
from trimtab_strategies.model import Isolation, NamespacePolicy

_NOTHING: Mapping[str, Any] = {}


@dataclass(frozen=True, slots=True)
class TopicNamespaceRecord:
    """One TopicNamespace at one resourceVersion.

    name:       of the object; full_name: ``tenant/name`` as Pulsar spells it.
    policy:     what is asked for its bundles.
    bundles:    how many it was cut into, 0 while it was not.
    conditions: as its status has them.
    asked:      how many bundles it is to begin with.
    discovered: whether it was made because Pulsar has such a namespace, and follows that.
    move_costs: what the latest moves of its bundles cost.
    """

    name: str
    full_name: str
    policy: NamespacePolicy
    bundles: int
    generation: int
    resource_version: str
    conditions: tuple[Mapping[str, Any], ...]
    uid: str = ""
    asked: int = 1
    discovered: bool = False
    move_costs: MoveCosts = NOT_MEASURED


def topic_namespace_record(raw: Mapping[str, Any]) -> TopicNamespaceRecord:
    """The record of a TopicNamespace object as the API server returns it."""
    meta, spec, status = raw["metadata"], raw["spec"], raw.get("status") or _NOTHING
    return TopicNamespaceRecord(
        name=meta["name"],
        full_name=f"{spec['tenant']}/{spec['name']}",
        policy=_policy(spec),
        bundles=status.get("bundles") or 0,
        generation=meta["generation"],
        resource_version=meta["resourceVersion"],
        conditions=tuple(status.get("conditions") or ()),
        uid=meta["uid"],
        asked=spec.get("bundles", DEFAULT_BUNDLES),
        discovered=(meta.get("labels") or _NOTHING).get(DISCOVERED) == "true",
        move_costs=MoveCosts.of(status),
    )


def _policy(spec: Mapping[str, Any]) -> NamespacePolicy:
    return NamespacePolicy(
        isolation=_isolation(spec.get("isolation")),
        anti_affinity_group=spec.get("antiAffinityGroup") or "",
        unload=spec.get("balanced", True),
    )


def _isolation(found: Mapping[str, Any] | None) -> Isolation | None:
    if found is None:
        return None
    primary, secondary = (tuple(found.get(key) or ()) for key in ("primary", "secondary"))
    return Isolation(primary, secondary, found.get("minAvailable", 1))
