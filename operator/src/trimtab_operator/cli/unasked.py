"""What `trimtab plan` does not ask of a real Pulsar cluster, and what the operator, which does, found out. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from trimtab_operator.control.settings import Settings

_FOUND = ("Linked", "OneHand", "DataTrusted")
"""Conditions that tell what only the operator asks, in the order in which a person mends them."""


def unasked(settings: Settings, status: Mapping[str, Any], namespace: str) -> list[str]:
    """Lines that belong to a plan; none where no Pulsar cluster carries it out.

    status: of the policy in the cluster, empty where there is none yet.
    """
    if settings.pulsar is None:
        return []
    found = list(_refused(status))
    alone = "whether Prometheus shows these brokers, and whether Pulsar's own balancing is off, the operator finds out"
    where = "" if found else f": trimtab status {settings.name} -n {namespace}"
    return [f"Pulsar was not asked: {alone}{where}", *found]


def _refused(status: Mapping[str, Any]) -> Iterator[str]:
    conditions = {condition["type"]: condition for condition in status.get("conditions") or ()}
    for kind in _FOUND:
        found = conditions.get(kind)
        if found is not None and found["status"] == "False":
            yield f"the operator found {kind} False: {found['reason']}: {found.get('message', '')}"
