"""Explains why a bundle moved, why it stays, and why it did not move to some broker. Pure functions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from trimtab_operator.cli.common import ago, length
from trimtab_operator.cli.why.answers import (
    Answer,
    Facts,
    ManualMoveFacts,
    because,
    decided,
    destination_line,
    distance,
    figures,
    least_used,
    line_step,
    moment,
    move_reason,
    percent,
    points,
    predictions,
    sentence,
    steps,
    until,
)
from trimtab_operator.cli.why.manual_move import answer as manual_move_answer
from trimtab_operator.cli.why.wording import SENTENCES
from trimtab_operator.decision_log.record import RECEIVES_FEWER, DecisionRecord, MoveView, SplitView
from trimtab_operator.kube.records import WITHDRAWN
from trimtab_operator.observe.topology import last_unload
from trimtab_strategies.model import Reason, counted

Hold = tuple[Reason, str]
"""What keeps a bundle on its broker, with figures."""

_CAPS = frozenset({Reason.CYCLE_CAP, Reason.BROKER_CAP, Reason.HOUR_CAP})


@dataclass(frozen=True, slots=True)
class BundleExplanation:
    """What the `records` (oldest first) and the facts say about the Bundle object `name`, which `owner` serves."""

    name: str
    owner: str
    facts: Facts
    records: Sequence[DecisionRecord]

    @property
    def newest(self) -> DecisionRecord | None:
        """The last known decision."""
        return self.records[-1] if self.records else None

    def explain(self) -> Answer | None:
        """The last known move of the bundle, or else why it stays; None if nothing was recorded."""
        if (manual := self.facts.manual_move) is not None:
            return self._manual_move(manual)
        for record in reversed(self.records):
            if (found := self._recorded_in(record)) is not None:
                return found
        return self.why_not()

    def _manual_move(self, manual: ManualMoveFacts) -> Answer:
        return manual_move_answer(self.name, self.owner, manual, self.facts, self.records, costs=self._costs())

    def _recorded_in(self, record: DecisionRecord) -> Answer | None:
        """What a decision did with the bundle, or else the manual move before the decision.

        The manual move does not count if the bundle has left its destination. None if there is neither.
        """
        if (move := record.move_of(self.name)) is not None:
            gone = self.facts.bundle is not None and self.owner != move.destination and move.outcome is Reason.LANDED
            return self._elsewhere(record, move) if gone else self._moved(record, move)
        if (split := record.split_of(self.name)) is not None:
            return self._divided(record, split)
        manual = record.manual_move_of(self.name)
        if manual is None or (self.facts.bundle is not None and self.owner != manual.destination):
            return None
        return self._manual_move(ManualMoveFacts("", math.nan, manual.source, manual.destination, since=manual.at))

    def why_not(self, to: str = "") -> Answer | None:
        """Why the bundle did not move, or not to `to`; None if nothing was recorded and `holds` finds nothing."""
        record = self.newest
        move = record.move_of(self.name) if record else None
        if self.facts.manual_move is not None:
            move = None  # a person has moved it since that decision
        if record is not None and move is not None and (move.written or not self.holds()):
            return self._not_there(record, move, to) if to and to != move.destination else self._moved(record, move)
        found = self._stays(record)
        if found is None:
            return None
        reason, detail, others = found
        about = f"{self.name} stays on {self.owner}" if self.owner else f"{self.name} has no owner"
        lines = [f"also: {because(*other)}" for other in others]
        if record is not None:
            lines += decided(record, self.facts, self.records)
            lines += (figures(record, self.facts, self.owner) if self.owner else []) + self._own(record)
            lines += [destination_line(record, to)] if to else []
        lines += self._costs()
        reasons = [reason, *(other for other, _ in others)]
        return Answer(
            self.name,
            sentence(f"{about}: {because(reason, detail)}"),
            reason,
            tuple(lines),
            (*line_step(record, reason, self.facts), *steps(reasons, **self._names(to))),
            record,
        )

    def holds(self) -> list[Hold]:
        """What keeps the bundle on its broker now, whatever a strategy decides; the most general reason first."""
        facts, bundle = self.facts, self.facts.bundle
        found: list[Hold] = []
        if facts.paused:
            found.append((Reason.PAUSED, f"policy {facts.policy}"))
        if bundle is None:
            return found
        if not bundle.status_owner and facts.no_place is not None:
            found.append(facts.no_place)
        elif not bundle.status_owner:
            found.append((Reason.UNOWNED, f"desired owner {bundle.owner}" if bundle.owner else ""))
        if bundle.split:
            found.append((Reason.SPLITTING, bundle.split))
        if bundle.owner_pending and bundle.status_owner not in {"", bundle.owner}:
            found.append((Reason.IN_FLIGHT, f"from {bundle.status_owner} to {bundle.owner}{self._asked_by()}"))
        if bundle.pinned:
            found.append((Reason.PINNED, ""))
        moved = last_unload(bundle)
        if 0 <= facts.now - moved <= facts.cool_down:
            rule = f"limits.coolDown is {length(facts.cool_down)}"
            when = f"{ago(moved, facts.now)}, {until(moved + facts.cool_down, facts.now)}"
            found.append((Reason.COOL_DOWN, f"moved{_by(facts.manual_move)} {when}; {rule}"))
        return found

    def _asked_by(self) -> str:
        """Who requested a pending move, and whether its destination exists; empty if the operator requested it."""
        if (manual := self.facts.manual_move) is None:
            return ""
        return f", requested{_by(manual)}" + ("" if manual.exists else f"; there is no broker {manual.destination}")

    def _stays(self, record: DecisionRecord | None) -> tuple[Reason, str, list[Hold]] | None:
        """The main reason why the bundle stays, its figures, and what else holds the bundle."""
        holds = self.holds()
        if record is not None and record.refusal is not None and not self.facts.paused:
            holds.insert(0, (record.refusal.reason, record.refusal.detail))
        if record is not None and (move := record.move_of(self.name)) is not None and move.outcome is not None:
            holds.append((move.outcome, f"planned: to {move.destination}"))
        if not holds and record is not None:
            holds.append(self._by_strategy(record))
        return (*holds[0], holds[1:]) if holds else None

    def _by_strategy(self, record: DecisionRecord) -> Hold:
        stay, view = record.stay_of(self.name), record.broker(self.owner)
        if view is None:
            return Reason.UNKNOWN_BROKER, f"{self.owner} took no part in the decision"
        leave = record.moves_of(self.owner)[0]
        reason = stay.reason if stay is not None else Reason.NOT_CHOSEN if leave else view.gives.reason
        if reason is Reason.DRAINED:
            return self._left_behind(record)
        if reason in _CAPS:
            return reason, self._cap(record, reason)
        if reason is Reason.NOT_CHOSEN and leave:
            return reason, f"{counted(len(leave), 'other bundle')} of {self.owner} moved instead"
        detail = stay.detail if stay is not None else ""
        if reason is Reason.BELOW_MINIMUM:  # its figures are about the minimum traffic
            return reason, detail or view.gives.detail
        return reason, detail or (distance(record, view) or view.gives.detail if reason is view.gives.reason else "")

    def _left_behind(self, record: DecisionRecord) -> Hold:
        """Why a bundle has not left a broker that is being drained."""
        of_broker = (held for held in record.held_back if held.subject == self.owner)
        found = next((held for held in of_broker if held.reason not in RECEIVES_FEWER), None)
        return (found.reason, found.detail) if found is not None else (Reason.DRAINED, "")

    def _cap(self, record: DecisionRecord, reason: Reason) -> str:
        caps, soon = record.caps, f"the next cycle is within {length(record.interval)}"
        ramp = " and less while a broker ramps up" * any(h.reason is Reason.RAMPING_UP for h in record.held_back)
        if reason is Reason.CYCLE_CAP:
            return f"limits.maxMovesPerCycle is {caps.per_cycle}; {soon}"
        if reason is Reason.BROKER_CAP:
            return f"limits.maxMovesPerBroker is {caps.per_broker}{ramp}; {soon}"
        free = f"; {until(caps.free_at, self.facts.now)}" if caps.free_at is not None else ""
        return f"limits.maxMovesPerHour is {caps.per_hour}, {caps.last_hour} made{free}"

    def _elsewhere(self, record: DecisionRecord, move: MoveView) -> Answer:
        """The answer for a bundle that moved, and is on another broker now."""
        reason, why = self._placed()
        before = f"before that it moved from {move.source or 'no owner'} to {move.destination}"
        text = f"{self.name}: it is on {self.owner or 'no broker'} now: {why}; {before}"
        return self._answer(record, text, reason, [*decided(record, self.facts, self.records), *self._costs()])

    def _placed(self) -> tuple[Reason, str]:
        """Why the bundle is on its broker, from the assignment in the Bundle object."""
        bundle = self.facts.bundle
        word = bundle.desired_for if bundle is not None else ""
        reason = Reason(word) if word in set(Reason) else Reason.ADOPTED
        if bundle is None or reason not in WITHDRAWN or not bundle.since < bundle.assigned_at:
            return reason, because(reason)
        when = moment(bundle.assigned_at)
        return reason, f"a request for another broker was withdrawn at {when}, as {because(reason)}"

    # -- it moves --

    def _moved(self, record: DecisionRecord, move: MoveView) -> Answer:
        headline, reason = self._progress(move)
        lines = decided(record, self.facts, self.records)
        if move.load is not None:
            lines.append(f"the bundle: {points(move.load)} of the CPU of {move.source or 'its owner'}")
        lines += [*self._ends(record, move), *predictions(record), *self._costs()]
        lines += [self._rejected(other.broker, other.reason, other.after) for other in move.rejected]
        first = self._undo(move) if reason is Reason.LANDED else line_step(record, reason, self.facts)
        return self._answer(record, f"{headline}: {move_reason(record, move)}", reason, lines, first)

    def _progress(self, move: MoveView) -> tuple[str, Reason]:
        way = f"from {move.source or 'no owner'} to {move.destination}"
        if move.outcome is None:
            return f"{self.name} is moving {way}", move.reason
        if move.outcome is Reason.LANDED:
            when = f" ({moment(move.ended)})" if move.ended is not None else ""
            return f"{self.name} moved {way}{when}", Reason.LANDED
        why = because(move.outcome, move.detail)
        if move.written:
            return f"{self.name} should have moved {way}, but {why}", move.outcome
        return f"{self.name} would move {way}, but {why}", move.outcome

    def _undo(self, move: MoveView) -> tuple[str, ...]:
        space = self.facts.namespace
        back = f"move it back: trimtab move {self.name} {move.source} -n {space}" if move.source else ""
        patch = """--type merge -p '{"spec": {"pinned": true}}'"""
        pin = f"and keep it there: kubectl patch bundle {self.name} -n {space} {patch}"
        return (back, pin) if back else ()

    def _ends(self, record: DecisionRecord, move: MoveView) -> list[str]:
        """Source and destination: usage before, expected, and measured after all moves."""
        lines = []
        results = {result.broker: result for result in record.results}
        for name in (move.source, move.destination):
            if (view := record.broker(name)) is None:
                continue
            line = f"{name}: {percent(view.usage)} before, {percent(view.expected)} expected with the whole plan"
            if (result := results.get(name)) is not None:
                side = "more" if result.error >= 0 else "less"
                line += f", {percent(result.measured)} measured, {points(result.error)} {side}"
                line += " (later moves changed it, too)" if result.disturbed else ""
            lines.append(line)
        return lines

    def _rejected(self, broker: str, reason: Reason, after: float | None) -> str:
        at = f"with the bundle {percent(after)}, " if after is not None else ""
        return f"not {broker}: {at}{SENTENCES[reason].why}"

    def _not_there(self, record: DecisionRecord, move: MoveView, to: str) -> Answer:
        """The answer for a bundle that moves, but to another broker than `to`."""
        single = next((other for other in move.rejected if other.broker == to), None)
        reason = move.against(to)
        if reason is None:
            view = record.broker(to)
            reason = view.takes.reason if view is not None and view.takes is not None else Reason.NOT_CHOSEN
        at = f"with it, {to} would have been at {percent(single.after)}" if single and single.after is not None else ""
        chosen = f"{self.name} moved to {move.destination} and not to {to}"
        lines = decided(record, self.facts, self.records)
        if move.after is not None:
            lines.append(f"{move.destination}: {percent(move.after)} with the bundle")
        if single is not None and single.after is not None:
            lines.append(f"{to}: {percent(single.after)} with the bundle")
        if move.before is not None:
            lines.append(f"{move.source}: {percent(move.before)} before, while it had the bundle")
        lines += self._ends(record, move)
        return self._answer(record, f"{chosen}: {because(reason, at)}", reason, lines, to=to)

    def _divided(self, record: DecisionRecord, split: SplitView) -> Answer:
        """The answer for a bundle that is split, or would be."""
        would = f"would be split into {split.children}"
        text = f"{self.name} is split into {split.children}: {because(split.reason)}"
        reason = split.outcome or split.reason
        if split.outcome is not None:
            text = f"{self.name} {would}, as {because(split.reason)}; but {because(split.outcome, split.detail)}"
        return self._answer(record, text, reason, decided(record, self.facts, self.records))

    def _answer(  # noqa: PLR0917 - the parts of an answer, in their order
        self,
        record: DecisionRecord,
        text: str,
        reason: Reason,
        lines: Sequence[str],
        first: tuple[str, ...] = (),
        to: str = "",
    ) -> Answer:
        """The answer with its steps. first: what to do before the steps of `reason`."""
        otherwise = (*first, *steps([reason], **self._names(to)))
        return Answer(self.name, sentence(text), reason, tuple(lines), otherwise, record)

    # -- other lines --

    def _own(self, record: DecisionRecord) -> list[str]:
        stay = record.stay_of(self.name)
        return (
            [f"the bundle: {points(stay.load)} of the CPU of {stay.broker}"] if stay and stay.load is not None else []
        )

    def _costs(self) -> list[str]:
        """The cost of a move for clients, measured by the latest moves in its namespace."""
        if self.facts.costs is None:
            return []
        gap, back = self.facts.costs.publish_gap, self.facts.costs.reconnect
        if gap is None and back is None:
            return ["cost of a move: not measured yet in its namespace"]
        parts = [f"publishers wait {gap}"] if gap is not None else []
        parts += [f"all clients reconnect within {back}"] if back is not None else []
        return [f"cost of a move in its namespace: {'; '.join(parts)}"]

    def _names(self, to: str = "") -> dict[str, str]:
        facts = self.facts
        wanted = to or least_used(self.newest, self.owner)
        return {
            "bundle": self.name,
            "broker": self.owner or "BROKER",
            "to": wanted,
            "policy": facts.policy,
            "namespace": facts.namespace,
        }


def _by(manual: ManualMoveFacts | None) -> str:
    """`` by a person (kubectl-patch)``; empty if the operator moved it."""
    return "" if manual is None else f" by {manual.who}".rstrip(",")
