"""Trim: replays the last minutes with the current owners of the bundles, and makes only moves worth their price.

Idea. The load of every bundle in the last eight minutes is replayed with the current owners: what would each broker
have used? Only a difference that lasted for several minutes of the replay counts. So a burst moves nothing. A new
broker gets bundles soon, because it was empty in all minutes of the replay. What a bundle costs on a broker is learned,
so a policy declares no machine types, idle CPU or other programs. The plan takes the moves that gain most balance for
the fewest disconnected clients, and only if the gain is worth their price.

Formula. U_i is the work of broker i: bytes/s in and out of its bundles, plus a price for each message. a_i is its
slope, the CPU that a unit of work costs there. b_i is its background, the CPU that its bundles do not explain. L is the
level: the least usage at which all load would fit. Broker i is (b_i + a_i U_i) / cores_i - max(L, b_i / cores_i) above
its target. There is a cause to act if a broker was `hot` points above its target, or two brokers were `apart` points
apart, throughout the last w minutes. Trim tries w = 8, 6, 5, 4, 3 and 2 in this order, and takes the first w that has a
cause and a plan worth its price. A plan is worth its price if (points taken off) x (minutes that the difference will
probably last) >= `worth` x (price of its moves) / (bundles per broker).

When it helps. Wherever load lasts longer than a few minutes. When it hurts. With a surge that comes once and ends after
a quarter of an hour, because nothing shows beforehand that it will end.

A plan is scored: three minutes later the CPU that it predicted for each broker is compared with the measured CPU. The
last 20 predictions of the last 24 hours count. If there are at least 10, and fewer than 70 % are within 3 points, the
next plans make half as many moves, or fewer, until enough predictions are right.

A broker with hardly any bundles is filled after two minutes, even if the level of the cluster is below `floor`. Trim
then plans these moves as if the machines were smaller, so that the busiest broker would be at twice `floor`. Other
brokers below their level get bundles, too.

During a rollout (two brokers left within 15 minutes) nothing is balanced.

Source. Trimtab's own. Memory: what `model.py`, `cause.py` and `scores.py` describe. For rollouts: ``seen``, the names
of the brokers of the last decision, and ``departures``, the epoch seconds and name of each broker that left. Also
``filling``, the names of the brokers that the last plan filled.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Annotated, Any, ClassVar

import numpy as np
from pydantic import Field

from trimtab_strategies.model import CPU, ClusterLoad, HeldBack, Reason, counted
from trimtab_strategies.model.cluster_load import BoolArray, FloatArray, IntArray, somewhere
from trimtab_strategies.params import Percent, StrategyParams
from trimtab_strategies.protocols import Destinations, Predictions, Shedding, Unload
from trimtab_strategies.shedding.trim import messages, scores
from trimtab_strategies.shedding.trim.cause import Watch, acted, carried_out, cause, may_differ, relief, watched, widest
from trimtab_strategies.shedding.trim.model import BrokerModel, learned
from trimtab_strategies.shedding.trim.plan import (
    AHEAD,
    PlanBounds,
    PlannedLoad,
    PlannedMove,
    Planner,
    prices,
    rows_of,
    within_reach,
)
from trimtab_strategies.shedding.trim.readings import middle
from trimtab_strategies.shedding.trim.replay import WINDOW, Replay, replayed
from trimtab_strategies.shedding.trim.replayed_minutes import KnownMinutes
from trimtab_strategies.shedding.trim.samples import AnyFloats
from trimtab_strategies.shedding.trim.search import COARSE, FEW, PairSearch
from trimtab_strategies.usage import measured_percent

_ROLLOUT = 900.0  # if two brokers leave within so many seconds, that is a rollout
_OUTLASTS = 1.5  # a rollout ends after this multiple of the longest pause between departures
_SCORED_AHEAD = 2.0  # a plan predicts the CPU so many minutes later: in the middle of the three measured minutes


class TrimParams(StrategyParams):
    """Parameters of Trim."""

    hot: Annotated[float, Field(gt=0, le=100)] = 7.5
    """Percentage points above a broker's target. A broker that stays at least this far above is a cause to act."""
    apart: Annotated[float, Field(gt=0, le=200)] = 15
    """Percentage points between the broker farthest above its target and the broker farthest below its own. If the two
    stay at least this far apart, that is a cause to act."""
    price: Annotated[float, Field(gt=0, le=100000)] = 430
    """The move of an average bundle must gain at least `price` / N, where N is the number of bundles per broker. The
    gain is in points squared. A higher price leads to fewer moves and a less even load."""
    worth: Annotated[float, Field(gt=0, le=100000)] = 300
    """For each average bundle that it moves, a plan must save at least `worth` / N, where N is the number of bundles
    per broker. The saving is in point-minutes: what the plan takes off the usage of busy brokers, times the minutes
    that the difference will probably last. With a higher value Trim waits longer."""
    fixed_percent: Percent = 75
    """Percent of a bundle's price that does not depend on its clients. A lower value leads to more moves, but fewer
    disconnected clients."""
    floor: Annotated[float, Field(ge=0, le=100)] = 30
    """Percent of usage. While the busiest broker is below it, only brokers with hardly any bundles get bundles."""
    moves_per_broker: Annotated[int, Field(ge=1, le=1000)] = 10
    """Maximum number of moves from one broker, and of moves to one broker, in one plan."""


@dataclass(frozen=True)
class Trim:
    """See the module."""

    params: TrimParams
    destinations: Destinations | None = None
    known: KnownMinutes = field(default_factory=KnownMinutes, compare=False, repr=False)
    rests_after_splits: ClassVar[bool] = True

    def among(self, destinations: Destinations) -> Trim:
        """See `ChoosesDestinations`."""
        return replace(self, destinations=destinations)

    def shed(self, cluster: ClusterLoad, sheddable: BoolArray, memory: Mapping[str, Any]) -> Shedding:
        """The moves that are worth their price, each with its destination."""
        recent = cluster.recent
        if len(cluster.brokers) < 2:  # noqa: PLR2004 - balancing needs two
            return _nothing(
                Reason.NO_CANDIDATE, f"{counted(len(cluster.brokers), 'broker')}: balancing takes two", memory
            )
        if recent is None or not len(recent):
            return _nothing(Reason.NO_LOAD_DATA, "no recent samples of the bundles are kept", memory)
        measured: tuple[AnyFloats, ...] = (*recent.bundles, cluster.bundles.short)
        if len(cluster.bundles) and not any(np.isfinite(minute).any() for minute in measured):
            return _nothing(Reason.NO_LOAD_DATA, "no bundle's traffic has been measured yet", memory)
        if (cluster.brokers.limit[:, CPU] > 0).any() and not np.isfinite(recent.cpu).any():
            return _nothing(Reason.NO_LOAD_DATA, f"no CPU was measured in {counted(len(recent), 'minute')}", memory)
        memory, pause = rollout(cluster, memory)
        newest = recent.last(WINDOW)
        model, memory = learned(cluster, newest, memory)
        replay = replayed(cluster, recent, model, self.destinations, self.known, newest=newest)
        names, params = cluster.brokers.names, self.params
        owned = replay.minutes.owned
        memory = carried_out(memory, cluster, owned)
        watch, memory = watched(replay, names, cluster.now, memory, hot=params.hot, apart=params.apart)
        memory = scores.checked(cluster, recent, owned, memory)
        if pause is not None:
            return Shedding(held_back=(pause,), memory=memory)
        receivers = cluster.brokers.schedulable & _measured(cluster)
        cycle = _TrimCycle(self.params, cluster, sheddable, replay, watch, memory, receivers, self.destinations)
        return cycle.decided()

    def predictions(self, memory: Mapping[str, Any]) -> Predictions:
        """See `ScoresPredictions`."""
        return scores.predictions(memory)


@dataclass(frozen=True)
class _TrimCycle:
    """One decision. memory: the new memory if nothing moves. receivers: (n,) brokers that may get bundles."""

    params: TrimParams
    cluster: ClusterLoad
    sheddable: BoolArray
    replay: Replay
    watch: Watch
    memory: Mapping[str, Any]
    receivers: BoolArray
    destinations: Destinations | None

    def decided(self) -> Shedding:
        """The plan that evens out the load, or else the one that fills vacant brokers, or else why nothing moves."""
        busiest = 100 * self.replay.usage[-1].max()
        floor = self.params.floor
        plan, why = self.levelled() if busiest >= floor else (None, self.idle(busiest))
        if plan is not None:
            return self.made(plan, self.memory, why)
        filling = self.filled()
        if filling is not None:
            return filling
        return _nothing(Reason.BELOW_MINIMUM, why, self.memory) if why else self.waiting()

    def idle(self, busiest: float) -> str:
        """Why a cluster is left alone whose busiest broker is at `busiest` percent, below `floor`."""
        brokers = self.cluster.brokers
        measured = measured_percent(brokers.usage, brokers.limit)[:, CPU]
        return messages.below_floor(busiest, self.params.floor, brokers.names, measured)

    def filled(self) -> Shedding | None:
        """The plan that gives bundles to vacant brokers, and to others below their level; None if not worth it."""
        names, below = self.cluster.brokers.names, self.replay.away[-1] < 0
        begun = self.memory.get("filling", ()) if self.watch.campaign else ()
        filled = (self.replay.vacant | (np.isin(names, begun) & below)) & self.receivers
        if not somewhere(filled):
            return None
        usage, floor = self.replay.usage[-1].max(axis=1), self.params.floor / 100
        busiest, lowest = usage.max(), (usage - self.replay.away[-1] / 100).min()
        factor = max(1.0, 2 * floor / busiest) if 0 < lowest < floor and busiest > 0 else 1.0
        watch, low = replace(self.watch, filling=True), self.receivers & (filled | below)
        plan, _ = replace(self, replay=self.replay.magnified(factor), watch=watch, receivers=low).levelled()
        if plan is None:
            return None
        few = [names[row] for row in np.flatnonzero(filled).tolist()]
        return self.made(plan, {**self.memory, "filling": few}, messages.filled(few, len(plan.moves), plan.cut))

    def levelled(self) -> tuple[_Plan | None, str]:
        """The plan of the longest window that has a cause and a plan worth its price, and the cause in words.

        If no window has both: None, and why no plan is worth its price; an empty text if there is no cause.
        """
        refused, params, names = "", self.params, self.cluster.brokers.names
        windows = self.watch.windows(len(self.replay))
        if not windows or not may_differ(self.replay, self.watch, windows[-1], hot=params.hot, apart=params.apart):
            return None, ""
        for window in windows:
            shown = cause(self.replay, self.watch, window, hot=params.hot, apart=params.apart)
            if shown.given:
                plan = self.planned(window)
                worth = messages.Worth(len(plan.moves), plan.gained, self.watch.life(window), plan.price, plan.cut)
                if plan.moves and worth.saved >= worth.price:
                    return plan, messages.made(names, shown, worth)
                refused = refused or messages.not_worth(
                    names, shown, worth, self.watch, price=params.price, least=params.worth
                )
        return None, refused

    @cached_property
    def price(self) -> FloatArray:
        """Price (m,) of moving each bundle."""
        return prices(self.cluster, self.params.fixed_percent / 100)

    def planned(self, window: int) -> _Plan:
        """The best plan for the load of `window`."""
        balance, cluster, n = PlannedLoad.of(self.replay, window), self.cluster, len(self.cluster.brokers)
        before, price, owner = balance.busiest(), self.price, cluster.bundles.owner
        before_usage = balance.usage[:, 0].copy()
        wider = within_reach(balance, owner, self.bounds(balance))
        moves, balance = best_plan(balance, owner, price, self.bounds(balance))
        if not moves and wider is not None:
            moves, balance = best_plan(wider, owner, price, self.bounds(wider))
        ahead = before_usage - 100 * middle(self.replay.usage[-window:])[:, 0]
        rows = rows_of(moves)
        owned = max(1, int((cluster.bundles.owner >= 0).sum())) / n
        gained = relief(before, balance.busiest(), balance.target, _explained(self.replay, window))
        clients = np.nan_to_num(cluster.bundles.sessions)
        cut = float(clients[rows].sum() / clients.sum()) if clients.sum() > 0 else float("nan")
        return _Plan(moves, gained, self.params.worth / owned * float(price[rows].sum()), balance, cut, ahead)

    def bounds(self, balance: PlannedLoad) -> PlanBounds:
        """What the plan may do: less after wrong predictions. Brokers with a background above the level get nothing."""
        step, model = scores.step(self.memory), self.replay.model
        background = 100 * np.nan_to_num(model.background[-1] / model.cores)
        return PlanBounds(
            movable=self.sheddable,
            receivers=self.receivers & (background < balance.target - 1e-9),
            most=max(1, int(max(20, 2 * len(background)) * step)),
            per_broker=max(1, int(self.params.moves_per_broker * step)),
            price=self.params.price,
            destinations=self.destinations,
        )

    def made(self, plan: _Plan, memory: Mapping[str, Any], why: str) -> Shedding:
        """The unloads of a plan with its cause in words, and the memory with what it predicts."""
        names, now = self.cluster.brokers.names, self.cluster.now
        touched = np.zeros(len(names), dtype=bool)
        for move in plan.moves:
            touched[[move.source, move.destination]] = True
        factor = np.nan_to_num(plan.balance.model.cores / self.replay.model.cores, nan=1.0)  # if magnified
        real = (plan.balance.usage[:, 0] - plan.ahead * (1 - _SCORED_AHEAD / AHEAD)) * factor
        owns = self.replay.minutes.owned.fingerprints.tolist()
        memory = scores.predicted(acted(memory, names, touched, now), self.cluster, plan.moves, real)
        memory["planned"] = [[names[row], owns[row]] for row in np.flatnonzero(touched).tolist()]
        return Shedding(tuple(map(_unload, plan.moves)), memory=memory, cause=why)

    def waiting(self) -> Shedding:
        """The result without a cause: brokers differ too little, or not for long enough yet."""
        now, pools, hot, apart = self.replay.away[-1], self.replay.pools, self.params.hot, self.params.apart
        text = messages.waiting(self.cluster.brokers.names, now, pools, self.watch, hot=hot, apart=apart)
        differ = now.max() >= hot or widest(now, now, pools) >= apart
        return _nothing(Reason.AVERAGING if differ else Reason.BALANCED, text, self.memory)


@dataclass(frozen=True)
class _Plan:
    """A plan before it is judged.

    gained: points that it takes off brokers above their level. price: point-minutes that its moves must save. cut:
    ratio 0-1 of all clients that it disconnects, NaN if unknown. ahead: (n,) points by which the CPU of each broker
    grows in `AHEAD` minutes, as its bundles grow.
    """

    moves: list[PlannedMove]
    gained: float
    price: float
    balance: PlannedLoad
    cut: float
    ahead: FloatArray


def best_plan(
    balance: PlannedLoad, owner: IntArray, price: FloatArray, bounds: PlanBounds
) -> tuple[list[PlannedMove], PlannedLoad]:
    """The better plan of `Planner` and `PairSearch`, and the load after it.

    `PairSearch` runs only if a broker has at most `COARSE` bundles on average, and the plan of `Planner` has fewer than
    `FEW` moves.
    """
    coarse = int((owner >= 0).sum()) <= COARSE * len(balance.target)
    pairs = PairSearch(balance, owner, price, bounds) if coarse else None  # the planner's moves change `balance`
    planner = Planner(balance, owner, price, bounds)
    if len(planner.run()) < FEW and pairs is not None:
        moves, net = pairs.run()
        if net > planner.net():
            return moves, pairs.balance
    return planner.moves, planner.balance


def _unload(move: PlannedMove) -> Unload:
    returned = np.array([move.returned] if move.returned >= 0 else [], dtype=np.int64)
    bundles = np.array([move.bundle], dtype=np.int64)
    return Unload(move.source, bundles, Reason.OVERLOADED, destination=move.destination, returned=returned, judged=True)


def _nothing(reason: Reason, text: str, memory: Mapping[str, Any]) -> Shedding:
    return Shedding(held_back=(HeldBack("", reason, text),), memory=memory)


def _measured(cluster: ClusterLoad) -> BoolArray:
    """The brokers (n,) whose CPU was measured in the newest minute; all brokers if CPU is not measured at all."""
    if cluster.recent is None or not (cluster.brokers.limit[:, CPU] > 0).any():
        return np.ones(len(cluster.brokers), dtype=bool)
    measured: BoolArray = np.isfinite(cluster.recent.cpu[-1])
    return measured


def _explained(replay: Replay, window: int) -> BoolArray:
    """The brokers (n,) whose bundles alone explain most of their usage.

    Points above 85 % usage count for more on these brokers alone (see `relief`). A false reading of 100 %, for example,
    raises the background, which no move lowers.
    """
    model: BrokerModel = replay.model
    work = np.median(replay.carried[-window:, :, 0], axis=0)
    alone: FloatArray = np.nan_to_num(100 * (model.idle + model.slope * work) / model.cores)
    busiest = 100 * np.median(replay.usage[-window:].max(axis=2), axis=0)
    explained: BoolArray = alone >= 0.8 * busiest
    return explained


def rollout(cluster: ClusterLoad, memory: Mapping[str, Any]) -> tuple[dict[str, Any], HeldBack | None]:
    """The memory with the brokers that left, and why nothing is balanced while others may soon leave.

    A broker has not left if its data is merely not trusted.
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
    text = f"{len(times)} brokers left within {_ROLLOUT / 60:.0f} minutes, the last was {departures[-1][1]}"
    left = (pause - (now - times[-1])) / 60
    return memory, HeldBack(
        "", Reason.ROLLING_OUT, f"{text}; balancing goes on in {left:.0f} minutes if no other leaves"
    )
