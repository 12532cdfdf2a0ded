"""What a replay found, per algorithm."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Mismatch:
    """A scenario that was decided differently: where in the answer, what Java said, what we said."""

    scenario: str
    where: str
    expected: str
    got: str

    def __str__(self) -> str:
        return f"{self.scenario} at {self.where}: Java {self.expected}, here {self.got}"


@dataclass(slots=True)
class Tally:
    """One algorithm's count. `undecided`: the answer hangs on Java's map order, and ours is none of those recorded."""

    algorithm: str
    implemented: bool
    total: int = 0
    matched: int = 0
    undecided: int = 0
    mismatches: list[Mismatch] = field(default_factory=list)

    def __str__(self) -> str:
        if not self.implemented:
            return f"{self.algorithm}: not implemented ({self.total} scenarios)"
        return f"{self.algorithm}: matched {self.matched} of {self.total} (undecided {self.undecided})"

    @property
    def ok(self) -> bool:
        """Whether every scenario matched or is undecided. An algorithm that is not implemented never is."""
        return self.implemented and not self.mismatches


@dataclass(slots=True)
class Report:
    """The tallies of a replay, in the order in which the algorithms appeared."""

    tallies: dict[str, Tally] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        """Whether there was something to compare and all of it is fine."""
        return bool(self.tallies) and all(tally.ok for tally in self.tallies.values())

    @property
    def exit_code(self) -> int:
        """0 when fine, 1 on any finding."""
        return 0 if self.ok else 1

    def lines(self) -> list[str]:
        """The report as text: a line per algorithm, then each mismatch."""
        if not self.tallies:
            return ["no scenario was found"]
        found = [mismatch for tally in self.tallies.values() for mismatch in tally.mismatches]
        return [str(tally) for tally in self.tallies.values()] + [str(mismatch) for mismatch in found]
