"""Recorded scenarios: one JSON object per line, in one of two formats with different keys.

Pulsar's: the scenario's fields and ``expect`` side by side. Hermes': ``input`` and ``expected``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any


class InvalidRecordingError(ValueError):
    """A line that is not a recorded scenario; the text names the line and what is missing."""


@dataclass(frozen=True, slots=True)
class RecordedScenario:
    """One recorded scenario.

    input:           what the Java class got.
    expect:          what it answered.
    order_sensitive: ``no``, ``within`` (order inside lists may differ) or ``yes`` (the decision depends on map order).
    alternatives:    other decisions, recorded with a shuffled map order.
    """

    id: str
    algorithm: str
    input: Mapping[str, Any]
    expect: Mapping[str, Any]
    order_sensitive: str = "no"
    alternatives: tuple[Any, ...] = ()


def read(lines: Iterable[str], source: str = "") -> Iterator[RecordedScenario]:
    """The scenarios of a recording; blank lines are skipped.

    Raises `InvalidRecordingError` naming `source` and the line.
    """
    for number, line in enumerate(lines, 1):
        if line.strip():
            yield _scenario(line, f"{source}:{number}" if source else f"line {number}")


def _scenario(line: str, place: str) -> RecordedScenario:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise InvalidRecordingError(f"{place} is not JSON: {error}") from error
    if not isinstance(found, dict) or not isinstance(found.get("algorithm"), str):
        raise InvalidRecordingError(f"{place} is not a scenario: an object with 'algorithm' is needed")
    if isinstance(found.get("expect"), dict):
        return _pulsar(found, place)
    if isinstance(found.get("expected"), dict) and isinstance(found.get("input"), dict):
        return RecordedScenario(
            str(found.get("scenario", place)), found["algorithm"], found["input"], found["expected"]
        )
    raise InvalidRecordingError(f"{place} has neither 'expect' (Pulsar) nor 'input' and 'expected' (Hermes)")


def _pulsar(found: Mapping[str, Any], place: str) -> RecordedScenario:
    sensitive = found.get("order_sensitive", "no")
    if sensitive not in ("no", "within", "yes"):
        raise InvalidRecordingError(f"{place} has order_sensitive {sensitive!r}: no, within or yes is needed")
    alternatives = found.get("alternatives", [])
    if not isinstance(alternatives, list):
        raise InvalidRecordingError(f"{place} has alternatives that are not a list")
    return RecordedScenario(
        id=str(found.get("id", place)),
        algorithm=found["algorithm"],
        input=found,
        expect=found["expect"],
        order_sensitive=sensitive,
        alternatives=tuple(alternatives),
    )
