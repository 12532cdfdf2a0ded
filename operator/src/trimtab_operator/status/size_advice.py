"""The condition `RightSized`: whether a cluster has about as many brokers as its load needs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trimtab_operator.kube.conditions import set_condition
from trimtab_operator.resources.conditions import ConditionReason, PolicyCondition
from trimtab_strategies.sizing import UNASKED, Sizing


def sized(conditions: list[dict[str, Any]], sizing: Sizing, generation: int, now: float) -> list[dict[str, Any]]:
    """`conditions` with `RightSized`; unchanged while the advice is not sure.

    While the advice stays the same, so do the figures in the message. So the status of an idle cluster does not change.
    """
    if sizing is UNASKED:
        return [condition for condition in conditions if condition["type"] != PolicyCondition.RIGHT_SIZED]
    if not sizing.sure:
        return conditions
    before: Mapping[str, Any] = next((c for c in conditions if c["type"] == PolicyCondition.RIGHT_SIZED), {})
    status, reason, message = _condition(sizing)
    if before.get("reason") == reason and _advice(before["message"]) == _advice(message):
        message = before["message"]
    return set_condition(conditions, PolicyCondition.RIGHT_SIZED, status, reason, message, generation, now)


def _condition(sizing: Sizing) -> tuple[str, str, str]:
    """Status, reason and message."""
    used = f"average {sizing.resource} usage of all {sizing.brokers} brokers is {sizing.usage:.0%}"
    if sizing.said is None:
        return "True", ConditionReason.RIGHT_SIZED, f"{used}, close to the target (spec.advice)"
    return "False", str(sizing.said), f"{used}: {sizing.advised} brokers would be about right (spec.advice)"


def _advice(message: str) -> str:
    """The part of a message that people act on."""
    return message.rpartition(": ")[2] if ": " in message else ""
