"""Tells each TopicNamespace whether what it asks for can be had: its condition `Valid`.

What the CRD can't refuse depends on the brokers, or on Python's regular expressions. It is looked at by itself, so that
people read of a mistake also while no policy runs; a cycle goes on all the same, and has it among what was held back.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from trimtab_operator.cluster.api import TOPIC_NAMESPACES, ConflictError, NotFoundError, RefusedError
from trimtab_operator.cluster.status import Condition, set_condition
from trimtab_operator.cluster.topic_namespaces import TopicNamespaceRecord
from trimtab_operator.control.asked import policies
from trimtab_operator.control.context import Context
from trimtab_operator.control.report import shortened
from trimtab_strategies.model import NamespacePolicy, Reason
from trimtab_strategies.selection import isolation_problems

log = logging.getLogger(__name__)

VALID = "Valid"
"""Type of the condition."""


def examined(record: TopicNamespaceRecord, problem: str, now: float) -> list[Condition] | None:
    """The conditions of a TopicNamespace with `problem` (empty: none); None when they say so already.

    One that never had a problem gets no condition. now: epoch seconds.
    """
    before = next((c for c in record.conditions if c["type"] == VALID), None)
    if before is None and not problem:
        return None
    told = ("False", str(Reason.INVALID_POLICY), shortened(problem)) if problem else ("True", VALID, "")
    if before is not None and _says(before) == (*told, record.generation):
        return None
    return set_condition(record.conditions, VALID, *told, record.generation, now)


def _says(condition: Mapping[str, Any]) -> tuple[str, str, str, int]:
    words = (condition["status"], condition["reason"], condition.get("message", ""))
    return (*words, condition.get("observedGeneration", 0))


@dataclass(slots=True)
class Examiner:
    """Examines the TopicNamespaces of one Kubernetes namespace, anew only when they or the brokers are others."""

    context: Context
    _seen: tuple[tuple[str, ...], dict[str, NamespacePolicy]] | None = None
    _problems: Mapping[str, str] = field(default_factory=dict)

    async def examine(self) -> None:
        """Examine once, and write what is news. Raises `ApiError`."""
        records = list(self.context.stores.topic_namespaces.items.values())
        await self._look(records)
        for record in records:
            problem = self._problems.get(record.full_name, "") if record.policy.isolation else ""
            if (conditions := examined(record, problem, self.context.now())) is not None:
                await self._tell(record, conditions)

    async def _look(self, records: list[TopicNamespaceRecord]) -> None:
        seen = (tuple(sorted(self.context.stores.brokers.items)), policies(records))
        if seen != self._seen:
            found = await asyncio.to_thread(isolation_problems, *seen)
            self._seen, self._problems = seen, {held.subject: held.detail for held in found}

    async def _tell(self, record: TopicNamespaceRecord, conditions: list[Condition]) -> None:
        """Write them. When somebody changed the object, or it is refused, the next look tries again."""
        context = self.context
        body = {"metadata": {"resourceVersion": record.resource_version}, "status": {"conditions": conditions}}
        try:
            await context.api.patch(TOPIC_NAMESPACES, context.namespace, record.name, body, subresource="status")
        except (ConflictError, NotFoundError) as error:
            log.info("topic namespace %s changed before it was told: %s", record.name, error)
        except RefusedError as error:  # its own trouble, and not that of the others
            log.warning("topic namespace %s can't be told: %s", record.name, error)
