"""What `trimtab lint` says: findings, each with its rule, its place and what to do."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from trimtab_operator.cli.lint.files import At, Document


class Level(StrEnum):
    """How much a finding matters; its values are GitHub's words for annotations."""

    ERROR = "error"
    """The API server, or the operator, would refuse it."""
    WARNING = "warning"
    """It would be taken, and somebody would be woken for it."""
    NOTICE = "notice"
    """To be known; it changes no exit code."""


@dataclass(frozen=True, slots=True)
class Found:
    """What a rule says of one object: the place that it is about, and the text with value, bound and fix."""

    level: Level
    rule: str
    at: At
    text: str


@dataclass(frozen=True, slots=True)
class Finding:
    """A `Found` in its file. subject: ``Kind/name`` of the object, or empty."""

    level: Level
    rule: str
    file: str
    line: int
    subject: str
    field: str
    text: str

    @classmethod
    def of(cls, document: Document, subject: str, found: Found) -> Finding:
        """What was found in an object of `document`."""
        line = document.line(found.at)
        return cls(found.level, found.rule, document.file, line, subject, spelt(found.at), found.text)

    def as_data(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "level": str(self.level),
            "rule": self.rule,
            "file": self.file,
            "line": self.line,
            "object": self.subject,
            "field": self.field,
            "message": self.text,
        }


def spelt(at: At) -> str:
    """``spec.windows[0].start``."""
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in at).lstrip(".")
