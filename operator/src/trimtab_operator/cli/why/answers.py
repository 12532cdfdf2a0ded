"""Parts of an answer to *why*: a sentence, the compared figures, and steps to change the outcome. Pure functions."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from trimtab_operator.cli.common import ago, iso, length, written
from trimtab_operator.cli.why.wording import SENTENCES
from trimtab_operator.decision_log.record import BrokerView, DecisionRecord, MoveView
from trimtab_operator.kube.move_costs import MoveCosts
from trimtab_operator.kube.records import BundleRecord
from trimtab_strategies.model import RESOURCES, Reason

_ALIKE = 0.05
"""Percentage points: smaller differences do not matter to a reader."""

_SPOKEN = dict(zip(RESOURCES, ("CPU", "memory", "direct memory", "network in", "network out"), strict=True))
"""Names of the resources in sentences."""


@dataclass(frozen=True, slots=True)
class ManualMoveFacts:
    """A move of a bundle by a person or Git.

    writer: the field manager that wrote spec.owner, empty if unknown. asked: time of that write (epoch seconds), NaN if
    unknown. source: the former broker, empty if unknown. destination: the requested broker. exists: whether there is
    such a broker. landed: whether that broker serves the bundle. since: when the owner or the state of the bundle last
    changed (epoch seconds), NaN if unknown.
    """

    writer: str
    asked: float
    source: str
    destination: str
    exists: bool = True
    landed: bool = True
    since: float = math.nan

    @property
    def who(self) -> str:
        """Who requested the move, such as ``a person (kubectl-patch)``."""
        if self.writer.startswith("kubectl"):
            return f"a person ({self.writer})"
        if self.writer == TRIMTAB:
            return "a person (trimtab move)"
        return f"{self.writer}, not the operator," if self.writer else "a person, or Git,"


TRIMTAB = "trimtab"
"""Field manager of this program and of the operator. If the owner is not the assigned one, `trimtab move` wrote it."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known now, in addition to the recorded decisions.

    now: epoch seconds. last: time and outcome of the last cycle, None before the first.
    usage: broker -> CPU percent, from its status. bundle: the bundle that the question is about, if any.
    costs: measured cost of moves in that bundle's namespace, None if not measured.
    manual_move: the last move of that bundle, if a person made it.
    no_place: why the bundle can get no owner, because of its TopicNamespace or another bundle there; None if it can.
    """

    now: float
    namespace: str
    policy: str
    paused: bool = False
    cool_down: float = 0.0
    last: tuple[float, str] | None = None
    usage: Mapping[str, float] = field(default_factory=dict)
    bundle: BundleRecord | None = None
    costs: MoveCosts | None = None
    manual_move: ManualMoveFacts | None = None
    no_place: tuple[Reason, str] | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer. headline: the answer in a sentence. reason: in one word. compared: lines of figures.

    otherwise: steps to change the outcome.
    """

    subject: str
    headline: str
    reason: Reason
    compared: tuple[str, ...] = ()
    otherwise: tuple[str, ...] = ()
    record: DecisionRecord | None = None

    def text(self) -> str:
        """The answer as text."""
        parts = [self.headline]
        if self.compared:
            parts.append("\n".join(["figures:", *(f"  {line}" for line in self.compared)]))
        if self.otherwise:
            parts.append("\n".join(["to change this:", *(f"  {step}" for step in self.otherwise)]))
        return "\n\n".join(parts)

    def as_data(self) -> dict[str, Any]:
        """Plain data; the whole decision under `decision`."""
        record = self.record
        return {
            "subject": self.subject,
            "answer": self.headline,
            "reason": str(self.reason),
            "compared": list(self.compared),
            "otherwise": list(self.otherwise),
            "decidedAt": None if record is None else iso(record.at),
            "decision": None if record is None else record.model_dump(by_alias=True, mode="json", exclude_none=True),
        }


def sentence(text: str) -> str:
    """`text` with a full stop."""
    return text if text.endswith((".", "?")) else f"{text}."


def because(reason: Reason, detail: str = "") -> str:
    """What a reason means, and its figures in brackets."""
    why = SENTENCES[reason].why
    return f"{why} ({detail})" if detail and detail not in why else why


def steps(reasons: Iterable[Reason], **names: str) -> tuple[str, ...]:
    """What to do about each of `reasons`, each step once."""
    return tuple(dict.fromkeys(step for reason in reasons for step in SENTENCES[reason].steps(**names)))


def line_step(record: DecisionRecord | None, reason: Reason, facts: Facts) -> tuple[str, ...]:
    """How to lower or raise the shedder's threshold, if it has only one, or how to avoid its minimum of traffic."""
    if record is not None and reason is Reason.BELOW_MINIMUM and record.shedder in _WITH_MINIMUM:
        edit = f"kubectl edit bpol {facts.policy} -n {facts.namespace}"
        return (f"use Trim, which has no minimum traffic: {edit} (leave out spec.shedder and spec.placement)",)
    if record is None or record.line is None or reason not in _BY_LINE:
        return ()
    _, _, key = record.line.field.rpartition(".")
    factor, when = (0.5, "sooner") if reason is Reason.BALANCED else (1.5, "later")
    value = (
        min(100.0, float(record.parameters[key]) * factor)
        if record.line.average
        else record.line.value + (5 if factor > 1 else -5)
    )
    spec: Any = value
    for word in reversed(record.line.field.split(".")):
        spec = {word: spec}
    patch = f"kubectl patch bpol {facts.policy} -n {facts.namespace} --type merge -p '{json.dumps(spec)}'"
    return (f"let it act {when} ({key} is {record.parameters[key]:g}): {patch}",)


_WITH_MINIMUM = frozenset({"ThresholdShedder", "UniformLoadShedder", "AvgShedder"})
"""Shedders that unload nothing from a broker if the traffic to be moved is below a minimum."""

_BY_LINE = frozenset({Reason.OVERLOADED, Reason.BALANCED})


def percent(value: float | None) -> str:
    """A percentage as ``52.0 %``."""
    return "unknown" if value is None else f"{value:.1f} %"


def points(value: float) -> str:
    """A difference in percentage points, without its sign: ``2.5 points``."""
    return f"{abs(value):.1f} points"


def moment(at: float) -> str:
    """A point in time as ``2026-11-21 15:00:00 UTC``."""
    return f"{written(at)} UTC"


def until(at: float, now: float) -> str:
    """A later point in time as ``until 15:30:00 UTC, 12m 5s from now``."""
    return f"until {written(at)[11:]} UTC, {length(max(0.0, at - now))} from now"


def takes_none(view: BrokerView) -> str:
    """Why a broker may get no bundles; if it may get some, text that says so."""
    if view.takes is None:
        return "it may get bundles"
    detail = f"no {', '.join(view.missing)}" if view.missing else view.takes.detail
    return because(view.takes.reason, detail)


def destination_line(record: DecisionRecord, broker: str) -> str:
    """How used a broker was in a decision, and whether it may get bundles."""
    view = record.broker(broker)
    return f"{broker} took no part in the decision" if view is None else f"{broker}: {level(view)}, {takes_none(view)}"


def average(record: DecisionRecord) -> float | None:
    """Mean weighted usage (percent) of the trusted brokers."""
    known = [view.usage for view in record.brokers if view.usage is not None and view.trusted]
    return sum(known) / len(known) if known else None


def level(view: BrokerView) -> str:
    """The usage of a broker as ``80.0 % CPU``."""
    return "unknown usage" if view.usage is None else f"{view.usage:.1f} % {_SPOKEN.get(view.resource, '')}".rstrip()


def compared(record: DecisionRecord, view: BrokerView) -> float | None:
    """The value (percent) compared with the shedder's threshold: usage or smoothed usage; None without a threshold."""
    if record.line is None:
        return None
    if not record.line.average:
        return view.usage
    smoothed = view.averages.get(record.line.average)
    return None if smoothed is None else smoothed * 100


def distance(record: DecisionRecord, view: BrokerView) -> str:
    """Text on a broker's distance to the shedder's threshold; empty if there is not one threshold for all brokers."""
    value = compared(record, view)
    if record.line is None or value is None:
        return ""
    smoothed = f", smoothed {percent(value)}" if view.usage is None or abs(value - view.usage) >= _ALIKE else ""
    far, line = (
        value - record.line.value,
        f"the {record.line.value:.1f} % from which {record.shedder} relieves a broker",
    )
    where = f"exactly {line}" if abs(far) < _ALIKE else f"{points(far)} {'above' if far > 0 else 'below'} {line}"
    return f"{level(view)}{smoothed}, {where}"


def load_reason(record: DecisionRecord, view: BrokerView) -> str:
    """Why a broker gave bundles away, with figures."""
    if record.cause:
        return record.cause
    if far := distance(record, view):
        return f"{view.name} was at {far}"
    mean = average(record)
    others = f", the average of {len(record.brokers)} brokers is {percent(mean)}" if mean is not None else ""
    return f"{view.name} was at {level(view)}{others}"


def move_reason(record: DecisionRecord, move: MoveView) -> str:
    """Why a move was planned: figures of its source if the reason is load, else the meaning of the reason."""
    view = record.broker(move.source)
    return load_reason(record, view) if view is not None and move.reason in _OF_LOAD else because(move.reason)


_OF_LOAD = frozenset({Reason.OVERLOADED, Reason.UNDERLOADED})


def decided(record: DecisionRecord, facts: Facts, records: Sequence[DecisionRecord]) -> list[str]:
    """Who decided, when, and whether later cycles decided the same."""
    lines = [f"decided {moment(record.at)} by policy {record.policy} ({record.shedder}, {record.placement})"]
    if record is records[-1] and facts.last is not None and facts.last[0] > record.at + 1:
        at, outcome = facts.last
        lines.append(f"the same in every cycle since then; the last was {ago(at, facts.now)}: {outcome}")
    return lines


def predictions(record: DecisionRecord) -> list[str]:
    """How good the shedder's last predictions were, if it makes any."""
    return [] if record.predictions is None else [f"predictions: {record.predictions.text}"]


def figures(record: DecisionRecord, facts: Facts, name: str) -> list[str]:
    """Usage of a broker in the decision and its distance to the threshold, its CPU now, and what was not measured."""
    view = record.broker(name)
    if view is None:
        return [f"{name} was not part of the decision"]
    lines = [f"{name}: {distance(record, view) or level(view)}"]
    if (now := facts.usage.get(name)) is not None and facts.last is not None and facts.last[0] > record.at + 1:
        lines.append(f"{name}: its CPU is at {now:.0f} % now")
    if view.missing:
        lines.append(f"{name}: no data of {', '.join(view.missing)}")
    return lines


def least_used(record: DecisionRecord | None, besides: str) -> str:
    """The least used broker that may get bundles, except `besides`; ``BROKER`` if unknown."""
    views = record.brokers if record else ()
    free = [view for view in views if view.name != besides and view.takes is None and view.usage is not None]
    return min(free, key=lambda view: view.usage or 0.0).name if free else "BROKER"
