"""What an answer to *why* is made of: one sentence, what was compared, and what to do to have it otherwise. Pure."""

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
"""Percent points that make no difference to a reader."""

_SPOKEN = dict(zip(RESOURCES, ("CPU", "memory", "direct memory", "network in", "network out"), strict=True))
"""Resources as people say them."""


@dataclass(frozen=True, slots=True)
class ByHand:
    """How a person, or Git, moves a bundle, or moved it where it is.

    writer: the field manager that wrote spec.owner, empty unknown. asked: when it did (epoch seconds), NaN unknown.
    source: the broker the bundle came from, empty unknown. destination: the one that was asked for. exists: whether
    there is such a Broker. landed: whether it serves the bundle. since: from when on (epoch seconds), NaN unknown.
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
        """Who wrote it: ``a person (kubectl-patch)``."""
        if self.writer.startswith("kubectl"):
            return f"a person ({self.writer})"
        if self.writer == TRIMTAB:
            return "a person (trimtab move)"
        return f"{self.writer}, not the operator," if self.writer else "a person, or Git,"


TRIMTAB = "trimtab"
"""Field manager of what this program writes; where it leaves no assignment it was `trimtab move`."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known at this moment besides the recorded decisions.

    now: epoch seconds. last: time and outcome of the last cycle, None before the first. quarantine: by name of the
    Bundle object, until when (epoch seconds). usage: CPU percent by broker, as its status shows it. bundle: the one
    that was asked about. costs: what moves of its namespace cost so far, None where nobody measures that. by_hand: how
    a person moved it last, None where the operator did or it never moved.
    """

    now: float
    namespace: str
    policy: str
    paused: bool = False
    cool_down: float = 0.0
    last: tuple[float, str] | None = None
    quarantine: Mapping[str, float] = field(default_factory=dict)
    usage: Mapping[str, float] = field(default_factory=dict)
    bundle: BundleRecord | None = None
    costs: MoveCosts | None = None
    by_hand: ByHand | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """headline: the answer in a sentence. reason: in one word. compared: lines of figures. otherwise: steps."""

    subject: str
    headline: str
    reason: Reason
    compared: tuple[str, ...] = ()
    otherwise: tuple[str, ...] = ()
    record: DecisionRecord | None = None

    def text(self) -> str:
        """As a person reads it."""
        parts = [self.headline]
        if self.compared:
            parts.append("\n".join(["what was compared:", *(f"  {line}" for line in self.compared)]))
        if self.otherwise:
            parts.append("\n".join(["if you want it otherwise:", *(f"  {step}" for step in self.otherwise)]))
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
    """How to have the shedder act sooner, or later, where it has a single line."""
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


_BY_LINE = frozenset({Reason.OVERLOADED, Reason.BALANCED})


def percent(value: float | None) -> str:
    """``52.0 %``."""
    return "unknown" if value is None else f"{value:.1f} %"


def points(value: float) -> str:
    """``1 point``, ``2.5 points``; of percent."""
    return f"{abs(value):.1f} points"


def moment(at: float) -> str:
    """``2026-11-21 15:00:00 UTC``."""
    return f"{written(at)} UTC"


def until(at: float, now: float) -> str:
    """``until 15:30:00 UTC, 12m 5s from now``."""
    return f"until {written(at)[11:]} UTC, {length(max(0.0, at - now))} from now"


def takes_none(view: BrokerView) -> str:
    """Why a broker may be given nothing, or that it may be given bundles."""
    if view.takes is None:
        return "it could take bundles"
    detail = f"no {', '.join(view.missing)}" if view.missing else view.takes.detail
    return because(view.takes.reason, detail)


def average(record: DecisionRecord) -> float | None:
    """Mean weighted usage (percent) of the brokers that were believed."""
    known = [view.usage for view in record.brokers if view.usage is not None and view.trusted]
    return sum(known) / len(known) if known else None


def level(view: BrokerView) -> str:
    """``80.0 % CPU``."""
    return "unknown usage" if view.usage is None else f"{view.usage:.1f} % {_SPOKEN.get(view.resource, '')}".rstrip()


def compared(record: DecisionRecord, view: BrokerView) -> float | None:
    """What the shedder's line is compared with (percent): usage, or a smoothed one; None where there is no line."""
    if record.line is None:
        return None
    if not record.line.average:
        return view.usage
    smoothed = view.averages.get(record.line.average)
    return None if smoothed is None else smoothed * 100


def distance(record: DecisionRecord, view: BrokerView) -> str:
    """How a broker stands to what makes the shedder relieve one, in words; empty where there is no single line."""
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


def story(record: DecisionRecord, view: BrokerView) -> str:
    """Why a broker was relieved, with figures."""
    if far := distance(record, view):
        return f"{view.name} was at {far}"
    mean = average(record)
    others = f", the average of {len(record.brokers)} brokers is {percent(mean)}" if mean is not None else ""
    return f"{view.name} was at {level(view)}{others}"


def move_story(record: DecisionRecord, move: MoveView) -> str:
    """Why a move was planned: figures of its source where it is about load, else what its reason means."""
    view = record.broker(move.source)
    return story(record, view) if view is not None and move.reason in _OF_LOAD else because(move.reason)


_OF_LOAD = frozenset({Reason.OVERLOADED, Reason.UNDERLOADED})


def decided(record: DecisionRecord, facts: Facts, records: Sequence[DecisionRecord]) -> list[str]:
    """Who decided when, and whether that still holds."""
    lines = [f"decided {moment(record.at)} by policy {record.policy} ({record.shedder}, {record.placement})"]
    if record is records[-1] and facts.last is not None and facts.last[0] > record.at + 1:
        at, outcome = facts.last
        lines.append(f"the same in every cycle since; the last was {ago(at, facts.now)}: {outcome}")
    return lines


def figures(record: DecisionRecord, facts: Facts, name: str) -> list[str]:
    """Usage of a broker: measured, as it is now, and how far from the line."""
    view = record.broker(name)
    if view is None:
        return [f"{name} took no part in the decision"]
    lines = [f"{name}: {distance(record, view) or level(view)}"]
    if (now := facts.usage.get(name)) is not None and facts.last is not None and facts.last[0] > record.at + 1:
        lines.append(f"{name}: its CPU is at {now:.0f} % now")
    if view.missing:
        lines.append(f"{name}: no data of {', '.join(view.missing)}")
    return lines


def least_used(record: DecisionRecord | None, besides: str) -> str:
    """The broker a person might want a bundle on: the least used that takes bundles; ``BROKER`` if none is known."""
    views = record.brokers if record else ()
    free = [view for view in views if view.name != besides and view.takes is None and view.usage is not None]
    return min(free, key=lambda view: view.usage or 0.0).name if free else "BROKER"
