"""Builds the record of a decision from the result of its cycle. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from trimtab_operator.actuators import WriteResult
from trimtab_operator.decision_log.record import (
    RECEIVES_FEWER,
    Alternative,
    BrokerView,
    CapUsage,
    DecisionRecord,
    Held,
    MoveView,
    SplitView,
    StayView,
    Threshold,
    Why,
)
from trimtab_operator.resources.policy_status import PredictionScore
from trimtab_operator.resources.strategy_unions import member
from trimtab_operator.state.cycle_result import CycleResult
from trimtab_operator.state.ownership_changes import HOUR
from trimtab_operator.state.settings import Settings
from trimtab_operator.state.strategy_state import PolicyState
from trimtab_operator.status.conditions import DATA_REASONS
from trimtab_strategies.model import RESOURCES, Candidates, ClusterLoad, HeldBack, Plan, Reason, counted
from trimtab_strategies.model.cluster_load import FloatArray
from trimtab_strategies.params import StrategyParams, rounded
from trimtab_strategies.usage import MODULAR_COLUMNS, MOVING, Weights

TAKES_NONE = DATA_REASONS | {Reason.NOT_READY, Reason.UNSCHEDULABLE}
"""Reasons of the guard for a broker that may take no bundles."""


def decision_record(result: CycleResult, settings: Settings, remembered: PolicyState) -> DecisionRecord:
    """The record of a cycle. remembered: the state after the cycle."""
    plan = result.plan
    views = () if plan is None else _brokers(plan, settings, result.load, remembered)
    return DecisionRecord(
        at=result.started,
        policy=settings.name,
        generation=result.generation,
        mode=settings.mode.value,
        interval=settings.interval,
        window=settings.prometheus.window,
        outcome=result.outcome,
        refusal=_held(result.refusal),
        restraint=_held(result.restraint),
        shedder=settings.strategies.shedder,
        placement=settings.strategies.placement,
        parameters=_parameters(settings),
        line=_line(settings, views),
        caps=_caps(result, settings, remembered),
        brokers=views,
        moves=_moves(result, plan),
        splits=_splits(result, plan),
        stays=_stays(result, plan),
        held_back=tuple(_as_held(held) for held in plan.held_back) if plan else (),
        cause=plan.cause if plan else "",
        predictions=None if result.predictions is None else PredictionScore.of(result.predictions),
    )


def _held(held: HeldBack | None) -> Held | None:
    return None if held is None else _as_held(held)


def _as_held(held: HeldBack) -> Held:
    return Held(subject=held.subject, reason=held.reason, detail=held.detail, count=held.count)


def _parameters(settings: Settings) -> dict[str, Any]:
    params = getattr(settings.pair.shedder, "params", None)
    return params.model_dump(by_alias=True, mode="json") if isinstance(params, StrategyParams) else {}


def _caps(result: CycleResult, settings: Settings, remembered: PolicyState) -> CapUsage:
    limits, made = settings.limits, remembered.moved_last_hour(result.started)
    brokers = len(result.plan.brokers) if result.plan is not None else 0
    first = min((at for at, _ in remembered.moves if result.started - at < HOUR), default=None)
    return CapUsage(
        per_cycle=limits.cycle_cap(brokers),
        per_broker=limits.max_moves_per_broker,
        per_hour=limits.hour_cap(brokers),
        last_hour=made,
        free_at=first + HOUR if first is not None and made >= limits.hour_cap(brokers) else None,
        cool_down=limits.cool_down,
    )


# -- brokers --


def _brokers(
    plan: Plan, settings: Settings, load: ClusterLoad | None, remembered: PolicyState
) -> tuple[BrokerView, ...]:
    weights = settings.pair.weights
    before, which = _weighted(plan.before, weights)
    after, _ = _weighted(plan.after, weights)
    averages = remembered.strategies.shedder.get("brokers", {})
    trusted = [True] * len(plan.brokers) if load is None else load.brokers.trusted.tolist()
    counts = np.zeros(0, dtype=np.int64)
    if load is not None:
        counts = np.bincount(load.bundles.owner + 1, minlength=len(plan.brokers) + 1)[1:]
    return tuple(
        BrokerView(
            name=name,
            usage=rounded(before[row], 2),
            expected=rounded(after[row], 2),
            resource=RESOURCES[which[row]],
            resources=tuple(rounded(value, 2) for value in plan.before[row]),
            trusted=trusted[row],
            missing=tuple(RESOURCES[k] for k in MOVING if not math.isfinite(plan.before[row, k])),
            limits={} if load is None else _limits(load, name),
            averages={what: round(float(of[name]), 4) for what, of in averages.items() if _is_number(of.get(name))},
            target_weight=rounded(plan.target_weights.get(name, math.nan), 2),
            carried=rounded(plan.carried.get(name, math.nan), 2),
            bundles=int(counts[row]) if len(counts) else None,
            gives=_gives(name, plan),
            takes=_takes(name, plan),
        )
        for row, name in enumerate(plan.brokers)
    )


def _limits(load: ClusterLoad, broker: str) -> dict[str, tuple[float, str]]:
    """What counts as 100 % of each resource whose limit has a known origin."""
    row, origins = load.brokers.index.get(broker), load.quality.limits.get(broker, {})
    if row is None:
        return {}
    limits = load.brokers.limit[row]
    known = {name: (float(limits[RESOURCES.index(name)]), origin.name) for name, origin in origins.items()}
    return {name: one for name, one in known.items() if math.isfinite(one[0])}


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)


def _weighted(percents: FloatArray, weights: Weights) -> tuple[FloatArray, list[int]]:
    """Each broker's highest weighted usage (n,), from percents (n, 5), and the column of the resource that has it.

    The usage is NaN if unknown.
    """
    columns = np.array(MODULAR_COLUMNS)
    weighted = percents[:, columns] * np.array(weights)[columns]
    blank = np.where(np.isfinite(weighted), weighted, -np.inf)
    top = blank.argmax(axis=1)
    largest = blank[np.arange(len(blank)), top]
    return np.where(np.isfinite(largest), largest, np.nan), columns[top].tolist()


def _gives(name: str, plan: Plan) -> Why:
    """Why a broker gives bundles away or keeps them: its own reason, else the one for all brokers."""
    leaving = [move for move in plan.moves if move.source == name]
    if leaving:
        return Why(reason=leaving[0].reason, detail=f"gives {counted(len(leaving), 'bundle')} away")
    for held in plan.held_back:
        if held.subject == name and held.reason not in RECEIVES_FEWER:
            return Why(reason=held.reason, detail=held.detail)
    if not plan.moves:
        for held in plan.held_back:
            if not held.subject:
                return Why(reason=held.reason, detail=held.detail)
    return Why(reason=Reason.NOT_CHOSEN, detail="the shedder relieves other brokers")


def _takes(name: str, plan: Plan) -> Why | None:
    found = next((h for h in plan.held_back if h.subject == name and h.reason in TAKES_NONE), None)
    return None if found is None else Why(reason=found.reason, detail=found.detail)


def _line(settings: Settings, views: tuple[BrokerView, ...]) -> Threshold | None:
    """The usage from which the shedder relieves a broker; None if the threshold is not the same for all brokers."""
    shedder, params = settings.strategies.shedder, _parameters(settings)
    field = f"spec.shedder.{member(shedder)}"
    if shedder == "OverloadShedder":
        value = float(params["overloadThreshold"])
        return Threshold(value=value, text=f"a fixed {value:g} %", field=f"{field}.overloadThreshold")
    smoothed = [view.averages["ema"] * 100 for view in views if "ema" in view.averages]
    if shedder == "ThresholdShedder" and smoothed:
        mean, points = sum(smoothed) / len(smoothed), float(params["threshold"])
        text = f"the average of {counted(len(smoothed), 'broker')}, {mean:.1f} %, plus {points:g} points"
        return Threshold(value=round(mean + points, 2), average="ema", text=text, field=f"{field}.threshold")
    return None


# -- bundles --


def _moves(result: CycleResult, plan: Plan | None) -> tuple[MoveView, ...]:
    if plan is None:
        return ()
    weighed: Mapping[str, Candidates] = {found.bundle: found for found in plan.considered.candidates}
    views = []
    for k, move in enumerate(plan.moves):
        written = result.written[k] if k < len(result.written) else None
        others = weighed.get(move.bundle)
        views.append(
            MoveView(
                bundle=move.bundle,
                name=result.names.get(move.bundle, move.bundle),
                source=move.source,
                destination=move.destination,
                reason=move.reason,
                load=rounded(move.load, 2),
                written=written is not None and written.reason is None,
                outcome=None if written is None else written.reason,
                detail=_detail(written, result),
                **({} if others is None else _alternatives(others)),
            )
        )
    return tuple(views)


def _detail(written: WriteResult | None, result: CycleResult) -> str:
    """Why a move or split was not written: its own reason, or the reason why the whole plan was only shown."""
    if written is None or written.reason is None:
        return ""
    restraint = result.restraint
    return restraint.detail if restraint is not None and restraint.reason is written.reason else written.detail


def _alternatives(found: Candidates) -> dict[str, Any]:
    return {
        "before": rounded(found.before, 2),
        "after": rounded(found.after, 2),
        "rejected": tuple(
            Alternative(broker=other.broker, reason=other.reason, after=rounded(other.after, 2))
            for other in found.rejected
        ),
        "others": found.others,
    }


def _splits(result: CycleResult, plan: Plan | None) -> tuple[SplitView, ...]:
    views = []
    for k, split in enumerate(plan.splits if plan else ()):
        asked = result.split_requests[k] if k < len(result.split_requests) else None
        views.append(
            SplitView(
                bundle=split.bundle,
                name=result.names.get(split.bundle, split.bundle),
                source=split.source,
                children=len(split.boundaries) + 1,
                reason=split.reason,
                outcome=None if asked is None else asked.reason,
                detail=_detail(asked, result),
            )
        )
    return tuple(views)


def _stays(result: CycleResult, plan: Plan | None) -> tuple[StayView, ...]:
    acted = set(plan.bundles) if plan else set()
    return tuple(
        StayView(
            bundle=stay.bundle,
            name=result.names.get(stay.bundle, stay.bundle),
            broker=stay.broker,
            reason=stay.reason,
            load=rounded(stay.load, 2),
            detail=stay.detail,
        )
        for stay in (plan.considered.staying if plan else ())
        if stay.bundle not in acted
    )
