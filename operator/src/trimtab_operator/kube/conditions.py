"""Conditions and timestamps in the form that all Kubernetes tools read. Pure functions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from trimtab_operator.resources.conditions import ConditionType

Condition = dict[str, Any]


CLOCKS_DIFFER = 60.0
"""Seconds by which two computers' clocks may differ. A time that lies further in the future is ignored."""


def timestamp(epoch: float) -> str:
    """Epoch seconds as RFC 3339 in UTC, whole seconds: ``2026-01-31T12:00:00Z``."""
    return datetime.fromtimestamp(int(epoch), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def micro_timestamp(epoch: float) -> str:
    """Epoch seconds as RFC 3339 in UTC with microseconds: a Kubernetes `MicroTime`."""
    return datetime.fromtimestamp(epoch, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def epoch(text: str | None) -> float:
    """Epoch seconds of an RFC 3339 time; NaN when it is absent or can't be read."""
    if not text:
        return float("nan")
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        return float("nan")


def condition_of(conditions: Iterable[Mapping[str, Any]], type: ConditionType) -> tuple[str, str, str, int]:  # noqa: A002
    """Status, reason, message and observedGeneration of the condition of `type`; empty and 0 if there is none."""
    found: Mapping[str, Any] = next((condition for condition in conditions if condition["type"] == type), {})
    words = (found.get("status", ""), found.get("reason", ""), found.get("message", ""))
    return (*words, found.get("observedGeneration", 0))


def set_condition(  # noqa: PLR0917  the order in which conditions are read
    conditions: Iterable[Mapping[str, Any]],
    type: ConditionType,  # noqa: A002  the field's name in every Kubernetes object
    status: str,
    reason: str,
    message: str,
    generation: int,
    now: float,
) -> list[Condition]:
    """A copy of `conditions` in which the one of `type` is set; the others and their order are kept.

    lastTransitionTime changes only when `status` does. A condition with a later observedGeneration is kept, because
    `generation` is then from an older object. now: epoch seconds.
    """
    kept = [dict(condition) for condition in conditions]
    at = next((i for i, condition in enumerate(kept) if condition["type"] == type), None)
    old = kept[at] if at is not None else {}
    if old.get("observedGeneration", 0) > generation:
        return kept
    changed = old.get("status") != status
    new = {
        "type": str(type),
        "status": status,
        "reason": str(reason),
        "message": message,
        "lastTransitionTime": timestamp(now) if changed else old["lastTransitionTime"],
        "observedGeneration": generation,
    }
    if at is None:
        return [*kept, new]
    kept[at] = new
    return kept
