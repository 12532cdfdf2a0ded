"""The containers of a pod, and the limits of CPU and memory that are in force for each.

A container may use no more than its own limit, and no more than the limit of its pod. While a resize is pending, the
spec has the new limit, and the status has the one that the kernel enforces. A request is no limit.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from trimtab_strategies.model import LimitOrigin
from trimtab_strategies.params import quantity

LIMITED = ("cpu", "memory")
"""Resources that containers, pods and nodes have an amount of: cores and bytes."""
DEFAULT_CONTAINER = "kubectl.kubernetes.io/default-container"
"""Annotation of a pod: its main container, where others were injected."""
_USUAL = "broker"
_EXPONENT = re.compile(r"[0-9]{1,15}(\.[0-9]{1,9})?[eE][+-]?[0-9]{1,2}")
_NOTHING: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Limit:
    """What counts as 100 %, in cores or bytes, and where it comes from. NaN: a limit of the source."""

    value: float
    origin: LimitOrigin


@dataclass(frozen=True, slots=True)
class ContainerRecord:
    """One container. limits: those in force, by resource; a resource without a limit is absent."""

    name: str
    limits: Mapping[str, Limit] = field(default_factory=dict)


def containers_of(raw: Mapping[str, Any]) -> tuple[ContainerRecord, ...]:
    """The containers of a Pod (as JSON). The first one is probably the broker's.

    That is the one that the annotation `DEFAULT_CONTAINER` names, else the one called ``broker``, else the first one.
    """
    spec, status = raw.get("spec") or _NOTHING, raw.get("status") or _NOTHING
    now = {one.get("name"): one for one in status.get("containerStatuses") or ()}
    declared, enacted = ((part.get("resources") or _NOTHING).get("limits") for part in (spec, status))
    pod = {name: Limit(value, LimitOrigin.POD) for name, value in amounts(enacted or declared).items()}
    found = [_container(one, now.get(one["name"], _NOTHING), pod) for one in spec.get("containers") or ()]
    wanted = (raw["metadata"].get("annotations") or _NOTHING).get(DEFAULT_CONTAINER)
    names = [one.name for one in found]
    main = next((name for name in (wanted, _USUAL) if name in names), None)
    return tuple(sorted(found, key=lambda one: one.name != main)) if main else tuple(found)


def amounts(found: Mapping[str, Any] | None) -> dict[str, float]:
    """Cores and bytes of a list of resources, without resources of other kinds and without zeros."""
    known = {name: _amount(str(found[name])) for name in LIMITED if name in found} if found else {}
    return {name: value for name, value in known.items() if value > 0}


def _amount(text: str) -> float:
    """The number of a quantity as Kubernetes writes it, which may have an exponent (``2e3``); 0 for anything else."""
    try:
        return quantity(text)
    except ValueError:
        return float(text) if _EXPONENT.fullmatch(text) else 0.0


def _container(declared: Mapping[str, Any], status: Mapping[str, Any], pod: Mapping[str, Limit]) -> ContainerRecord:
    own = _in_force(declared.get("resources") or _NOTHING, status)
    limits = {
        name: min((one[name] for one in (own, pod) if name in one), key=lambda limit: limit.value)
        for name in LIMITED
        if name in own or name in pod
    }
    return ContainerRecord(declared["name"], limits)


def _in_force(declared: Mapping[str, Any], status: Mapping[str, Any]) -> dict[str, Limit]:
    """The container's own limits. declared: its resources by the pod's spec.

    The status has them once the container has started. Older kubelets report only the requests that are allocated;
    these are also the limits of a container whose limits equal its requests.
    """
    wanted, requests = (amounts(declared.get(kind)) for kind in ("limits", "requests"))
    if enacted := status.get("resources"):
        found = amounts(enacted.get("limits"))
    else:
        allocated = amounts(status.get("allocatedResources"))
        found = {
            name: allocated.get(name, value) if requests.get(name) == value else value for name, value in wanted.items()
        }
    return {
        name: Limit(value, LimitOrigin.CONTAINER if wanted.get(name) == value else LimitOrigin.RESIZED)
        for name, value in found.items()
    }
