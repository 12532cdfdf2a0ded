"""Reports why a policy does nothing: at once when the reason is new, else once in `REMIND` seconds."""

from __future__ import annotations

from dataclasses import dataclass

from trimtab_operator.proposals.approver import Approver
from trimtab_operator.state.cluster import ClusterState
from trimtab_operator.state.cycle_result import CycleResult
from trimtab_operator.status.publisher import StatusPublisher
from trimtab_strategies.model import HeldBack, Reason

REMIND = 60.0
"""Seconds between two reports of the same refusal."""


@dataclass(slots=True)
class RefusalReporter:
    """The refusals of one policy that were reported.

    last: generation and reason of the last one. remind_at: seconds of the cluster's clock.
    """

    cluster: ClusterState
    publisher: StatusPublisher
    approver: Approver
    last: tuple[int, Reason] | None = None
    remind_at: float = 0.0

    async def report(self, refusal: HeldBack, generation: int) -> None:
        """Report `refusal` of the policy's `generation`. Raises `ApiError`."""
        clock = self.cluster.clock()
        if self.last == (generation, refusal.reason) and clock < self.remind_at:
            return
        await self.publisher.cycle(CycleResult(self.cluster.now(), {}, generation, refusal=refusal))
        if refusal.reason is Reason.INVALID_POLICY:
            await self.approver.bar(refusal, generation)
        self.last, self.remind_at = (generation, refusal.reason), clock + REMIND

    def clear(self) -> None:
        """Report the next refusal at once: a cycle has run since the last one."""
        self.last = None
