"""The result of a replay, by algorithm, and the comparison of each answer with the recorded one.

Averages may differ by `TOLERANCE`, and all other values must be equal. If the order inside lists depends on Java's hash
maps, it may differ, too. If the decision itself depends on them, the recorded alternatives count as well.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from conformance.recording import RecordedScenario

TOLERANCE = 1e-9
"""Relative tolerance of averages: Java sums them in the order of its hash maps."""


AVERAGES = frozenset({"ema", "load_avg", "load_std", "state", "std_after"})
"""Fields of an answer to which `TOLERANCE` applies. All others must be equal to the last bit."""


def first_difference(scenario: RecordedScenario, answer: Mapping[str, Any]) -> Mismatch | None:
    """The first place where `answer` differs from the recorded one, or None."""
    unordered = scenario.order_sensitive == "within"
    for where, expected, got in _differences(scenario.expect, answer, "", unordered=unordered, exact=True):
        return Mismatch(scenario.id, where, _text(expected), _text(got))
    return None


def is_alternative(scenario: RecordedScenario, answer: Mapping[str, Any]) -> bool:
    """Whether `answer`, without averages, is one of the other decisions that Java made with another map order."""
    (decisions,) = answer.values()
    rounds = decisions if isinstance(decisions, list) else [answer]  # an answer without rounds is one decision
    plain = [_without_averages(decision) for decision in rounds]
    return any(
        not any(_differences(alternative, plain, "", unordered=False, exact=True))
        for alternative in scenario.alternatives
    )


def _without_averages(decision: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in decision.items() if key not in AVERAGES}


def _differences(
    expected: Any, got: Any, where: str, *, unordered: bool, exact: bool
) -> Iterator[tuple[str, Any, Any]]:
    match expected, got:
        case dict(), dict():
            for key in sorted({*expected, *got} - (AVERAGES - set(expected))):  # averages may be left out
                inner = exact and key not in AVERAGES
                missing: Any = "nothing"
                yield from _differences(
                    expected.get(key, missing),
                    got.get(key, missing),
                    f"{where}.{key}",
                    unordered=unordered,
                    exact=inner,
                )
        case list(), list() if len(expected) == len(got) and not (unordered and _texts(expected)):
            for k, (left, right) in enumerate(zip(expected, got, strict=True)):
                yield from _differences(left, right, f"{where}[{k}]", unordered=unordered, exact=exact)
        case list(), list() if unordered and sorted(map(str, expected)) == sorted(map(str, got)):
            return
        case _ if not _same(expected, got, exact=exact):
            yield where.lstrip("."), expected, got


def _texts(values: Sequence[Any]) -> bool:
    return all(isinstance(value, str) for value in values)


def _same(expected: Any, got: Any, *, exact: bool) -> bool:
    """Whether two values are equal. A number that JSON cannot express is recorded as text: ``NaN``, ``Infinity``."""
    if isinstance(got, float):
        wanted = float(expected) if _numeric(expected) else math.nan
        both_nan = math.isnan(got) and _numeric(expected) and math.isnan(wanted)
        return both_nan or got == wanted or (not exact and math.isclose(got, wanted, rel_tol=TOLERANCE, abs_tol=1e-300))
    return bool(expected == got)


def _numeric(value: Any) -> bool:
    return (isinstance(value, int | float) and not isinstance(value, bool)) or value in ("NaN", "Infinity", "-Infinity")


def _text(value: Any) -> str:
    return f"{value!r:.300}"


@dataclass(frozen=True, slots=True)
class Mismatch:
    """A scenario with a different decision: where in the answer, Java's value, our value."""

    scenario: str
    where: str
    expected: str
    got: str

    def __str__(self) -> str:
        return f"{self.scenario} at {self.where}: Java {self.expected}, here {self.got}"


@dataclass(slots=True)
class Tally:
    """Counts of one algorithm. undecided: Java's answer depends on its map order, and our answer was not recorded."""

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
        """Whether every scenario matched or is undecided. False for an algorithm that is not implemented."""
        return self.implemented and not self.mismatches


@dataclass(slots=True)
class Report:
    """The tallies of a replay, in the order in which the algorithms appeared."""

    tallies: dict[str, Tally] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        """Whether at least one algorithm was compared and all are fine."""
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
