"""`Execution`: progress of an approved proposal, move by move, derived from the Bundle objects. Pure.

Rows are the moves, then the splits. The row of a split has landed once its BundleSplit object, which has its own
status, is created. Each row has a mark: waiting, written, landed or failed. The marks are stored. If a mark and its
bundle differ, the bundle is right. If the operator stopped after it wrote a move and before it stored the mark, the
bundle is already moving. Then the waiting move counts as written, so no move is made twice.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import islice
from typing import Any, Self

from trimtab_operator.kube.conditions import timestamp
from trimtab_operator.kube.config_map_store import UnreadableContentError, reading
from trimtab_operator.kube.records import WITHDRAWN, BundleRecord
from trimtab_operator.proposals.model import Proposal, storable_time
from trimtab_pipeline.prometheus.response_limits import json_of
from trimtab_strategies.model import HeldBack, Reason, counted

SHOWN_FAILURES = 20
MOST_OF_A_WAIT = 1024
"""Maximum number of characters of the text about moves that wait."""
MOST_OF_A_NAME = 256
"""Maximum number of characters of a user's name in the status."""


class Mark(StrEnum):
    """State of one move: one character, because there may be 10,000 moves."""

    WAITING = "."
    WRITTEN = ">"
    LANDED = "+"
    FAILED = "x"


@dataclass(slots=True)
class Execution:
    """The moves and splits of `proposal`, started at `started` (epoch seconds).

    marks: one per row. failures: the reasons by row. finished: epoch seconds at which the last move ended, None before.
    stopped: no further move is written. by: the user or the criteria that approved it; empty if that is not known.
    held: row -> why a disruption budget does not allow this waiting move in this round. paused: whether no move is
    written because the policy is paused.
    """

    proposal: Proposal
    started: float
    marks: list[Mark] = field(default_factory=list)
    failures: dict[int, HeldBack] = field(default_factory=dict)
    stopped: bool = False
    finished: float | None = None
    by: str = ""
    held: dict[int, HeldBack] = field(default_factory=dict)
    paused: bool = False
    counts: Counter[Mark] = field(init=False)
    _open: dict[int, str] = field(init=False)
    _next: int = 0

    def __post_init__(self) -> None:
        self.marks = self.marks or [Mark.WAITING] * len(self.proposal.names)
        self.counts = Counter(self.marks)
        self._open = {row: "" for row, mark in enumerate(self.marks) if mark is Mark.WRITTEN}

    @property
    def in_flight(self) -> int:
        """Number of moves that are written and have not ended."""
        return len(self._open)

    @property
    def written(self) -> Collection[int]:
        """Rows of the moves that are written and have not ended."""
        return self._open.keys()

    @property
    def ended(self) -> bool:
        """Whether no move is left to write or to wait for."""
        return not self._open and (self.stopped or not self.counts[Mark.WAITING])

    def name(self, row: int) -> str:
        """Name of the Bundle object of a move."""
        return self.proposal.names[row]

    def waiting(self, count: int) -> list[int]:
        """Rows of the first `count` waiting moves that are not held, in the order of the plan; none once stopped."""
        if self.stopped:
            return []
        moves = len(self.proposal.moves)
        while self._next < moves and self.marks[self._next] is not Mark.WAITING:
            self._next += 1
        marks, held = self.marks, self.held
        rows = (row for row in range(self._next, moves) if marks[row] is Mark.WAITING and row not in held)
        return list(islice(rows, count))

    def waiting_splits(self) -> list[int]:
        """Rows of the waiting splits; none once stopped."""
        rows = range(len(self.proposal.moves), len(self.marks))
        return [] if self.stopped else [row for row in rows if self.marks[row] is Mark.WAITING]

    def land(self, row: int) -> None:
        """Mark a move as landed, or a split whose BundleSplit was created."""
        self._open.pop(row, None)
        self._mark(row, Mark.LANDED)

    def wrote(self, row: int, resource_version: str = "") -> None:
        """Mark a move as written. resource_version: the bundle's before the write; a store may still show it."""
        self._mark(row, Mark.WRITTEN)
        self._open[row] = resource_version

    def fail(self, row: int, why: HeldBack) -> None:
        """Mark a move as failed: not written, or not landed."""
        self._open.pop(row, None)
        self.failures[row] = why
        self._mark(row, Mark.FAILED)

    def follow(self, bundles: Mapping[str, BundleRecord]) -> bool:
        """Mark the pending moves that have ended according to `bundles`. Returns whether any has."""
        before = len(self._open)
        for row in self._seen(bundles):
            self._follow(row, bundles.get(self.name(row)))
        return len(self._open) < before

    def superseded(self, bundles: Mapping[str, BundleRecord]) -> list[str]:
        """Names of the bundles whose pending move failed according to `bundles`.

        A move is left out while `bundles` is older than the write of this move.
        """
        return [
            self.name(row)
            for row in self._seen(bundles)
            if (record := bundles.get(self.name(row))) is None or record.owner != self._destination(row)
        ]

    def _seen(self, bundles: Mapping[str, BundleRecord]) -> list[int]:
        """Pending rows, except those that this process wrote and whose write is not in `bundles` yet."""
        records = ((row, version, bundles.get(self.name(row))) for row, version in self._open.items())
        return [row for row, version, record in records if record is None or record.resource_version != version]

    def _destination(self, row: int) -> str:
        return self.proposal.moves[row].destination

    def _follow(self, row: int, record: BundleRecord | None) -> None:
        destination = self._destination(row)
        if record is None:
            self.fail(row, HeldBack(self.name(row), Reason.CONFLICT, "the bundle was deleted"))
        elif record.owner == destination:
            if not record.owner_pending and record.status_owner == destination:
                self.land(row)
        else:
            reason = Reason(record.reason) if record.reason in WITHDRAWN else Reason.SUPERSEDED
            self.fail(row, HeldBack(self.name(row), reason, f"its desired owner is {record.owner or 'none'} now"))

    def _mark(self, row: int, mark: Mark) -> None:
        self.counts[self.marks[row]] -= 1
        self.counts[mark] += 1
        self.marks[row] = mark

    def to_json(self) -> str:
        """The progress as JSON, to be stored."""
        value = {
            "proposal": self.proposal.id,
            "started": self.started,
            "by": self.by,
            "marks": "".join(self.marks),
            "failures": {row: (why.reason, why.detail) for row, why in self.failures.items()},
            "stopped": self.stopped,
            "finished": self.finished,
        }
        return json.dumps(value, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str, proposal: Proposal) -> Self:
        """The execution of `proposal` that `to_json` wrote as `text`. Raises `UnreadableContentError`."""
        with reading("the progress"):
            value = json_of(text)
            marks = [Mark(character) for character in value["marks"]]
            failures = {
                int(row): HeldBack(proposal.names[int(row)], Reason(reason), str(detail))
                for row, (reason, detail) in value["failures"].items()
            }
            if len(marks) != len(proposal.names):
                raise UnreadableContentError(f"the progress has {len(marks)} rows, its proposal {len(proposal.names)}")
            if Mark.WRITTEN in marks[len(proposal.moves) :]:
                raise UnreadableContentError("the progress has a split that is written, and not landed")
            finished = value["finished"]
            return cls(
                proposal,
                storable_time(value["started"]),
                marks,
                failures,
                bool(value["stopped"]),
                None if finished is None else storable_time(finished),
                str(value.get("by", "")),
            )

    def shown(self, now: float) -> dict[str, Any]:
        """The progress as the policy's status shows it. now: epoch seconds."""
        total, landed, failed = len(self.marks), self.counts[Mark.LANDED], self.counts[Mark.FAILED]
        left = self.time_left(now)
        return {
            "proposal": self.proposal.id,
            "startedAt": timestamp(self.started),
            "approvedBy": self.by[:MOST_OF_A_NAME] or None,
            "finishedAt": None if self.finished is None else timestamp(self.finished),
            "total": total,
            "done": landed + failed,
            "landed": landed,
            "failed": failed,
            "inFlight": self.in_flight,
            "percent": 100 * (landed + failed) // total if total else 100,
            "timeLeft": None if left is None else in_words(left),
            "waits": self.waits,
            "failures": [self._shown_failure(row) for row in sorted(self.failures)[:SHOWN_FAILURES]],
        }

    @property
    def waits(self) -> str | None:
        """How many moves wait for a disruption budget or for the end of a pause, and why; None if none does."""
        left = self.counts[Mark.WAITING]
        if self.stopped or not left:
            return None
        if self.paused:
            return f"{counted(left, 'move')} held back: the policy is paused"
        if not self.held:
            return None
        why = self.held[min(self.held)]
        return f"{counted(len(self.held), 'move')} held back: {why.subject}: {why.detail}"[:MOST_OF_A_WAIT]

    def _shown_failure(self, row: int) -> dict[str, Any]:
        moves, why = self.proposal.moves, self.failures[row]
        return {
            "bundle": self.name(row),
            "destination": moves[row].destination if row < len(moves) else "",
            "reason": str(why.reason),
            "detail": why.detail[:512],
        }

    def time_left(self, now: float) -> float | None:
        """Seconds until the end at the pace so far; None before the first move ended, after the last, and while any
        waits: the pace so far does not say how long."""
        done = self.counts[Mark.LANDED] + self.counts[Mark.FAILED]
        left = self.in_flight if self.stopped else len(self.marks) - done
        if not done or self.ended or self.waits or now <= self.started:
            return None
        return (now - self.started) / done * left


def in_words(seconds: float) -> str:
    """A duration in the style of Kubernetes: ``45s``, ``3m20s``, ``1h05m``."""
    whole = max(1, round(seconds))
    hours, minutes, rest = whole // 3600, whole % 3600 // 60, whole % 60
    if hours:
        return f"{hours}h{minutes:02}m"
    return f"{minutes}m{rest:02}s" if minutes else f"{rest}s"
