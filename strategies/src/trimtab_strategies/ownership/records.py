"""What is written down of a bundle, and how one record follows another."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from trimtab_strategies.ownership.states import State

FIRST_VERSION = 1
LAST_VERSION = 2**63 - 1
"""After it comes -2**63: versions are signed 64-bit numbers, as in Java."""


class InvalidRecordError(ValueError):
    """A record that says nothing; the text names the field and what is needed."""


@dataclass(frozen=True, slots=True)
class Record:
    """What is written down of a bundle.

    destination: the broker that owns it, or is to own it; empty none.
    source:      the broker that had it; empty none. One of the two is needed.
    children:    of a bundle that is being divided: each child's range to its broker, empty the parent's.
    force:       whether it holds although the state before does not allow it (the owner is dead).
    time:        epoch seconds when it was written.
    version:     1 for the first record of a bundle, then one more each time.
    """

    state: State
    destination: str = ""
    source: str = ""
    children: Mapping[str, str] = field(default_factory=dict)
    force: bool = False
    time: float = 0.0
    version: int = FIRST_VERSION

    def __post_init__(self) -> None:
        if self.state is State.INIT:
            raise InvalidRecordError("state Init means that there is no record: remove it instead of writing Init")
        if not self.destination.strip() and not self.source.strip():
            raise InvalidRecordError(f"a record in state {self.state} names no broker: give a destination or a source")


def state_of(record: Record | None) -> State:
    """The state a record is in; `INIT` without a record."""
    return State.INIT if record is None else record.state


def next_version(record: Record | None) -> int:
    """The version of what follows a record."""
    if record is None:
        return FIRST_VERSION
    return -LAST_VERSION - 1 if record.version == LAST_VERSION else record.version + 1
