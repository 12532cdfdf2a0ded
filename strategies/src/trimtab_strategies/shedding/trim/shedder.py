"""Trim: replay the last minutes with the owners that bundles have now, and move little, once, and for good.

Idea. The last eight minutes of every bundle are kept. They are replayed with the present owners: what would each broker
have used? A difference that lasted in the replay is real; a new broker is seen to be empty at once, and a burst never
moves anything. What a bundle costs on a broker is learned (`model`), so mixed machines and other programs need no
declaration. The plan (`plan`) takes the moves with the most balance for the fewest disconnected clients, and only if the
gain pays (`cause`).

When it helps. Everywhere where load lasts longer than a few minutes. When it hurts. A surge that comes once, lasts for a
quarter of an hour and ends: no one can know that it ends.

A plan is scored: three minutes later the usage that it predicted is compared with the measured one. When fewer than 70 %
of the last predictions are within 3 points, the next plans make half as many moves, until they are.

While a rollout is on (two brokers gone within 15 minutes) nothing is balanced.

Source. Trimtab's own. Memory: see `model`, `cause` and `scores`; ``seen`` and ``departures`` for rollouts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
from pydantic import Field

from trimtab_strategies.model import ClusterLoad, HeldBack, Reason, counted
from trimtab_strategies.model.cluster_load import BoolArray, FloatArray, RecentSamples
from trimtab_strategies.params import StrategyParams
from trimtab_strategies.protocols import Shedding, Unload
from trimtab_strategies.shedding.trim import scores
from trimtab_strategies.shedding.trim.cause import Cause, Watch, acted, cause, relief, watched
from trimtab_strategies.shedding.trim.model import BrokerModel, learned
from trimtab_strategies.shedding.trim.plan import Balance, Bounds, PlannedMove, Planner, prices
from trimtab_strategies.shedding.trim.replay import Replay, replayed

_ROLLOUT = 900.0  # seconds within which two departures make a rollout
_OUTLASTS = 1.5  # times the longest pause between departures that a rollout goes on


class TrimParams(StrategyParams):
    """Parameters of Trim."""

    hot: Annotated[float, Field(gt=0, le=100)] = 7.5
    """Points above its target at which a broker is a cause to act, if that has lasted."""
    apart: Annotated[float, Field(gt=0, le=200)] = 15
    """Points between the brokers farthest above and below their targets that are a cause to act, if that has lasted."""
    price: Annotated[float, Field(gt=0, le=100000)] = 400
    """Gain (points squared) that moving all bundles of an average broker must bring. More: fewer moves, less level."""
    worth: Annotated[float, Field(gt=0, le=100000)] = 400
    """Gain (point-minutes) for which moving all bundles of an average broker is worth it. More: it waits longer."""
    fixed: Annotated[float, Field(ge=0, le=1)] = 0.75
    """Ratio of a bundle's price that does not depend on its clients. Less: fewer clients are cut, by more moves."""
    floor: Annotated[float, Field(ge=0, le=100)] = 30
    """Percent of usage of the busiest broker below which nothing moves."""
    moves_per_broker: Annotated[int, Field(ge=1, le=1000)] = 10
    """Moves from, and to, one broker in one plan."""


@dataclass(frozen=True)
class Trim:
    """See the module."""

    params: TrimParams

    def shed(self, cluster: ClusterLoad, sheddable: BoolArray, memory: Mapping[str, Any]) -> Shedding:
        """The moves that pay, each with its destination."""
        recent = cluster.recent
        if recent is None or not len(recent) or len(cluster.brokers) < 2:  # noqa: PLR2004 - it takes two
            return _nothing(Reason.NO_LOAD_DATA, "no recent samples of the bundles are kept", memory)
        memory, pause = rollout(cluster, memory)
        model, memory = learned(cluster, recent, memory)
        replay = replayed(cluster, recent, model)
        watch, memory = watched(replay, cluster.brokers.names, cluster.now, memory)
        memory = scores.checked(cluster, recent, memory)
        if pause is not None:
            return Shedding(held_back=(pause,), memory=memory)
        return self._decided(cluster, sheddable, recent, replay, watch, memory)

    def _decided(
        self,
        cluster: ClusterLoad,
        sheddable: BoolArray,
        recent: RecentSamples,
        replay: Replay,
        watch: Watch,
        memory: Mapping[str, Any],
    ) -> Shedding:
        """The plan of the longest window that gives a cause and pays; else why nothing moves."""
        params, waits = self.params, ""
        for window in watch.windows(len(recent)):
            shown = cause(replay, watch, window, hot=params.hot, apart=params.apart)
            if not shown.given:
                waits = waits or self._level(shown, cluster)
                continue
            plan = self._planned(cluster, sheddable, replay, window, memory)
            if plan.floor:
                return _nothing(Reason.BELOW_MINIMUM, plan.floor, memory)
            if plan.moves and plan.gained * watch.life(window) >= plan.price:
                return _made(plan, cluster, memory)
            waits = self._not_worth(plan, shown, watch.life(window), cluster)
        text = waits or f"it watches for {counted(3, 'minute')} before it compares brokers"
        return _nothing(Reason.BALANCED, text, memory)

    def _planned(
        self, cluster: ClusterLoad, sheddable: BoolArray, replay: Replay, window: int, memory: Mapping[str, Any]
    ) -> _Plan:
        params, n = self.params, len(cluster.brokers)
        balance = Balance.of(replay, window)
        before = balance.busiest()
        if before.max() < params.floor:
            return _Plan([], 0.0, 0.0, balance, f"the busiest broker is at {before.max():.0f} %, {params.floor:g} needed")
        step = scores.step(memory)
        background = 100 * np.nan_to_num(replay.model.background[-1] / replay.model.cores)
        bounds = Bounds(
            movable=sheddable,
            receivers=cluster.brokers.schedulable & (background < balance.target - 1e-9),
            most=max(1, int(max(20, 2 * n) * step)),
            per_broker=max(1, int(params.moves_per_broker * step)),
            price=params.price,
            fixed=params.fixed,
        )
        price = prices(cluster, params.fixed)
        planner = Planner(balance, cluster.bundles.owner, price, bounds)
        moves = planner.run()
        rows = [row for move in moves for row in (move.bundle, move.returned) if row >= 0]
        owned = max(1, int((cluster.bundles.owner >= 0).sum())) / n
        explained = _explained(replay, window)
        gained = relief(before, balance.busiest(), balance.target, explained)
        return _Plan(moves, gained, params.worth / owned * float(price[rows].sum()), balance)

    def _level(self, shown: Cause, cluster: ClusterLoad) -> str:
        name = cluster.brokers.names[int(np.argmax(shown.low))]
        return (
            f"{name} was at least {shown.hottest:.1f} points above its level for {counted(shown.window, 'minute')}, "
            f"{shown.hot:.1f} are needed"
        )

    def _not_worth(self, plan: _Plan, shown: Cause, life: float, cluster: ClusterLoad) -> str:
        name = cluster.brokers.names[int(np.argmax(shown.low))]
        words = f"{name} was {shown.hottest:.1f} points above its level for {counted(shown.window, 'minute')}"
        if not plan.moves:
            return f"{words}; no move is worth its price"
        gain = plan.gained * life
        return f"{words}; {counted(len(plan.moves), 'move')} would save {gain:.0f} point-minutes, {plan.price:.0f} needed"


@dataclass(frozen=True)
class _Plan:
    """A plan before it is judged: point(s) it takes off, and the point-minutes that its moves must be worth."""

    moves: list[PlannedMove]
    gained: float
    price: float
    balance: Balance
    floor: str = ""


def _made(plan: _Plan, cluster: ClusterLoad, memory: Mapping[str, Any]) -> Shedding:
    names = cluster.brokers.names
    touched = np.zeros(len(names), dtype=bool)
    for move in plan.moves:
        touched[[move.source, move.destination]] = True
    memory = acted(memory, names, touched, cluster.now)
    memory = scores.predicted(memory, names, touched, plan.balance.usage[:, 0], cluster.now)
    return Shedding(tuple(map(_unload, plan.moves)), memory=memory)


def _unload(move: PlannedMove) -> Unload:
    returned = np.array([move.returned] if move.returned >= 0 else [], dtype=np.int64)
    bundles = np.array([move.bundle], dtype=np.int64)
    return Unload(
        move.source, bundles, Reason.OVERLOADED, destination=move.destination, returned=returned, judged=True
    )


def _nothing(reason: Reason, text: str, memory: Mapping[str, Any]) -> Shedding:
    return Shedding(held_back=(HeldBack("", reason, text),), memory=memory)


def _explained(replay: Replay, window: int) -> BoolArray:
    """The brokers (n,) whose bundles alone, by the kind's cost of work, explain that they are busy.

    A false reading of 100 % raises the background, which no move lowers.
    """
    model: BrokerModel = replay.model
    work = np.median(replay.carried[-window:, :, 0], axis=0)
    alone: FloatArray = np.nan_to_num(100 * model.slope * work / model.cores)
    busiest = 100 * np.median(replay.usage[-window:].max(axis=2), axis=0)
    explained: BoolArray = alone >= 0.8 * busiest
    return explained


def rollout(cluster: ClusterLoad, memory: Mapping[str, Any]) -> tuple[dict[str, Any], HeldBack | None]:
    """The memory with the brokers that left, and why nothing is balanced while others are about to leave.

    A broker that is only not trusted has not left.
    """
    now, names = cluster.now, cluster.brokers.names
    present = {*names, *cluster.quality.doubts}
    left = [name for name in memory.get("seen", ()) if name not in present]
    departures = [*memory.get("departures", ()), *([now, name] for name in left)]
    departures = [[time, name] for time, name in departures if now - time <= _ROLLOUT]
    memory = {**memory, "seen": sorted(present), "departures": departures}
    times = sorted({name: time for time, name in departures}.values())
    if len(times) < 2:  # noqa: PLR2004 - one broker that leaves is no rollout
        return memory, None
    pause = _OUTLASTS * max(np.diff(times).max(), 60.0) + 60
    if now - times[-1] >= pause:
        return memory, None
    text = f"{len(times)} brokers left within {_ROLLOUT / 60:.0f} minutes; balancing goes on {pause / 60:.0f} minutes after"
    return memory, HeldBack("", Reason.ROLLING_OUT, f"{text} the last one")
