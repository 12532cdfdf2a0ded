"""The splits of a policy's plan, asked for as BundleSplit objects; `splitting` carries them out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from trimtab_operator.actuators import Actuator, Written
from trimtab_operator.control.cycle import WRITERS, Look, at_most
from trimtab_strategies.model import Decision, Memory, Split


async def request(splits: Sequence[Split], seen: Look, actuator: Actuator) -> list[Written]:
    """Ask for each of a plan's splits; what became of that, in their order."""
    return await at_most(WRITERS, lambda split: actuator.request_split(seen.records[split.bundle], split), splits)


def unspent(decision: Decision, before: Memory, asked: Sequence[Written]) -> Memory:
    """What the strategies remember; the splitter what it knew `before`, if none of its splits was asked for.

    Else a policy in DryRun would spend hits and budgets on splits that nobody makes.
    """
    spent = not asked or any(answer.reason is None for answer in asked)
    return decision.memory if spent else replace(decision.memory, splitter=before.splitter)
