"""Judges whether the cluster has come level. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from trimtab_strategies.model import counted
from trimtab_testbed.demo.follow import Look
from trimtab_testbed.scenarios import Solved


@dataclass
class Settling:
    """Fed with one look after the other; `since` is when (seconds) all that `missing` asks for began to hold."""

    solved: Solved
    since: float | None = None

    def settled(self, look: Look) -> bool:
        """Whether the cluster has been level, and at rest, for long enough."""
        if self.missing(look):
            self.since = None
            return False
        if self.since is None:
            self.since = look.at
        return look.at - self.since >= self.solved.seconds

    def missing(self, look: Look) -> str:
        """What keeps the cluster from counting as level now, in words; empty when nothing does."""
        if not look.cycles:
            return "the operator has not finished a cycle yet"
        if look.cpu_range is None:
            return "not all brokers are measured"
        if look.cpu_range >= self.solved.cpu_range:
            return f"the CPU range is {look.cpu_range:.1f} points, wanted below {self.solved.cpu_range:g}"
        if look.unconfirmed:
            return f"not confirmed by a broker yet: {counted(look.unconfirmed, 'bundle')}"
        if look.cycles[-1].moved:
            return "the last cycle still moved something"
        return ""
