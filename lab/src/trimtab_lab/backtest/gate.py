"""Requirements that a backtest must meet: ``moves<=live*0.5, area<=live, cut<=2%``.

A requirement compares a figure with a number, or with the same figure of what really happened (``live``) or of the
first policy of ``--against`` (``against``). The figure of ``live`` or ``against`` may have a factor.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields

from trimtab_lab.backtest.trace import Figures

_NOT_GATED = ("worst_at", "hours", "cycles", "divided", "guessed")
GATED = tuple(name for name in (field.name for field in fields(Figures)) if name not in _NOT_GATED)
"""Figures that a requirement may name."""

BASES = ("live", "against")

_COMPARES: Mapping[str, Callable[[float, float], bool]] = {
    "<=": operator.le,
    ">=": operator.ge,
    "<": operator.lt,
    ">": operator.gt,
}
_NUMBER = r"\d+(?:\.\d+)?"
_RULE = re.compile(
    rf"(?P<figure>\w+)\s*(?P<compares><=|>=|<|>)\s*"
    rf"(?:(?P<base>[a-z]+)(?:\s*\*\s*(?P<factor>{_NUMBER}))?|(?P<number>{_NUMBER})\s*(?P<percent>%)?)"
)


class InvalidRequirementError(ValueError):
    """A text is not a requirement. The message says what is wrong, and what is allowed."""


@dataclass(frozen=True, slots=True)
class Requirement:
    """`figure` of the policy, compared with `number`, or with `factor` times the figure of `base`."""

    text: str
    figure: str
    compares: str
    number: float = float("nan")
    base: str = ""
    factor: float = 1.0

    def failure(self, found: Mapping[str, Figures]) -> str:
        """Why the requirement is not met; empty if it is. found: figures of ``policy`` and of each available base."""
        value = float(getattr(found["policy"], self.figure))
        bound = self.number if not self.base else self.factor * float(getattr(found[self.base], self.figure))
        if _COMPARES[self.compares](value, bound):
            return ""
        if value != value or bound != bound:  # noqa: PLR0124 - NaN: nothing is known
            return f"{self.text}: {self.figure} is not known"
        return f"{self.text}: {self.figure} is {value:.4g}, allowed is {self.compares} {bound:.4g}"


def requirements(text: str) -> tuple[Requirement, ...]:
    """The requirements in `text`, separated by commas. Raises `InvalidRequirementError`."""
    return tuple(_requirement(part.strip()) for part in text.split(",") if part.strip())


def _requirement(text: str) -> Requirement:
    match = _RULE.fullmatch(text)
    if match is None:
        raise InvalidRequirementError(f"{text!r} is not a requirement: write moves<=live*0.5, area<=12 or cut<=2%")
    if match["figure"] not in GATED:
        raise InvalidRequirementError(f"{text!r}: there is no figure {match['figure']!r}: use {', '.join(GATED)}")
    if match["percent"] and match["figure"] not in ("cut", "measured"):
        raise InvalidRequirementError(f"{text!r}: {match['figure']} is not a percentage: leave out the %")
    if match["base"]:
        if match["base"] not in BASES:
            raise InvalidRequirementError(f"{text!r}: compare with a number, live or against, not {match['base']!r}")
        return Requirement(
            text, match["figure"], match["compares"], base=match["base"], factor=float(match["factor"] or 1)
        )
    number = float(match["number"])
    if match["figure"] == "measured" and match["percent"]:
        number /= 100
    if match["figure"] == "measured" and number > 1:
        raise InvalidRequirementError(f"{text!r}: measured is a ratio from 0 to 1, or a percentage such as 80%")
    return Requirement(text, match["figure"], match["compares"], number=number)
