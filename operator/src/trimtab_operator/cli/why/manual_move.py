"""Finds out whether a person or Git made the last move of a bundle, and explains that move. Pure functions."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from trimtab_operator.cli.common import ago, length
from trimtab_operator.cli.why.answers import (
    TRIMTAB,
    Answer,
    Facts,
    ManualMoveFacts,
    decided,
    figures,
    moment,
    sentence,
    until,
)
from trimtab_operator.decision_log.record import DecisionRecord
from trimtab_operator.kube.conditions import epoch
from trimtab_operator.kube.records import BundleRecord
from trimtab_operator.state.competing_balancer import owner_written
from trimtab_strategies.model import Reason


def manual_move(
    raw: Mapping[str, Any], bundle: BundleRecord, brokers: Collection[str], records: Sequence[DecisionRecord]
) -> ManualMoveFacts | None:
    """The last move of a bundle, if a person made it; None if the operator did, or it never moved.

    raw: the Bundle object as JSON. bundle: its record. brokers: names of all brokers. records: oldest first.
    """
    if not bundle.owner:
        return None
    writer, asked = owner_written(raw)
    landed = bundle.status_owner == bundle.owner and not bundle.owner_pending
    source = _came_from(bundle, records, landed=landed)
    if not _wrote(writer, asked, bundle, made=epoch(raw["metadata"].get("creationTimestamp")), moved=bool(source)):
        return None
    return ManualMoveFacts(writer, asked, source, bundle.owner, bundle.owner in brokers, landed, bundle.since)


def _wrote(writer: str, asked: float, bundle: BundleRecord, *, made: float, moved: bool) -> bool:
    """Whether a person wrote the desired owner, after the bundle was created."""
    if bundle.reason == Reason.ADMIN and bundle.assigned_owner == bundle.owner:
        return True  # the operator has recorded that a person wrote it
    if bundle.assigned_owner == bundle.owner:
        return writer not in {"", TRIMTAB} and asked > bundle.assigned_at
    return bool(bundle.assigned_owner) or moved or asked > made


def _came_from(bundle: BundleRecord, records: Sequence[DecisionRecord], *, landed: bool) -> str:
    """The broker that a bundle left, or is to leave, for its desired owner; empty if unknown."""
    if not landed:
        return bundle.status_owner if bundle.status_owner != bundle.owner else ""
    before = next((found for record in reversed(records) if (found := _was_on(bundle, record))), "")
    return before if before != bundle.owner else ""


def _was_on(bundle: BundleRecord, record: DecisionRecord) -> str:
    """The broker that had a bundle before its desired owner, according to a record; empty if unknown."""
    if (move := record.move_of(bundle.name)) is not None and move.begun:
        return move.destination if move.outcome in {None, Reason.LANDED} else move.source
    if (manual := record.manual_move_of(bundle.name)) is not None:
        return manual.source if manual.destination == bundle.owner else manual.destination
    stay = record.stay_of(bundle.name)
    return stay.broker if stay is not None and stay.broker != bundle.owner else ""


def answer(
    name: str,
    owner: str,
    manual: ManualMoveFacts,
    facts: Facts,
    records: Sequence[DecisionRecord],
    *,
    costs: Sequence[str],
) -> Answer:
    """Who moved the bundle `name`, from where, when, and until when it stays on `owner`.

    costs: lines that say what a move costs.
    """
    record = records[-1] if records else None
    lines = [*decided(record, facts, records)] if record is not None else []
    lines += figures(record, facts, owner) if record is not None and owner else []
    text = f"{name} {_done(manual)}; {_now(owner, manual)}{_stays(manual, facts) if manual.landed else ''}"
    return Answer(name, sentence(text), Reason.ADMIN, (*lines, *costs), _steps(name, owner, manual, facts), record)


def _done(manual: ManualMoveFacts) -> str:
    """What was done, as ``was moved by a person (kubectl-patch) from a to b at 2026-11-21 15:00:00 UTC``."""
    at = manual.asked if math.isfinite(manual.asked) else manual.since
    when = f" at {moment(at)}" if math.isfinite(at) else ""
    start = f"from {manual.source} " if manual.source else ""
    done = "was moved" if manual.landed else "was requested to move"
    return f"{done} by {manual.who} {start}to {manual.destination}{when}"


def _now(owner: str, manual: ManualMoveFacts) -> str:
    where = f"it is on {owner} now" if owner else "no broker serves it now"
    if manual.landed:
        return where
    return (
        f"{where}, as there is no broker {manual.destination}"
        if not manual.exists
        else f"{where}, as the move has not landed"
    )


def _stays(manual: ManualMoveFacts, facts: Facts) -> str:
    """Text that says until when balancing does not move the bundle; empty if unknown."""
    if facts.bundle is not None and facts.bundle.pinned:
        return ", pinned; balancing does not move it until the pin is removed"
    end = manual.since + facts.cool_down
    if math.isnan(end):
        return ""
    rule = f"limits.coolDown is {length(facts.cool_down)}"
    if end <= facts.now:
        return f"; balancing may move it again, its cool-down ended {ago(end, facts.now)} ({rule})"
    return f"; balancing does not move it {until(end, facts.now)} ({rule})"


def _steps(name: str, owner: str, manual: ManualMoveFacts, facts: Facts) -> tuple[str, ...]:
    space, pinned = f"-n {facts.namespace}", facts.bundle is not None and facts.bundle.pinned
    if not manual.landed:
        missing = f"choose a broker that exists: trimtab move {name} BROKER {space}"
        stay = f"let it stay: trimtab move {name} {owner or 'BROKER'} {space}"
        return (stay,) if manual.exists else (missing, stay)
    back = (f"move it back: trimtab move {name} {manual.source} {space}",) if manual.source else ()
    patch = f"""--type merge -p '{{"spec": {{"pinned": {"false" if pinned else "true"}}}}}'"""
    what = "let balancing move it" if pinned else "keep it there"
    return (*back, f"{what}: kubectl patch bundle {name} {space} {patch}")
