"""Explains why a broker gives bundles away, keeps them, or gets none. Pure functions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from trimtab_operator.cli.common import size
from trimtab_operator.cli.why.answers import (
    Answer,
    Facts,
    average,
    because,
    decided,
    destination_line,
    distance,
    figures,
    least_used,
    level,
    line_step,
    move_reason,
    percent,
    points,
    predictions,
    sentence,
    steps,
    takes_none,
)
from trimtab_operator.cli.why.wording import SENTENCES
from trimtab_operator.decision_log.record import BrokerView, DecisionRecord, MoveView
from trimtab_strategies.model import RESOURCES, VERDICTS, LimitOrigin, Reason, counted

_SHOWN = 10
"""Maximum number of bundles or moves in an answer."""


@dataclass(frozen=True, slots=True)
class BrokerExplanation:
    """What the `records` (oldest first) and the facts say about the broker `name`."""

    name: str
    facts: Facts
    records: Sequence[DecisionRecord]

    @property
    def newest(self) -> DecisionRecord | None:
        """The last known decision."""
        return self.records[-1] if self.records else None

    def explain(self) -> Answer | None:
        """The effect of the last decision on the broker. None if nothing was recorded and nothing stops the policy."""
        record = self.newest
        if self.facts.paused or record is None or record.refusal is not None:
            return self._stopped(record)
        view = record.broker(self.name)
        if view is None:
            return self._absent(record)
        leave, come = record.moves_of(self.name)
        if leave:
            return self._answer(record, self._giving(record, leave), _outcome(leave))
        if come:
            load = sum(move.load or 0.0 for move in come)
            text = f"{self.name} {_verb(come, 'gets')} {counted(len(come), 'bundle')}"
            text += f", {points(load)} of CPU at their sources"
            change = f"it was at {level(view)}, and is expected at {percent(view.expected)}"
            return self._answer(record, f"{text}: {change}", _outcome(come))
        return self._answer(record, self._keeping(record, view), view.gives.reason)

    def why_not(self, to: str = "") -> Answer | None:
        """Why the broker gets no bundles; with `to`, why it gives none to `to`. None if nothing was recorded."""
        record = self.newest
        if self.facts.paused or record is None or record.refusal is not None:
            return self._stopped(record)
        view = record.broker(self.name)
        if view is None:
            return self._absent(record)
        if to:
            return self._not_to(record, view, record.moves_of(self.name)[0], to)
        return self.explain() if record.moves_of(self.name)[1] else self._gets_none(record, view)

    def _gets_none(self, record: DecisionRecord, view: BrokerView) -> Answer:
        if view.takes is not None:
            text = f"{self.name} gets no bundles: {takes_none(view)}"
            return self._answer(record, text, view.takes.reason, gets=True)
        if not record.moves:
            return self._no_broker_gives(record, view)
        return self._passed_over(record, view, record.moves)

    # -- sentences --

    def _giving(self, record: DecisionRecord, leave: Sequence[MoveView]) -> str:
        load = sum(move.load or 0.0 for move in leave)
        text = f"{self.name} {_verb(leave, 'gives')} {counted(len(leave), 'bundle')} away, {points(load)} of its CPU"
        text += f": {move_reason(record, leave[0])}"
        held = _outcome(leave)
        return text if any(move.begun for move in leave) else f"{text}; but {because(held, leave[0].detail)}"

    def _keeping(self, record: DecisionRecord, view: BrokerView) -> str:
        reason, detail = view.gives.reason, view.gives.detail
        if reason in {Reason.BALANCED, Reason.NOT_CHOSEN}:
            detail = distance(record, view) or detail
        return f"{self.name} keeps its bundles: {because(reason, detail)}"

    def _no_broker_gives(self, record: DecisionRecord, view: BrokerView) -> Answer:
        top = max(record.brokers, key=lambda other: other.usage if other.usage is not None else -1.0)
        detail = f"the most used is {top.name} at {level(top)}"
        far = distance(record, top)
        if far and top.gives.reason in VERDICTS | {Reason.NOT_CHOSEN}:
            detail = f"{top.name}: {far}"
        elif top.gives.detail:
            detail = top.gives.detail
        text = f"{self.name}, at {level(view)}, gets no bundles, as no broker gives any away"
        return self._answer(record, f"{text}: {because(top.gives.reason, detail)}", top.gives.reason, gets=True)

    def _passed_over(self, record: DecisionRecord, view: BrokerView, moves: Sequence[MoveView]) -> Answer:
        counts = _rejections(moves, self.name)
        reason = next(iter(counts), Reason.NOT_CHOSEN)
        shown = ", ".join(f"{count} {why}" for why, count in counts.items())
        text = f"{self.name}, at {level(view)}, got none of {counted(len(moves), 'bundle')} that moved"
        return self._answer(record, f"{text}: {because(reason, shown)}", reason, gets=True)

    def _not_to(self, record: DecisionRecord, view: BrokerView, leave: Sequence[MoveView], to: str) -> Answer:
        if any(move.destination == to for move in leave):
            return self._answer(record, self._giving(record, leave), _outcome(leave))
        reason, text = view.gives.reason, self._keeping(record, view)
        if leave:
            reason = next(iter(_rejections(leave, to)), Reason.NOT_CHOSEN)
            text = f"{self.name} gave {counted(len(leave), 'bundle')} away, and none to {to}: {because(reason)}"
        answer = self._answer(record, text, reason, to)
        return replace(answer, compared=(*answer.compared, destination_line(record, to)))

    def _stopped(self, record: DecisionRecord | None) -> Answer | None:
        if self.facts.paused:
            reason, detail = Reason.PAUSED, ""
        elif record is not None and record.refusal is not None:
            reason, detail = record.refusal.reason, record.refusal.detail
        else:
            return None
        text = f"nothing moves from or to {self.name} by policy {self.facts.policy}: {because(reason, detail)}"
        if record is None:
            return Answer(self.name, sentence(text), reason, (), steps([reason], **self._names()))
        return self._answer(record, text, reason)

    def _absent(self, record: DecisionRecord) -> Answer:
        text = (
            f"{self.name} is not part of the decisions of policy {self.facts.policy}: spec.brokers does not select it"
        )
        lines = decided(record, self.facts, self.records)
        return Answer(self.name, sentence(text), Reason.UNKNOWN_BROKER, tuple(lines), (), record)

    # -- figures --

    def _answer(self, record: DecisionRecord, text: str, reason: Reason, to: str = "", *, gets: bool = False) -> Answer:
        """The answer with its figures. gets: whether the question is what the broker gets, not what it gives."""
        lines = decided(record, self.facts, self.records)
        if (view := record.broker(self.name)) is not None:
            lines += figures(record, self.facts, self.name) + self._details(record, view)
        if record.line is not None:
            lines.append(f"threshold: {record.line.text} ({record.line.field})")
        if (mean := average(record)) is not None:
            lines.append(f"all {len(record.brokers)} brokers: {_range(record)}, {percent(mean)} on average")
        lines += predictions(record)
        lines += [] if gets else self._bundles(record)
        names = self._names_of_another() if gets else self._names(to)
        otherwise = (*line_step(record, reason, self.facts), *steps([reason], **names))
        return Answer(self.name, sentence(text), reason, tuple(lines), otherwise, record)

    def _details(self, record: DecisionRecord, view: BrokerView) -> list[str]:
        # zero also stands for resources that are not measured
        used = [f"{what} {value:.0f} %" for what, value in zip(RESOURCES, view.resources, strict=False) if value]
        lines = [f"{self.name}: {', '.join(used)}"] if used else []
        for what, (amount, origin) in view.limits.items():
            shown = size(amount) if what == "memory" else f"{amount:g} cores"
            known = LimitOrigin.__members__.get(origin, origin)
            lines.append(f"{self.name}: 100 % of {what} is {shown}: {known}")
        if view.takes is not None:
            lines.append(f"{self.name} may get no bundles: {takes_none(view)}")
        if view.target_weight is not None and view.carried is not None:
            lines.append(f"{self.name}: carries {view.carried:g}, its target is {view.target_weight:g}")
        if record.moves and view.expected is not None:
            lines.append(f"{self.name}: {percent(view.expected)} expected after all moves")
        own = [result for result in record.results if result.broker == self.name]
        return lines + [f"{self.name}: {percent(r.measured)} measured then, {points(r.error)} off" for r in own]

    def _bundles(self, record: DecisionRecord) -> list[str]:
        """The moves from and to the broker, and its largest bundles that stay."""
        leave, come = record.moves_of(self.name)
        lines = [f"{move.name}: to {move.destination}, {_how(move)}" for move in leave[:_SHOWN]]
        lines += [f"{move.name}: from {move.source or 'no owner'}, {_how(move)}" for move in come[:_SHOWN]]
        stays = [stay for stay in record.stays if stay.broker == self.name]
        view = record.broker(self.name)
        shown = None if leave or come or view is None else view.gives.reason  # the reason in the answer's first line
        for stay in stays[:_SHOWN]:
            said = stay.reason is shown and not stay.detail
            why = [] if said else [because(stay.reason, stay.detail)]
            load = [points(stay.load)] if stay.load is not None else []
            lines.append(f"{stay.name}: {', '.join(['stays', *load, *why])}")
        return lines

    def _names_of_another(self) -> dict[str, str]:
        """Like `_names`, but `bundle` is the largest bundle of the most used other broker: this broker could get it."""
        record = self.newest
        views = [view for view in record.brokers if view.name != self.name] if record is not None else []
        by_usage = sorted(views, key=lambda view: -(view.usage if view.usage is not None else -1.0))
        stays = [stay for view in by_usage for stay in (record.stays if record else ()) if stay.broker == view.name]
        return {**self._names(self.name), "bundle": stays[0].name if stays else "BUNDLE"}

    def _names(self, to: str = "") -> dict[str, str]:
        facts, record = self.facts, self.newest
        stays = record.stays if record is not None else ()
        bundle = next((stay.name for stay in stays if stay.broker == self.name), "BUNDLE")
        return {
            "bundle": bundle,
            "broker": self.name,
            "to": to or least_used(record, self.name),
            "policy": facts.policy,
            "namespace": facts.namespace,
        }


def _rejections(moves: Sequence[MoveView], broker: str) -> dict[Reason, int]:
    """Why `moves` did not go to `broker`, and how often; the most common reason first."""
    return dict(Counter(reason for move in moves if (reason := move.against(broker)) is not None).most_common())


def _outcome(moves: Sequence[MoveView]) -> Reason:
    """The reason of the first of `moves`; if none of them has started, the outcome of the first."""
    if any(move.begun for move in moves):
        return moves[0].reason
    return moves[0].outcome or moves[0].reason


def _verb(moves: Sequence[MoveView], verb: str) -> str:
    """``gives``, or ``would give`` if no move was written."""
    return verb if any(move.begun for move in moves) else f"would {verb.removesuffix('s')}"


def _how(move: MoveView) -> str:
    load = f"{points(move.load)}, " if move.load is not None else ""
    state = "under way" if move.outcome is None else SENTENCES[move.outcome].why
    return f"{load}{state}"


def _range(record: DecisionRecord) -> str:
    known = [(view.usage, view.name) for view in record.brokers if view.usage is not None]
    (low, least), (high, most) = min(known), max(known)
    return f"{low:.1f} % ({least}) to {high:.1f} % ({most})"
