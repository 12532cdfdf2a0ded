"""The status of a policy after a cycle: its conditions, its columns, and whether an Event is due. Pure.

All condition types and reasons are in `resources.conditions`. The messages of `Balanced` and `Ready` end with the
command that explains them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from trimtab_operator.kube.conditions import Condition, epoch, set_condition, timestamp
from trimtab_operator.observe.limits import limit_lines
from trimtab_operator.observe.snapshot import absent, trusted_only
from trimtab_operator.pulsar.client.errors import remedy
from trimtab_operator.resources.conditions import ConditionReason, PolicyCondition
from trimtab_operator.resources.policy_status import PredictionScore
from trimtab_operator.state.cycle_result import CycleResult
from trimtab_operator.state.pulsar_link import NOT_ASKED, PulsarLink
from trimtab_operator.status.size_advice import sized
from trimtab_strategies.model import (
    CPU,
    VERDICTS,
    ClusterLoad,
    HeldBack,
    Plan,
    Reason,
    counted,
    some,
)


def where_to_ask(plan: Plan | None, namespace: str) -> str:
    """``; why: trimtab explain broker NAME -n NAMESPACE`` for the most important broker; empty without brokers.

    NAME is the source of the first move (its destination, if the bundle had no owner), else the most used broker.
    namespace: the Kubernetes namespace of the policy.
    """
    if plan is None or not plan.brokers:
        return ""
    if plan.moves:
        name = plan.moves[0].source or plan.moves[0].destination
    elif np.isfinite(cpu := plan.before[:, CPU]).any():
        name = plan.brokers[int(np.nanargmax(np.where(np.isfinite(cpu), cpu, np.nan)))]
    else:
        name = plan.brokers[0]
    return f"; why: trimtab explain broker {name} -n {namespace}"


def linked(conditions: Iterable[Mapping[str, Any]], link: PulsarLink, generation: int, now: float) -> list[Condition]:
    """`conditions` of a policy at `generation` with `Linked`, or without it where no Pulsar cluster is linked."""
    if link.spec is None:
        return [dict(condition) for condition in conditions if condition["type"] != PolicyCondition.LINKED]
    if not link.problem:
        status, reason, text = "True", str(ConditionReason.LINKED), f"Pulsar answers at {link.spec.admin_url}"
    elif link.problem == NOT_ASKED:
        status, reason, text = "Unknown", str(ConditionReason.NOT_ASKED), link.problem
    else:
        scheme = link.spec.admin_url.partition(":")[0] if link.ids is None else ""
        text = "; ".join(filter(None, (link.problem, remedy(link.problem, link.spec.auth, scheme))))
        status, reason = "False", str(Reason.SOURCE_UNAVAILABLE)
    return set_condition(conditions, PolicyCondition.LINKED, status, reason, shortened(text), generation, now)


def pulsar_balancer_active(link: PulsarLink) -> str:
    """Why nothing may move while Pulsar's own balancer may be on; empty when moves are allowed."""
    return "" if not link.linked or link.own_balancer.disabled else link.own_balancer.text


def steered(conditions: Iterable[Mapping[str, Any]], link: PulsarLink, generation: int, now: float) -> list[Condition]:
    """`conditions` of a policy at `generation` with the one about Pulsar's own balancer, if Pulsar is linked."""
    if not link.linked:
        return [dict(condition) for condition in conditions if condition["type"] != _BALANCER_DISABLED]
    status = {True: "True", False: "False", None: "Unknown"}[link.own_balancer.disabled]
    reason = {
        True: ConditionReason.PULSAR_BALANCER_DISABLED,
        False: Reason.PULSAR_BALANCER_ACTIVE,
        None: ConditionReason.NOT_VERIFIED,
    }[link.own_balancer.disabled]
    return set_condition(
        conditions, _BALANCER_DISABLED, status, reason, shortened(link.own_balancer.text), generation, now
    )


_BALANCER_DISABLED = PolicyCondition.PULSAR_BALANCER_DISABLED

_LONGEST = 1024
"""Maximum number of characters of a condition's message."""

_NAMED = 5
"""Maximum number of brokers that a message names."""


ANSWERED_FOR = 3600.0
"""Seconds for which `CommandTaken` is shown."""


DATA_REASONS = frozenset(
    {
        Reason.NO_LOAD_DATA,
        Reason.OUT_DATED_DATA,
        Reason.UNTRUSTED,
        Reason.PARTIAL_DATA,
        Reason.SOURCE_UNAVAILABLE,
    },
)
"""Reasons that are about the data and not about the cluster."""


def cpu_range(plan: Plan | None, load: ClusterLoad | None = None, *, after: bool = False) -> tuple[float, float] | None:
    """CPU percent of the least and the most used broker that are compared, or None when none was measured.

    load: the snapshot of the plan; untrusted brokers are left out.
    """
    if plan is None or not len(plan.brokers):
        return None
    cpu = trusted_only(plan.after if after else plan.before, load)[:, CPU]
    known = cpu[np.isfinite(cpu) & ~np.isin(plan.brokers, _apart(plan, load))]
    return (float(known.min()), float(known.max())) if known.size else None


def policy_status(result: CycleResult, previous: Mapping[str, Any], in_flight: int) -> dict[str, Any]:
    """Merge-patch from the `previous` status of the policy to the one after `result`.

    in_flight: number of pending moves.
    """
    before = previous.get("lastCycle") or {}
    status = {
        "observedGeneration": result.generation,
        "conditions": conditions(result, previous.get("conditions") or []),
        "lastCycle": _last_cycle(result, before),
        "inFlight": in_flight,
    }
    if not waits(previous):
        status["proposal"] = result.proposal
    if result.plan is not None:
        status["predictions"] = _predictions(result)
        status["budget"] = None if result.budget is None else result.budget.model_dump(by_alias=True, mode="json")
    return status


def _predictions(result: CycleResult) -> dict[str, Any] | None:
    """How good the predictions were, as JSON; None, which removes the field, if the shedder makes none."""
    found = result.predictions
    return None if found is None else PredictionScore.of(found).model_dump(by_alias=True, mode="json")


def landed_status(previous: Mapping[str, Any], in_flight: int, planned: int, landed: Collection[str]) -> dict[str, Any]:
    """Merge-patch of the `previous` status of a policy between two cycles, as moves land.

    in_flight: number of pending moves. planned: moves of the last plan. landed: Bundles whose moves have landed.
    """
    status: dict[str, Any] = {"conditions": previous.get("conditions") or [], "inFlight": in_flight}
    proposal = previous.get("proposal")
    if landed and proposal and not waits(previous):
        moves = [move for move in proposal.get("moves") or () if move["bundle"] not in landed]
        status["proposal"] = {"total": planned - len(landed), "moves": moves}
    return status


def waits(status: Mapping[str, Any]) -> bool:
    """Whether the proposal in a policy's status is one of mode Approve. Cycles don't replace such a proposal."""
    return bool((status.get("proposal") or {}).get("state"))


def _last_cycle(result: CycleResult, before: Mapping[str, Any]) -> dict[str, Any]:
    phases = {phase: round(value, 3) for phase, value in result.seconds.items()}
    ends = cpu_range(result.plan, result.load)
    return {
        "time": timestamp(result.started),
        "seconds": round(sum(result.seconds.values()), 3),
        "phases": _instead_of(before.get("phases"), phases),
        "outcome": str(result.outcome),
        "cpu": None if ends is None else {"lowest": round(ends[0], 1), "highest": round(ends[1], 1)},
        "moved": len(result.moved),
        "split": len(result.split),
        "heldBack": _instead_of(before.get("heldBack"), result.held_back),
    }


def _instead_of(before: Mapping[str, Any] | None, now: Mapping[str, Any]) -> dict[str, Any]:
    """A merge-patch that replaces `before` with `now`: keys that are gone are null."""
    return {**dict.fromkeys(before or {}), **now}


def conditions(result: CycleResult, previous: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The `previous` conditions with `Valid`, `DataTrusted`, `Balanced`, `Acting` and their summary `Ready` set.

    `HistoryWritable` is set unless the cycle had nothing to write.
    """
    found = [
        (PolicyCondition.VALID, *_valid(result)),
        (PolicyCondition.DATA_TRUSTED, *_data(result)),
        (PolicyCondition.BALANCED, *_balanced(result)),
        (PolicyCondition.ACTING, *_acting(result)),
        (PolicyCondition.READY, *_ready(result)),
    ]
    found += [] if result.unwritten is None else [(PolicyCondition.HISTORY_WRITABLE, *_history(result.unwritten))]
    merged = [dict(condition) for condition in previous]
    for kind, status, reason, message in found:
        merged = set_condition(merged, kind, status, reason, shortened(message), result.generation, result.started)
    return merged if result.sizing is None else sized(merged, result.sizing, result.generation, result.started)


def shortened(message: str) -> str:
    """`message` cut to a readable length. The API server refuses a status with a message longer than 32 KiB."""
    return message if len(message) <= _LONGEST else f"{message[: _LONGEST - 3]}..."


def _valid(result: CycleResult) -> tuple[str, str, str]:
    if result.refusal is not None and result.refusal.reason in {Reason.INVALID_POLICY, Reason.UNKNOWN_BROKER}:
        return "False", str(result.refusal.reason), result.refusal.detail
    return "True", ConditionReason.VALID, "the policy can be run as written"


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
        until = "neither shed nor receive until their metrics are trusted again"
        return "False", str(Reason.UNTRUSTED), f"{untrusted}: {until}"
    if result.load.quality.partial:
        return "False", str(Reason.PARTIAL_DATA), quality_text(result.load)
    odd = "".join(f"; {note}" for note in (*limit_lines(result.load.quality), *result.load.quality.notes))
    return "True", ConditionReason.TRUSTED, f"{int(result.load.brokers.trusted.sum())} brokers measured{odd}"


def _doubted(load: ClusterLoad) -> str:
    """The first untrusted brokers, each with the reason to doubt its data; empty when all are trusted.

    Those that can't be measured come first.
    """
    doubts, brokers = load.quality.doubts, load.brokers
    wanting = ~brokers.trusted & ~absent(load)
    names = [name for name, doubted in zip(brokers.names, wanting, strict=True) if doubted]
    names.sort(key=lambda name: name not in doubts or doubts[name].reason is not Reason.NO_LOAD_DATA)
    shown = [f"{name} ({doubts[name].text})" if name in doubts else name for name in names[:_NAMED]]
    return ", ".join(shown) + (" and others" if len(names) > _NAMED else "")


def quality_text(load: ClusterLoad) -> str:
    """What was missing from a snapshot, in one line."""
    parts = [f"{where}: {error}" for where, error in load.quality.failed] + list(load.quality.warnings)
    return "; ".join(parts)[:1024] or "the source answered in part"


def _balanced(result: CycleResult) -> tuple[str, str, str]:
    ends = cpu_range(result.plan, result.load)
    if result.refusal is not None or result.plan is None or ends is None:
        return "Unknown", str(result.outcome), "no decision was made in this cycle"
    text, ask = f"CPU between {ends[0]:.0f} % and {ends[1]:.0f} %", where_to_ask(result.plan, result.namespace)
    text += _unknown_cpu(result.plan, result.load)
    if apart := _apart(result.plan, result.load):
        text += f"; not compared: {some(apart, _NAMED)}"
    if not result.plan.empty:
        planned = [counted(len(result.plan.moves), "move")] if result.plan.moves else []
        planned += [counted(len(result.plan.splits), "split")] if result.plan.splits else []
        cause = f" ({result.plan.cause})" if result.plan.cause else ""
        return "False", str(result.outcome), f"{text}; {' and '.join(planned)} planned{cause}{ask}"
    if result.outcome is Reason.BALANCED:
        return "True", str(Reason.BALANCED), f"{text}{ask}"
    held = result.obstacle or HeldBack("", result.outcome)
    about = f"{held.subject}: " if held.subject else ""
    return "False", str(held.reason), f"{text}; nothing moves: {about}{held.detail or held.reason}{ask}"


def _apart(plan: Plan, load: ClusterLoad | None) -> list[str]:
    """The brokers that are not compared with the others, although they are measured: not ready, or being emptied."""
    apart = {held.subject for held in plan.held_back if held.reason in {Reason.NOT_READY, Reason.UNSCHEDULABLE}}
    known = np.isfinite(trusted_only(plan.before, load)[:, CPU])
    return [name for name, measured in zip(plan.brokers, known, strict=True) if measured and name in apart]


def _unknown_cpu(plan: Plan, load: ClusterLoad | None) -> str:
    """Text that names the brokers that are not in the range, because their CPU is unknown; empty if there are none."""
    known = np.isfinite(trusted_only(plan.before, load)[:, CPU])
    known = known if load is None else known | absent(load)
    names = [name for name, measured in zip(plan.brokers, known, strict=True) if not measured]
    return f"; CPU of {some(names, _NAMED)} is unknown" if names else ""


def _acting(result: CycleResult) -> tuple[str, str, str]:
    held = result.refusal or result.restraint
    if held is not None:
        return "False", str(held.reason), held.detail
    return "True", ConditionReason.ACTING, "plans are carried out, within limits"


def _history(unwritten: str) -> tuple[str, str, str]:
    if not unwritten:
        return "True", ConditionReason.WRITTEN, "each cycle is written to the history"
    meanwhile = "averages continue in memory until the operator stops"
    return (
        "False",
        ConditionReason.NOT_WRITTEN,
        f"{unwritten}; {meanwhile}; free or mount the volume, or keep less (--keep, --keep-size)",
    )


def _ready(result: CycleResult) -> tuple[str, str, str]:
    if result.refusal is not None:
        return "False", str(result.refusal.reason), result.refusal.detail
    split = f", {len(result.split)} to be split" if result.split else ""
    text = f"last cycle: {result.outcome}, {len(result.moved)} moved{split}"
    return "True", ConditionReason.CYCLED, f"{text}{where_to_ask(result.plan, result.namespace)}"


_FORMER = frozenset({"OneHand", "Contested", "Flapping"})
"""Condition types that older versions wrote. They are removed, because nothing updates them any more."""


def without_old_answer(conditions: Iterable[Mapping[str, Any]], now: float) -> list[dict[str, Any]]:
    """`conditions` without those of former types, and without a `CommandTaken` that is more than an hour old.

    now: epoch seconds.
    """

    def old(condition: Mapping[str, Any]) -> bool:
        since, kind = epoch(condition.get("lastTransitionTime")), condition["type"]
        return kind in _FORMER or (kind == PolicyCondition.COMMAND_TAKEN and now - since > ANSWERED_FOR)

    return [dict(condition) for condition in conditions if not old(condition)]


_NORMAL = VERDICTS | {Reason.OVERLOADED, Reason.UNDERLOADED}
"""Reasons of `Balanced` that need no attention: the policy waits for a difference to last, or moves bundles."""


def event_type(condition: Mapping[str, Any]) -> str:
    """Type of the Event about a changed condition: `Normal`, or `Warning` if a person may have to act."""
    normal = condition["type"] == PolicyCondition.BALANCED and condition["reason"] in _NORMAL
    return "Normal" if normal or condition["status"] == "True" else "Warning"


def transitions(previous: Sequence[Mapping[str, Any]], now: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The conditions to post an Event for: they became False, changed their reason, or became True again.

    `Ready` repeats the others, so it counts only when it alone changed. A condition that starts as True gets no Event.
    """
    before = {c["type"]: (c["status"], c["reason"]) for c in previous}
    fine = ("True", "")
    changed = [c for c in now if c["type"] in _WITH_EVENTS and _news(before.get(c["type"], fine), c)]
    others = {c["reason"] for c in changed if c["type"] != PolicyCondition.READY}
    return [c for c in changed if c["type"] != PolicyCondition.READY or not others]


_WITH_EVENTS = frozenset(
    {
        PolicyCondition.VALID,
        PolicyCondition.DATA_TRUSTED,
        PolicyCondition.READY,
        PolicyCondition.LINKED,
        _BALANCER_DISABLED,
        PolicyCondition.RIGHT_SIZED,
        PolicyCondition.HISTORY_WRITABLE,
    }
)


def _news(before: tuple[str, str], condition: Mapping[str, Any]) -> bool:
    status, reason = condition["status"], condition["reason"]
    if status == "True":
        return before[0] == "False"
    return status == "False" and before != (status, reason)
