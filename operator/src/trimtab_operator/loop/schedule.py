"""When the next cycle of a policy is due: at a fixed rate, or at once after an event that should not wait.

A slow cycle does not delay the later ones, and cycles that were missed are not made up for. An early cycle (the policy
was edited) starts a new rhythm, because the interval may have changed. Each cycle is late by a random part of the
interval, so that the policies of many clusters do not query one Prometheus at the same moment.
"""

from __future__ import annotations

from dataclasses import dataclass

from trimtab_operator.state.cluster import ClusterState
from trimtab_operator.state.settings import Settings

JITTER = 0.05
"""Ratio of the interval by which a cycle may be late."""


@dataclass(slots=True)
class Schedule:
    """The rhythm of one policy's cycles.

    due: when the next cycle is due, in seconds of the cluster's clock. beat: the same without the random delay.
    generation: of the policy that the last cycle ran. leaving: brokers that were drained, or about to restart.
    """

    cluster: ClusterState
    due: float = 0.0
    beat: float = 0.0
    generation: int = -1
    leaving: frozenset[str] = frozenset()

    def is_due(self, settings: Settings) -> bool:
        """Whether a cycle is due: the interval is over, the policy was edited, or another broker is to be emptied."""
        self._decide_for_departures(settings.name)
        return self.cluster.clock() >= self.due or settings.generation != self.generation

    def at_once(self) -> None:
        """Have the next reconcile run a cycle."""
        self.due = self.cluster.clock()

    def next(self, interval: float) -> None:
        """Set when the cycle after this one is due: `interval` seconds after the last beat, and a random part late."""
        now, planned = self.cluster.clock(), self.beat + interval
        self.beat = planned if self.beat <= now < planned else now + interval
        self.due = self.beat + JITTER * interval * self.cluster.chance()

    def _decide_for_departures(self, policy: str) -> None:
        """Have a cycle run at once when another broker must be emptied, or can take the bundles of the next restart."""
        departures = self.cluster.departures(policy)
        leaving = departures.drained | (departures.rollout.following if departures.rollout.restarted else frozenset())
        if leaving - self.leaving:
            self.at_once()
        self.leaving = leaving
