"""Apply: writes the moves of a plan, a bounded number at a time."""

from __future__ import annotations

from collections.abc import Sequence

from trimtab_operator.actuators import Actuator, WriteResult
from trimtab_operator.aio import at_most
from trimtab_operator.observe.snapshot import Snapshot, Stopwatch
from trimtab_strategies.model import Move

WRITERS = 32
"""Writes under way at once: beyond it a kube-apiserver gains latency, not rate."""


async def carry_out(moves: Sequence[Move], seen: Snapshot, actuator: Actuator, watch: Stopwatch) -> list[WriteResult]:
    """Write every move, a bounded number at a time, each against the bundle as it was when the plan was made."""

    async def one(move: Move) -> WriteResult:
        return await actuator.set_owner(seen.records[move.bundle], move.destination, move.reason)

    with watch.phase("act"):
        return await at_most(WRITERS, one, moves)
