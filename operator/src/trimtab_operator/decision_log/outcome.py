"""Outcomes of recorded decisions: how each move ended, and what was measured afterwards. Pure.

The Bundle objects say how a move ended. So the outcome is also known after a restart, and for a proposal that a person
approved an hour later. The result for a broker comes from the first cycle that starts at least one rate window after
the last move has landed. In earlier cycles, the broker's rates include time before that move.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from trimtab_operator.decision_log.record import DecisionRecord, MeasuredOutcome, MoveView
from trimtab_operator.kube.records import WITHDRAWN, BundleRecord
from trimtab_strategies.model import Reason

_NOT_YET = frozenset({Reason.NOT_APPROVED, Reason.DRY_RUN, Reason.OUTSIDE_WINDOW, Reason.COMPETING_BALANCER})
"""Reasons of a move that was only shown, and may still be carried out."""


def followed(
    record: DecisionRecord, bundles: Mapping[str, BundleRecord], now: float, *, only: str = ""
) -> DecisionRecord:
    """The record with the outcomes of its moves at `now` (epoch seconds); the same object if nothing has changed.

    only: name of the only bundle in `bundles`; empty if `bundles` has all.
    """
    moves = tuple(
        _followed(move, bundles.get(move.name), now) if only in {"", move.name} else move for move in record.moves
    )
    same = all(a is b for a, b in zip(moves, record.moves, strict=True))
    return record if same else record.model_copy(update={"moves": moves})


def _followed(move: MoveView, bundle: BundleRecord | None, now: float) -> MoveView:
    if move.ended is not None or not (move.written or move.outcome in _NOT_YET):
        return move
    ending = _ending(move, bundle)
    if ending is None:
        return move
    reason, detail = ending
    return move.model_copy(update={"outcome": reason, "detail": detail, "ended": now})


def _ending(move: MoveView, bundle: BundleRecord | None) -> tuple[Reason, str] | None:
    """Reason and detail of a move's end; None while it has not ended or was not started."""
    if bundle is None:
        return Reason.CONFLICT, "the bundle is gone"
    if bundle.owner == move.destination:
        landed = not bundle.owner_pending and bundle.status_owner == move.destination
        return (Reason.LANDED, "") if landed else None
    if not move.written:
        return None
    reason = Reason(bundle.reason) if bundle.reason in WITHDRAWN else Reason.SUPERSEDED
    return reason, f"its desired owner is {bundle.owner or 'none'} now"


def measured(record: DecisionRecord, now: DecisionRecord, later: Sequence[DecisionRecord] = ()) -> DecisionRecord:
    """The record with its brokers' usage in the decision `now`.

    It is unchanged if `now` is too early, or if the usage was measured before. later: the decisions between `record`
    and `now`. The moves among them that were made, and not only shown, disturb the result.
    """
    if record.measured_at is not None or not _due(record, now.at):
        return record
    begun = [move for other in later for move in other.moves if move.begun]
    disturbed = {end for move in begun for end in (move.source, move.destination)}
    ends = dict.fromkeys(end for move in record.moves for end in (move.source, move.destination) if end)
    results = [found for end in ends if (found := _result(end, record, now, end in disturbed)) is not None]
    if not results:
        return record
    return record.model_copy(update={"results": tuple(results), "measured_at": now.at})


def _due(record: DecisionRecord, now: float) -> bool:
    landed = [move.ended for move in record.moves if move.outcome is Reason.LANDED and move.ended is not None]
    under_way = any(move.written and move.ended is None for move in record.moves)
    return bool(landed) and not under_way and now >= max(landed) + record.window


def _result(broker: str, record: DecisionRecord, now: DecisionRecord, disturbed: bool) -> MeasuredOutcome | None:  # noqa: FBT001 - a field
    then, today = record.broker(broker), now.broker(broker)
    if then is None or today is None or then.expected is None or today.usage is None or not today.trusted:
        return None
    error = round(today.usage - then.expected, 2)
    return MeasuredOutcome(
        broker=broker, expected=then.expected, measured=today.usage, error=error, disturbed=disturbed
    )
