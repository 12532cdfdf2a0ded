"""One decision: run a pair of strategies under the guard, and make a `Plan` from their results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from trimtab_strategies.filters import BrokerSelection
from trimtab_strategies.guard import Guarded, MoveCaps, MoveLimits, Verdict, guard
from trimtab_strategies.model import (
    NO_POLICY,
    NOTHING_CONSIDERED,
    RESOURCES,
    VERDICTS,
    ClusterLoad,
    Decision,
    Doubt,
    HeldBack,
    Memory,
    Move,
    Plan,
    Reason,
)
from trimtab_strategies.model.cluster_load import BoolArray
from trimtab_strategies.planner.assign import assign, believed
from trimtab_strategies.planner.bars import barred
from trimtab_strategies.planner.candidates import DestinationChoice, selection_on
from trimtab_strategies.planner.drain import NO_DRAINS, DrainMoves, Drains, resting, set_apart
from trimtab_strategies.planner.moves import MovePlanner
from trimtab_strategies.planner.prediction import PredictedLoad
from trimtab_strategies.planner.splits import Division, divide
from trimtab_strategies.protocols import (
    NOTHING,
    ChoosesDestinations,
    Destinations,
    Placement,
    Shedder,
    Shedding,
    Splitter,
    Unload,
    forget_others,
)
from trimtab_strategies.usage import DEFAULT_WEIGHTS, Weights, measured_percent, with_moves_in_flight

__all__ = ["Pair", "assign", "chance", "decide"]

MAX_ROUNDS = 10
"""Maximum number of times that the shedder runs in one decision. Later runs leave out bundles that found no broker."""


_NO_FIGURES = np.empty((0, len(RESOURCES)))


@dataclass(frozen=True, slots=True)
class Pair:
    """The strategies of one decision.

    weights:   resource weights by which the planner compares brokers; those of the shedder.
    selection: the filters before the placement; None: only the policies of namespaces apply.
    splitter:  splits bundles before any are moved; None: no bundle is split.
    """

    shedder: Shedder
    placement: Placement
    weights: Weights = DEFAULT_WEIGHTS
    selection: BrokerSelection | None = None
    splitter: Splitter | None = None


def chance(now: float) -> np.random.Generator:
    """The random generator of the cycle at `now` (epoch seconds).

    It depends on `now` in whole milliseconds, because the history keeps times in this unit. So a recorded cycle can be
    repeated.
    """
    return np.random.default_rng(round(now * 1000))


def decide(
    cluster: ClusterLoad,
    pair: Pair,
    limits: MoveLimits,
    memory: Memory,
    rng: np.random.Generator,
    *,
    moved_last_hour: int = 0,
    drains: Drains = NO_DRAINS,
    audited: bool = True,
) -> Decision:
    """The moves and splits of `pair` within `limits`, and what stays, with reasons.

    memory: the one that the last decision returned. rng: picks among equally good destinations. moved_last_hour: moves
    made in the hour before `cluster.now`. drains: brokers to be emptied regardless of the load. While they pause
    balancing, neither the shedder nor the splitter runs, and both keep their memory. audited: whether the plan has
    the usage of the brokers before and after, and says what was considered, for people who ask why.

    If the guard refuses the cycle, nothing moves. The memory stays unchanged, since doubtful data must not enter the
    averages. Namespaces with the priority Last take part only if a plan without their bundles would do nothing.
    """

    def planned(seen: ClusterLoad) -> Decision:
        return _decide(seen, pair, limits, memory, rng, moved_last_hour=moved_last_hour, drains=drains, audited=audited)

    if last := _last(cluster):
        without_them = planned(replace(cluster, withheld={**last, **cluster.withheld}))
        if not without_them.plan.empty:
            return without_them
    return planned(cluster)


def _last(cluster: ClusterLoad) -> dict[str, Reason]:
    """The bundles of namespaces with the priority Last."""
    spaces = [row for row, name in enumerate(cluster.namespaces) if cluster.policies.get(name, NO_POLICY).last]
    if not spaces:
        return {}
    rows = np.flatnonzero(np.isin(cluster.bundles.namespace, spaces)).tolist()
    return {cluster.bundles.names[row]: Reason.LAST_PRIORITY for row in rows}


def _decide(
    cluster: ClusterLoad,
    pair: Pair,
    limits: MoveLimits,
    memory: Memory,
    rng: np.random.Generator,
    *,
    moved_last_hour: int,
    drains: Drains,
    audited: bool,
) -> Decision:
    """One plan, see `decide`."""
    before = measured_percent(cluster.brokers.usage, cluster.brokers.limit) if audited else _NO_FIGURES
    landed = believed(with_moves_in_flight(cluster), drains.restarted)
    allowed = guard(landed, limits, moved_last_hour=moved_last_hour)
    predicted = PredictedLoad(landed, pair.weights)
    if allowed.refusal is not None:
        held_back = (allowed.refusal, *allowed.held_back)
        return Decision(Plan((), held_back, cluster.brokers.names, before, predicted.percent()), memory)
    allowed = set_apart(allowed, landed, drains)
    receivers = np.flatnonzero(allowed.may_receive.allowed)
    choosing = DestinationChoice(pair.placement, receivers, selection_on(landed, pair.selection))
    caps = MoveCaps(
        len(landed.brokers),
        budget=allowed.budget,
        per_broker=limits.max_moves_per_broker,
        receives=allowed.receives,
    )
    division = Division((), NOTHING, (), memory)
    if pair.splitter is not None and drains.pause is None:
        most, sheddable = limits.max_splits_per_cycle, allowed.sheddable
        division = divide(
            landed, pair.splitter, choosing, predicted, memory, sheddable=sheddable, rng=rng, caps=caps, max_splits=most
        )
    allowed = without(allowed, division)
    draining = DrainMoves(landed, choosing, allowed, limits, caps, predicted, rng, division.memory.placement)
    moves = list(draining.moves(drains))
    allowed = replace(allowed, sheddable=allowed.sheddable.rule_out(draining.taken, Reason.DRAINED))
    placing = MovePlanner(landed, choosing, allowed, limits, caps, predicted, rng, draining.memory)
    shedder = resting(pair.shedder, allowed, drains, division.moved)
    shedding, shed_moves = _shed_and_place(landed, shedder, allowed, placing, memory.shedder)
    bars: tuple[HeldBack, ...] = ()
    if audited and shedder is pair.shedder and not shedding.unloads and _verdict_reason(shedding) not in VERDICTS:
        unbarred = partial(_unbarred, landed, shedder, allowed, memory.shedder)
        bars = barred(landed, allowed, limits, choosing, unbarred)
    reasons = bars or shedding.held_back
    names, sources = cluster.brokers.names, [unload.broker for unload in shedding.unloads]
    plan = Plan(
        moves=(*moves, *shed_moves),
        held_back=(
            *reasons,
            *draining.held_back(),
            *division.held_back,
            *placing.held_back(),
            *choosing.problems(),
            *allowed.held_back,
        ),
        brokers=names,
        before=before,
        after=predicted.percent() if audited else _NO_FIGURES,
        splits=division.splits,
        target_weights=shedding.target_weights,
        carried=shedding.carried,
        considered=placing.notes.considered(sources, reasons) if audited else NOTHING_CONSIDERED,
        cause=shedding.cause if shed_moves else "",
        verdict=None if shed_moves else _verdict((*reasons, *placing.held_back())),
    )
    parts = (shedding.memory, placing.memory, division.memory.splitter)
    return Decision(plan, Memory(*(forget_others(part, names) for part in parts)))


def _verdict(held_back: Sequence[HeldBack]) -> HeldBack | None:
    """Why nothing is shed: the first entry about the whole cluster, or else the first one."""
    return next((held for held in held_back if held.reason in VERDICTS), held_back[0] if held_back else None)


def _verdict_reason(shedding: Shedding) -> Reason | None:
    """Why a shedder sheds nothing, in a word."""
    found = _verdict(shedding.held_back)
    return None if found is None else found.reason


def _unbarred(
    cluster: ClusterLoad, shedder: Shedder, allowed: Guarded, memory: Mapping[str, Any], bundles: BoolArray
) -> Shedding:
    """What the shedder would shed if all `bundles` (mask, m) could move, and go to any broker."""
    free = replace(allowed, sheddable=Verdict(len(bundles)).rule_out(~bundles, Reason.NO_LOAD_DATA))
    return shed(cluster, shedder, free, np.zeros(len(bundles), dtype=bool), memory)


def without(allowed: Guarded, division: Division) -> Guarded:
    """`allowed` without the bundles that are split: they stay with their owner."""
    divided = np.zeros(len(allowed.sheddable.allowed), dtype=bool)
    divided[division.rows] = True
    return replace(allowed, sheddable=allowed.sheddable.rule_out(divided, Reason.SPLITTING))


def _shed_and_place(
    cluster: ClusterLoad,
    shedder: Shedder,
    allowed: Guarded,
    placing: MovePlanner,
    memory: Mapping[str, Any],
) -> tuple[Shedding, list[Move]]:
    """The shedder's result, and the moves that follow from it.

    If no broker can take a bundle, for example because each would then be more used than the bundle's owner is now, the
    shedder runs again without that bundle, on the same memory. Otherwise a broker with one huge bundle would offer it
    in every cycle and keep its small ones.
    """
    restricted = placing.choosing.selecting is not None and isinstance(shedder, ChoosesDestinations)
    destinations = placing.choosing.destinations(cluster) if restricted else None

    def again() -> Shedding:
        return shed(cluster, shedder, allowed, placing.unplaced, memory, destinations=destinations)

    first = again()
    moves = list(placing.moves(first.unloads))
    known = 0
    for _ in range(MAX_ROUNDS - 1):
        if placing.unplaced.sum() == known:
            break
        known = int(placing.unplaced.sum())
        moves += placing.moves(again().unloads)
    return first, moves


def shed(
    cluster: ClusterLoad,
    shedder: Shedder,
    allowed: Guarded,
    unplaced: BoolArray,
    memory: Mapping[str, Any],
    *,
    destinations: Destinations | None = None,
) -> Shedding:
    """Run the shedder on the brokers that take part, without the `unplaced` bundles (mask, m).

    The result has the rows of `cluster`.
    """
    part = allowed.may_shed.allowed
    if destinations is not None and isinstance(shedder, ChoosesDestinations):
        shedder = shedder.among(destinations.only(part))
    sheddable = allowed.sheddable.allowed & ~unplaced
    if part.all():
        return shedder.shed(cluster, sheddable, memory)
    rows = np.flatnonzero(part)
    smaller = only_brokers(cluster, part)
    answer = shedder.shed(smaller, sheddable & (smaller.bundles.owner >= 0), memory)

    def in_rows_of_cluster(unload: Unload) -> Unload:
        destination = int(rows[unload.destination]) if unload.destination >= 0 else -1
        return replace(unload, broker=int(rows[unload.broker]), destination=destination)

    return replace(answer, unloads=tuple(map(in_rows_of_cluster, answer.unloads)))


def only_brokers(cluster: ClusterLoad, part: BoolArray) -> ClusterLoad:
    """The cluster reduced to the brokers in `part` (mask, n). In the result, bundles of other brokers have no owner.

    `quality.doubts` has each ready broker that is left out, so that strategies do not believe that the broker is gone.
    """
    brokers = cluster.brokers
    row = np.append(np.where(part, np.cumsum(part) - 1, -1), -1)  # the last entry is for unowned bundles (-1)
    columns = ("usage", "limit", "traffic", "age", "ready", "schedulable", "trusted")
    fewer = replace(
        brokers,
        names=tuple(name for name, kept in zip(brokers.names, part.tolist(), strict=True) if kept),
        **{column: getattr(brokers, column)[part] for column in columns},
    )
    bundles = replace(cluster.bundles, owner=row[cluster.bundles.owner], moving_from=row[cluster.bundles.moving_from])
    recent = cluster.recent
    if recent is not None:
        recent = replace(recent, cpu=recent.cpu[:, part], traffic=recent.traffic[:, part])
    left_out = {brokers.names[k] for k in np.flatnonzero(brokers.ready & ~part).tolist()} - {*cluster.quality.doubts}
    unnamed = {name: Doubt(Reason.UNTRUSTED, "left out of the comparison") for name in sorted(left_out)}
    quality = replace(cluster.quality, doubts={**cluster.quality.doubts, **unnamed}) if unnamed else cluster.quality
    return replace(cluster, brokers=fewer, bundles=bundles, recent=recent, quality=quality)
