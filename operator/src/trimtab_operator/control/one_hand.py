"""Whether nobody but Trimtab balances the Pulsar cluster, as policies tell it and act upon it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from trimtab_operator.cluster.status import Condition, set_condition
from trimtab_operator.control.link import Link
from trimtab_operator.control.report import shortened
from trimtab_strategies.model import Reason

ONE_HAND = "OneHand"
"""Type of the condition, and its reason when it holds."""


def two_hands(link: Link) -> str:
    """Why nothing may be balanced as somebody else may do so, in words; empty when it may."""
    return "" if not link.linked or link.hand.held else link.hand.text


def steered(conditions: Iterable[Mapping[str, Any]], link: Link, generation: int, now: float) -> list[Condition]:
    """`conditions` of a policy at `generation` with the one on the wheel, or without it where no Pulsar is linked."""
    if not link.linked:
        return [dict(condition) for condition in conditions if condition["type"] != ONE_HAND]
    status = {True: "True", False: "False", None: "Unknown"}[link.hand.held]
    reason = {True: ONE_HAND, False: str(Reason.TWO_HANDS), None: "NotVerified"}[link.hand.held]
    return set_condition(conditions, ONE_HAND, status, reason, shortened(link.hand.text), generation, now)
