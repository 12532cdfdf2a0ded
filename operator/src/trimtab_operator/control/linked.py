"""Whether the Pulsar cluster that a policy names answers, as policies tell it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from trimtab_operator.cluster.status import Condition, set_condition
from trimtab_operator.control.link import NOT_ASKED, Link
from trimtab_operator.control.report import shortened
from trimtab_operator.pulsar.remedies import remedy
from trimtab_strategies.model import Reason

LINKED = "Linked"
"""Type of the condition, and its reason when it holds."""


def linked(conditions: Iterable[Mapping[str, Any]], link: Link, generation: int, now: float) -> list[Condition]:
    """`conditions` of a policy at `generation` with the one on the link, or without it where no Pulsar is linked."""
    if link.spec is None:
        return [dict(condition) for condition in conditions if condition["type"] != LINKED]
    if not link.problem:
        status, reason, text = "True", LINKED, f"Pulsar answers at {link.spec.admin_url}"
    elif link.problem == NOT_ASKED:
        status, reason, text = "Unknown", "NotAsked", link.problem
    else:
        text = "; ".join(filter(None, (link.problem, remedy(link.problem, link.spec.auth))))
        status, reason = "False", str(Reason.SOURCE_UNAVAILABLE)
    return set_condition(conditions, LINKED, status, reason, shortened(text), generation, now)
