"""What a person is told of a cycle: the policy's status, its conditions, and whether an Event is due. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from trimtab_operator.actuators import Written
from trimtab_operator.cluster.status import set_condition, timestamp
from trimtab_operator.control.advice import RIGHT_SIZED, Sizing, sized
from trimtab_operator.control.pointing import where_to_ask
from trimtab_operator.control.pricing import Measured
from trimtab_operator.control.proposals import Proposal
from trimtab_operator.control.weights import BrokerWeight
from trimtab_strategies.model import (
    CPU,
    MEMORY,
    NETWORK_IN,
    NETWORK_OUT,
    ClusterLoad,
    HeldBack,
    Move,
    Plan,
    Reason,
    Split,
    counted,
)
from trimtab_strategies.model.load import FloatArray

_LONGEST = 1024
"""Characters of a condition's message."""
_NAMED = 5
"""Brokers that a message names."""

DATA_REASONS = frozenset(
    {
        Reason.NO_LOAD_DATA,
        Reason.OUT_DATED_DATA,
        Reason.UNTRUSTED,
        Reason.PARTIAL_DATA,
        Reason.SOURCE_UNAVAILABLE,
    },
)
"""Refusals that speak of the data and not of the cluster."""


@dataclass(frozen=True, slots=True)
class CycleResult:
    """What one cycle saw and did.

    started: epoch seconds; seconds: by phase; load and plan: None when it came to none; namespace: Kubernetes' one, of
    the policy, where there is a plan; refusal: why the whole cycle was refused, or None; restraint: why the plan was
    only shown, or None; written, split_requests: what became of each of the plan's moves, and splits, in order.
    """

    started: float
    seconds: Mapping[str, float]
    generation: int
    load: ClusterLoad | None = None
    plan: Plan | None = None
    namespace: str = ""
    refusal: HeldBack | None = None
    restraint: HeldBack | None = None
    written: Sequence[Written] = ()
    split_requests: Sequence[Written] = ()
    weights: Mapping[str, BrokerWeight] = field(default_factory=dict)
    """How each broker stands to its target weight, by name; empty where the shedder has none."""
    names: Mapping[str, str] = field(default_factory=dict)
    """Object name of each bundle in the plan's moves and splits, and of those noted down as staying."""
    measured: Measured | None = None
    """What moves cost so far; None: nobody measures that."""
    sizing: Sizing | None = None
    """What is known of the cluster's size; None: nothing is to be said of it."""
    interval: float | None = None
    """Seconds from one cycle to the next; None: the policy could not be read."""
    hits: Mapping[str, float] = field(default_factory=dict)
    """Cycles in a row that something held which must hold for some before it is acted upon, by kind."""

    @property
    def moved(self) -> list[Move]:
        """The moves that were written."""
        moves = self.plan.moves if self.plan else ()
        return [move for move, written in zip(moves, self.written, strict=False) if written.reason is None]

    @property
    def split(self) -> list[Split]:
        """The splits that were asked for."""
        splits = self.plan.splits if self.plan else ()
        return [split for split, asked in zip(splits, self.split_requests, strict=False) if asked.reason is None]

    @property
    def moves_made(self) -> int:
        """Moves as the caps count them: a child of a split that leaves its parent's owner is one."""
        return len(self.moved) + sum(owner != split.source for split in self.split for owner in split.destinations)

    @property
    def held_back(self) -> Counter[str]:
        """How often each reason held something back."""
        planned = self.plan.held_back if self.plan else ()
        counts = Counter[str]()
        for held in planned:
            counts[str(held.reason)] += held.count
        answers = (*self.written, *self.split_requests)
        counts.update(str(written.reason) for written in answers if written.reason is not None)
        if self.refusal is not None:
            counts[str(self.refusal.reason)] += 1
        return counts

    @property
    def outcome(self) -> Reason:
        """The cycle in one word: why something moved or was proposed, else why nothing was."""
        if self.refusal is not None:
            return self.refusal.reason
        if self.plan is None:
            return Reason.INTERNAL_ERROR
        if self.plan.moves:
            return self.plan.moves[0].reason
        if self.plan.splits:
            return self.plan.splits[0].reason
        reasons = [held.reason for held in self.plan.held_back]
        return Reason.BALANCED if not reasons or Reason.BALANCED in reasons else reasons[0]


def cpu_range(plan: Plan | None, *, after: bool = False) -> tuple[float, float] | None:
    """Percent of the least and the most used broker, or None when none was measured."""
    if plan is None or not len(plan.brokers):
        return None
    cpu = (plan.after if after else plan.before)[:, CPU]
    known = cpu[np.isfinite(cpu)]
    return (float(known.min()), float(known.max())) if known.size else None


def policy_status(result: CycleResult, previous: Mapping[str, Any], in_flight: int) -> dict[str, Any]:
    """Merge-patch that turns the `previous` status of the policy into the one after `result`.

    in_flight: open moves.
    """
    before = previous.get("lastCycle") or {}
    status = {
        "observedGeneration": result.generation,
        "conditions": conditions(result, previous.get("conditions") or []),
        "lastCycle": _last_cycle(result, before),
        "inFlight": in_flight,
    }
    if not waits(previous):
        status["proposal"] = _proposal(result)
    return status


def waits(status: Mapping[str, Any]) -> bool:
    """Whether the proposal in a policy's status is one of mode Approve, which no cycle may replace by itself."""
    return bool((status.get("proposal") or {}).get("state"))


def _last_cycle(result: CycleResult, before: Mapping[str, Any]) -> dict[str, Any]:
    phases = {phase: round(value, 3) for phase, value in result.seconds.items()}
    return {
        "time": timestamp(result.started),
        "seconds": round(sum(result.seconds.values()), 3),
        "phases": _instead_of(before.get("phases"), phases),
        "outcome": str(result.outcome),
        "moved": len(result.moved),
        "split": len(result.split),
        "heldBack": _instead_of(before.get("heldBack"), result.held_back),
    }


def _instead_of(before: Mapping[str, Any] | None, now: Mapping[str, Any]) -> dict[str, Any]:
    """A merge-patch that leaves nothing of `before`: keys that are gone are null."""
    return {**dict.fromkeys(before or {}), **now}


def _proposal(result: CycleResult) -> dict[str, Any] | None:
    if result.plan is None:
        return None
    return Proposal.of(
        result.plan,
        result.load,
        names=result.names,
        generation=result.generation,
        made_at=result.started,
        measured=result.measured,
    ).shown()


def conditions(result: CycleResult, previous: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """`Valid`, `DataTrusted`, `Balanced`, `Acting` and `Ready`, their sum, merged into the `previous` conditions."""
    found = [("Valid", *_valid(result)), ("DataTrusted", *_data(result)), ("Balanced", *_balanced(result))]
    found += [("Acting", *_acting(result)), ("Ready", *_ready(result))]
    merged = [dict(condition) for condition in previous]
    for kind, status, reason, message in found:
        merged = set_condition(merged, kind, status, reason, shortened(message), result.generation, result.started)
    return merged if result.sizing is None else sized(merged, result.sizing, result.generation, result.started)


def shortened(message: str) -> str:
    """What a person reads of it; the API server would refuse the whole status for a message past 32 KiB."""
    return message if len(message) <= _LONGEST else f"{message[: _LONGEST - 3]}..."


def _valid(result: CycleResult) -> tuple[str, str, str]:
    if result.refusal is not None and result.refusal.reason in {Reason.INVALID_POLICY, Reason.UNKNOWN_BROKER}:
        return "False", str(result.refusal.reason), result.refusal.detail
    return "True", "Valid", "the policy can be run as written"


def _data(result: CycleResult) -> tuple[str, str, str]:
    if result.refusal is not None and result.refusal.reason in DATA_REASONS:
        doubts = "" if result.load is None else _doubted(result.load)
        return (
            "False",
            str(result.refusal.reason),
            f"{result.refusal.detail}: {doubts}" if doubts else result.refusal.detail,
        )
    if result.load is None:
        return "Unknown", str(result.outcome), "nothing was measured in this cycle"
    if untrusted := _doubted(result.load):
        until = "neither shed nor receive until their metrics can be believed"
        return "False", str(Reason.UNTRUSTED), f"{untrusted}: {until}"
    if result.load.quality.partial:
        return "False", str(Reason.PARTIAL_DATA), quality_text(result.load)
    odd = "".join(f"; {note}" for note in result.load.quality.notes)
    return "True", "Trusted", f"{len(result.load.brokers)} brokers measured{odd}"


def _doubted(load: ClusterLoad) -> str:
    """The first brokers that are not trusted, each with what is wrong with its data; empty when all are."""
    doubts, brokers = load.quality.doubts, load.brokers
    names = [name for name, trusted in zip(brokers.names, brokers.trusted, strict=True) if not trusted]
    shown = [f"{name} ({doubts[name].text})" if name in doubts else name for name in names[:_NAMED]]
    return ", ".join(shown) + (" and others" if len(names) > _NAMED else "")


def quality_text(load: ClusterLoad) -> str:
    """What was missing from a picture, in one line."""
    parts = [f"{where}: {error}" for where, error in load.quality.failed] + list(load.quality.warnings)
    return "; ".join(parts)[:1024] or "the source answered in part"


def _balanced(result: CycleResult) -> tuple[str, str, str]:
    ends = cpu_range(result.plan)
    if result.refusal is not None or result.plan is None or ends is None:
        return "Unknown", str(result.outcome), "no decision was made in this cycle"
    text, ask = f"CPU between {ends[0]:.0f} % and {ends[1]:.0f} %", where_to_ask(result.plan, result.namespace)
    if not result.plan.empty:
        planned = [f"{len(result.plan.moves)} moves"] if result.plan.moves else []
        planned += [counted(len(result.plan.splits), "split")] if result.plan.splits else []
        return "False", str(result.outcome), f"{text}; {' and '.join(planned)} planned{ask}"
    if result.outcome is Reason.BALANCED:
        return "True", str(Reason.BALANCED), f"{text}{ask}"
    held = result.plan.held_back[0]
    about = f"{held.subject}: " if held.subject else ""
    return "False", str(held.reason), f"{text}; nothing may move: {about}{held.detail or held.reason}{ask}"


def _acting(result: CycleResult) -> tuple[str, str, str]:
    held = result.refusal or result.restraint
    if held is not None:
        return "False", str(held.reason), held.detail
    return "True", "Acting", "plans are carried out, within limits"


def _ready(result: CycleResult) -> tuple[str, str, str]:
    if result.refusal is not None:
        return "False", str(result.refusal.reason), result.refusal.detail
    split = f", {len(result.split)} to be split" if result.split else ""
    told = f"last cycle: {result.outcome}, {len(result.moved)} moved{split}"
    return "True", "Cycled", f"{told}{where_to_ask(result.plan, result.namespace)}"


def transitions(previous: Sequence[Mapping[str, Any]], now: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The conditions that deserve an Event: what went wrong, or changed its reason, or came right again.

    `Ready` repeats the others, so it is told only when it alone changed. What is fine from the start is not news.
    """
    before = {c["type"]: (c["status"], c["reason"]) for c in previous}
    fine = ("True", "")
    changed = [c for c in now if c["type"] in _TOLD and _news(before.get(c["type"], fine), c)]
    others = {c["reason"] for c in changed if c["type"] != "Ready"}
    return [c for c in changed if c["type"] != "Ready" or not others]


_TOLD = frozenset({"Valid", "DataTrusted", "Ready", "Linked", "OneHand", RIGHT_SIZED})


def _news(before: tuple[str, str], condition: Mapping[str, Any]) -> bool:
    status, reason = condition["status"], condition["reason"]
    if status == "True":
        return before[0] == "False"
    return status == "False" and before != (status, reason)


def broker_load(usage: FloatArray) -> dict[str, float | None]:
    """The summary of a broker's load for its status, of its usage (5,) in percent; None where unknown."""
    columns = {"cpu": CPU, "memory": MEMORY, "networkIn": NETWORK_IN, "networkOut": NETWORK_OUT}
    return {name: _known(usage[column]) for name, column in columns.items()}


def _known(percent: float) -> float | None:
    return float(percent) if np.isfinite(percent) else None
