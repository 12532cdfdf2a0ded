"""WeightedBalancer: every broker carries its target weight, learned from its usage.

Idea. This is the balancer of Hermes (another message broker), applied to bundles: each bundle has one owner. A
controller gives a broker that is more used than the others a smaller target weight, so brokers of different strength
end up equally used. A broker above its target gives bundles to brokers below theirs, the heaviest that fit first. If a
broker already has too many bundles, heavy ones are swapped for light ones. A broker that is hardly used gets bundles
from all brokers above their targets, even from those slightly above. So one strong broker among many gets its part.
Bundles that moved recently stay. Nothing moves while differences are small or have not lasted long enough.

Formula. weight of a bundle = its throughput (or message rate); T = mean usage, e = T - usage, share = own weight / all;
score = average of share * (1 + gain * e / T), at least `floor` / n; target = all * score / sum of scores. A broker is
relieved when its weight is `min_change` percent above the target and the average of e is below -`dead_band`, until it
is within half of that percentage. It is filled when its weight is `min_change` percent below the target and the average
of e is above `dead_band`. With the law `Average` every target is all / n, and usage does not matter.

When it helps. With brokers of different strength, and with bundles of very different weight. It makes few moves,
because one swap can bring two brokers to their targets. When it hurts. With a single bundle heavier than a target
(split it), or weak brokers that should have far fewer bundles than strong ones (see `spread_percent`). When speed
matters, because the controller needs a window.

With `compatibility: Java` it decides exactly as Hermes does. Do not use that on a cluster: Hermes' controller is
stable only while gain * usage * n is at most 2, which five brokers at 40 % reach. No cluster with bundles migrates from
Hermes, so `Corrected` and `Sorted` are the defaults.

Weights are averages from the snapshot. The time of a bundle's last move is from the snapshot, too. So the memory has no
entry per bundle. A fixed weight of a broker is relative to the others: 2 is twice what an average broker without a
fixed weight carries. The brokers without one share the rest, as the controller decides.

While a broker is outside the dead band and its average has not followed yet, the reason is `Averaging`, with its usage
now and its average. Averages of errors begin at 0, so a first sample moves nothing, even after a change of leader.

Source. Hermes 2.21.0, `pl.allegro.tech.hermes.consumers.supervisor.workload.weighted.WeightedWorkBalancer`. The other
modules of this package contain the rules in the words of Hermes: a task is a bundle, a consumer is a broker. They also
support tasks that need several consumers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import ceil, fsum, isfinite, isnan, log
from typing import Annotated, Any

import numpy as np
from pydantic import Field

from trimtab_strategies.model import ClusterLoad, HeldBack, Reason, counted
from trimtab_strategies.model.cluster_load import BoolArray, FloatArray, IntArray
from trimtab_strategies.params import Compatibility, Duration, DurationOrZero, PositivePercent, WeightedParams, seconds
from trimtab_strategies.protocols import Shedding, Unload, recall, remember
from trimtab_strategies.shedding.weighted import target_weights
from trimtab_strategies.shedding.weighted.bundle_work import (
    JavaBundles,
    Measure,
    SortedBundles,
    Weighing,
    bundle_weights,
    by_name,
    cooled,
    fixed_weights,
    unloads_of,
)
from trimtab_strategies.shedding.weighted.ledger import Ledger
from trimtab_strategies.shedding.weighted.nodes import UNDEFINED, NodeLoad, blended, smoothing
from trimtab_strategies.shedding.weighted.orders import Iteration, Order
from trimtab_strategies.shedding.weighted.passes import DEFECTS, Aim, corrected_pass, original_pass
from trimtab_strategies.shedding.weighted.target_weights import AverageScore, Law, TargetRule, Targets
from trimtab_strategies.usage import broker_usage

__all__ = ["DEFECTS", "WeightedBalancer", "WeightedBalancerParams"]

BACK = 0.75
"""Ratio of the dead band within which a broker that was outside counts as balanced again. With 1, many brokers would
stop at the band's edge, and noise would soon cause more moves. With a much smaller ratio a broker would count as
unbalanced for too long, because the average converges slowly."""


class WeightedBalancerParams(WeightedParams):
    """Parameters of WeightedBalancer. It evens out usage, which the weights of the resources define."""

    target_weights: Law = Law.SCORING
    """`Scoring` learns from usage how much each broker can carry, `Average` gives all brokers the same target.
    Hermes: consumer.workload.weightedWorkBalancing.targetWeightCalculationStrategy"""
    measure: Measure = Measure.THROUGHPUT
    """A bundle's weight: `Throughput` (bytes/s) or `MessageRate` (msg/s), in and out together. `Throughput`
    predicts the effect of a move better than `MessageRate`."""
    weighing: Weighing = Weighing.SHORT
    """The average that is a bundle's weight: the short-term or the long-term one."""
    gain: Annotated[float, Field(gt=0, le=10)] = 1.0
    """How strongly a difference in usage changes a target. In the corrected form, 1 aims at closing the difference
    within the window, and 2 is the limit of stability for any number of brokers.
    Hermes: consumer.workload.weightedWorkBalancing.scoringGain"""
    window: Duration = "15m"
    """Time over which scores are averaged.
    Hermes: consumer.workload.weightedWorkBalancing.weightWindowSize"""
    stabilization: DurationOrZero = "30m"
    """Time after a move in which a bundle is not moved again.
    Hermes: consumer.workload.weightedWorkBalancing.stabilizationWindowSize"""
    min_change: Annotated[float, Field(ge=0, le=100)] = 5
    """Percent above its target weight from which a broker is relieved, and percent below it from which it is filled.
    Once the broker is within half of that percentage, this stops.
    With `compatibility: Java`, each single swap must relieve a broker by this percentage.
    Hermes: consumer.workload.weightedWorkBalancing.minSignificantChangePercent"""
    spread_percent: Annotated[float, Field(ge=0, le=1000)] = 100
    """Percent by which a broker may have more bundles than the average one, to take weight off another. 0 keeps the
    numbers of bundles even. Weight is then shifted by swaps, and each swap is two moves. Corrected form only."""
    dead_band: Annotated[float, Field(ge=0, le=100)] = 5
    """Percentage points from the mean usage. A broker is relieved or filled only if its average usage over the window
    is further from the mean. This stops once that average is at most three quarters of these points from the mean. So
    neither noise nor a short burst moves anything. Corrected form only."""
    floor_percent: PositivePercent = 10
    """Percent of the fair share 1/n below which no score falls. Corrected form only; in Hermes the bound is
    always 0.01."""
    compatibility: Compatibility = Compatibility.CORRECTED
    """`Java` decides as Hermes does, `Corrected` without its known defects."""
    iteration: Iteration = Iteration.SORTED
    """`Sorted` decides ties by name, `Java` as Hermes' hash maps do."""

    def rule(self, fixed: Mapping[str, float]) -> TargetRule:
        """The rule for targets. fixed: the weights that users fixed, by broker; 1 is the average of the others."""
        return TargetRule(
            law=self.target_weights,
            gain=self.gain,
            window=seconds(self.window) * 1000,
            compatibility=self.compatibility,
            iteration=self.iteration,
            floor=self.floor_percent / 100,
            fixed=fixed,
        )


@dataclass(frozen=True)
class WeightedBalancer:
    """See the module.

    Memory: by broker ``score``, the average of its raw scores, and ``scored``, when it was updated (ms). In the
    corrected form also ``error``, the average distance of its usage below the mean (ratio), and ``side``: -1 while the
    broker is relieved, 1 while it is filled.
    """

    params: WeightedBalancerParams

    def shed(self, cluster: ClusterLoad, sheddable: BoolArray, memory: Mapping[str, Any]) -> Shedding:
        """Bundles that brokers above their target weight should give to brokers below theirs."""
        view = _WeightedView(cluster, sheddable, self.params)
        if len(view.names) <= 1:
            alone = HeldBack("", Reason.NO_BROKERS, "fewer than two brokers whose usage is known")
            return Shedding(held_back=(alone,), memory=memory)
        scores = _recalled(memory, view.names)
        found = view.aimed(scores)
        learnt = _remembered(memory, found.memory)
        gives: list[bool] = []
        asks: list[bool] = []
        errors = np.empty(0)
        if view.corrected and found.errors:
            errors = view.smoothed(found.errors, recall(memory, "error", view.names), scores)
            side = view.side(errors, recall(memory, "side", view.names))
            learnt = remember(learnt, "error", view.names, errors)
            learnt = remember(learnt, "side", view.names, np.where(side == 0, np.nan, side))
            gives, asks = view.on_side(side, -1, found.errors), view.on_side(side, 1, found.errors)
        at_rest = gives and not any(gives) and not any(asks)
        unloads, held_back = ((), ()) if at_rest else view.relieved(found, gives, asks)
        if not unloads and not held_back:
            held_back = (view.averaging(found, errors) or view.balanced(at_rest=bool(at_rest)),)
        carried = dict(zip(view.names, view.books, strict=True))
        return Shedding(unloads, held_back, learnt, dict(found.weights), carried)


def _recalled(memory: Mapping[str, Any], names: list[str]) -> dict[str, AverageScore]:
    """The remembered scores of these brokers."""
    averages, times = (recall(memory, what, names).tolist() for what in ("score", "scored"))
    scores = {name: AverageScore(average, at) for name, average, at in zip(names, averages, times, strict=True)}
    return {name: score for name, score in scores.items() if not isnan(score.average + score.at)}


def _remembered(memory: Mapping[str, Any], scores: Mapping[str, AverageScore]) -> Mapping[str, Any]:
    """The memory with these scores."""
    names = list(scores)
    averages = np.array([scores[name].average for name in names], dtype=np.float64)
    times = np.array([scores[name].at for name in names], dtype=np.float64)
    return remember(remember(memory, "score", names, averages), "scored", names, times)


class _WeightedView:
    """The brokers that take part, in iteration order, and their weights."""

    def __init__(self, cluster: ClusterLoad, sheddable: BoolArray, params: WeightedBalancerParams) -> None:
        self.cluster, self.params = cluster, params
        self.corrected = params.compatibility is Compatibility.CORRECTED
        weight = bundle_weights(cluster, params.measure, params.weighing)
        known = np.isfinite(weight)
        self.weight = np.where(known, weight, self.unknown(weight[known]))
        self.may_move = sheddable & known
        self.usage = dict(zip(cluster.brokers.names, broker_usage(cluster, params.weights).tolist(), strict=True))
        self.order = self.ordered()
        self.names = self.order.consumers(sorted(name for name in cluster.brokers.names if self.takes_part(name)))
        self.fixed = fixed_weights(cluster.traits)
        self.rows = np.array([cluster.brokers.index[name] for name in self.names], dtype=np.int64)
        self.owned = [cluster.bundles.owned_by(row) for row in self.rows.tolist()]
        self.books = [fsum(self.weight[owned].tolist()) for owned in self.owned]  # the same for any order of rows

    def unknown(self, known: FloatArray) -> float:
        """The weight of a bundle that was never measured: the average weight, or 0 as in Hermes."""
        return fsum(known.tolist()) / len(known) if self.corrected and len(known) else 0.0

    def ordered(self) -> Order:
        """The order in which brokers and bundles are visited."""
        names = self.cluster.bundles.names
        if self.params.iteration is Iteration.JAVA:
            return JavaBundles(names)
        return SortedBundles(names, self.weight, ties_only=self.corrected)

    def takes_part(self, name: str) -> bool:
        """Whether a broker takes part: always, except in the corrected form with `Scoring` if its usage is unknown."""
        return isfinite(self.usage[name]) or not self.corrected or self.params.target_weights is Law.AVERAGE

    def aimed(self, scores: Mapping[str, AverageScore]) -> Targets:
        """The target weights."""
        books = dict(zip(self.names, self.books, strict=True))
        loads = {name: NodeLoad(self.usage[name] if isfinite(self.usage[name]) else UNDEFINED) for name in self.names}
        rule = self.params.rule(self.fixed)
        return target_weights.update(books, loads, scores, round(self.cluster.now * 1000), rule, reported=books)

    def smoothed(
        self, errors: Mapping[str, float], before: FloatArray, scores: Mapping[str, AverageScore]
    ) -> FloatArray:
        """The averages of the brokers' errors (n,). A new broker starts at 0, which needs no correction."""
        now, window = self.cluster.now * 1000, seconds(self.params.window) * 1000
        alpha = [smoothing(now - scores[name].at, window) if name in scores else 0.0 for name in self.names]
        latest = [errors.get(name, 0.0) for name in self.names]
        steps = zip(np.nan_to_num(before).tolist(), latest, alpha, strict=True)
        return np.array([blended(*step) for step in steps])

    def side(self, errors: FloatArray, before: FloatArray) -> FloatArray:
        """The side of the mean on which brokers are (n,): 1 less used, -1 more, 0 within the dead band.

        errors: the averages from `smoothed`. before: the last result. A broker that was outside must get within `BACK`
        of the band.
        """
        way = np.sign(errors)
        band = np.where(np.nan_to_num(before) == way, BACK, 1.0) * self.params.dead_band
        return np.where(np.abs(errors) * 100 > band, way, 0.0)

    def on_side(self, side: FloatArray, way: int, errors: Mapping[str, float]) -> list[bool]:
        """The brokers (mask, n) on the side `way`: -1 to relieve, 1 to fill; and all brokers with a fixed weight."""
        there = (side == way).tolist()
        return [name not in errors or is_there for name, is_there in zip(self.names, there, strict=True)]

    def averaging(self, found: Targets, averages: FloatArray) -> HeldBack | None:
        """The entry for the broker that waits for its average and is furthest from the mean now; None if none waits.

        averages: the averages of the errors.
        """
        waiting = {c: text for c, name in enumerate(self.names) if (text := self.waits(c, name, found, averages))}
        if not waiting:
            return None
        furthest = max(waiting, key=lambda c: abs(found.errors[self.names[c]]))
        return HeldBack("", Reason.AVERAGING, waiting[furthest])

    def waits(self, consumer: int, name: str, found: Targets, averages: FloatArray) -> str:
        """Text with the average that a broker outside the dead band waits for; empty if it waits for none.

        averages: the averages of the errors; empty with `Java`: Hermes waits only for target weights.
        """
        error, band = found.errors.get(name, 0.0) * 100, self.params.dead_band
        if abs(error) <= band:
            return ""
        way = -1 if error < 0 else 1
        where = "above" if error < 0 else "below"
        difference = f"{name} is {abs(error):.1f} points {where} the mean usage now"
        if len(averages) and (average := averages[consumer] * 100 * way + 0.0) <= band:
            minutes = seconds(self.params.window) / 60 * log((abs(error) - average) / (abs(error) - band))
            left = counted(max(1, ceil(minutes)), "minute")
            needed = f"more than {band:g} are needed (weightedBalancer.deadBand), in {left} if it lasts"
            return f"{difference}, {average:.1f} on average over {self.params.window}: {needed}"
        book, target = self.books[consumer], found.weights[name]
        apart = (target - book) * 100 * way / target if book > 0 and target > 0 else self.params.min_change
        if apart >= self.params.min_change:
            return ""
        follows = f"its target weight, which follows over {self.params.window}"
        needed = f"{self.params.min_change:g} % are needed (weightedBalancer.minChange)"
        return f"{difference}, and {apart:.1f} % {where} {follows}: {needed}"

    def balanced(self, *, at_rest: bool) -> HeldBack:
        """The entry when no broker is far enough from the others. at_rest: whether usage alone shows that."""
        if at_rest:
            detail = f"no broker's usage is on average {self.params.dead_band:g} points from the mean"
        else:
            detail = f"no broker is {self.params.min_change:g} % above its target weight"
        return HeldBack("", Reason.BALANCED, detail)

    def relieved(
        self, found: Targets, gives: list[bool], asks: list[bool]
    ) -> tuple[tuple[Unload, ...], tuple[HeldBack, ...]]:
        """The moves, and the brokers above their targets without a possible move."""
        weights = [found.weights[name] for name in self.names]
        givers = [c for c in range(len(self.books)) if not gives or gives[c]]
        above = [c for c in givers if self.is_above(self.books[c], weights[c])]
        unloads = self.unloads(weights, gives, asks) if above or any(asks) or not self.corrected else ()
        relieved = {unload.broker for unload in unloads}
        return unloads, tuple(self.left(c, weights[c]) for c in above if int(self.rows[c]) not in relieved)

    def is_above(self, book: float, target: float) -> bool:
        """Whether a broker is so far above its target that it should be relieved."""
        return book > target and (book - target) * 100 >= self.params.min_change * target

    def unloads(self, weights: list[float], gives: list[bool], asks: list[bool]) -> tuple[Unload, ...]:
        """The moves that bring the brokers towards these target weights."""
        cluster, brokers = self.cluster, self.cluster.brokers
        stable = self.may_move & cooled(cluster, seconds(self.params.stabilization))
        ledger = Ledger(len(self.names), self.weight, stable, self.order)
        ledger.movable = self.may_move
        for consumer, owned in enumerate(self.owned):
            ledger.open(consumer, self.arrived(owned), self.books[consumer])
        aim = Aim(
            targets=weights,
            limit=-(-sum(map(len, self.owned)) // len(self.owned)),
            min_change=self.params.min_change,
            spread=self.params.spread_percent / 100,
            receives=(brokers.ready & brokers.schedulable)[self.rows].tolist(),
            gives=gives,
            asks=asks,
        )
        (corrected_pass if self.corrected else original_pass)(ledger, aim)
        givers = set(self.rows[gives].tolist() if gives else self.rows.tolist())
        return tuple(
            replace(
                of, fixed=self.is_fixed(of), reason=Reason.OVERLOADED if of.broker in givers else Reason.UNDERLOADED
            )
            for of in unloads_of(ledger.transfers, self.rows)
        )

    def is_fixed(self, unload: Unload) -> bool:
        """Whether the source or the destination of an unload has a fixed weight."""
        names = self.cluster.brokers.names
        return any(names[end] in self.fixed for end in (unload.broker, unload.destination))

    def arrived(self, owned: IntArray) -> IntArray:
        """A broker's bundles in their assumed order of arrival, which matters only for hash sets."""
        return by_name(owned, self.cluster.bundles.names) if self.params.iteration is Iteration.JAVA else owned

    def left(self, consumer: int, target: float) -> HeldBack:
        """Why nothing leaves a broker above its target weight."""
        owned = self.owned[consumer]
        reason, why = Reason.BELOW_MINIMUM, "no bundle or swap of bundles helps both brokers"
        if not self.may_move[owned].any():
            reason, why = Reason.NO_BUNDLES, "none of its bundles may leave"
        elif not (self.may_move & cooled(self.cluster, seconds(self.params.stabilization)))[owned].any():
            reason, why = Reason.COOL_DOWN, "all of its bundles moved recently"
        elif len(owned) == 1:
            reason, why = Reason.SOLE_BUNDLE, "it has a single bundle: split it"
        share = (
            f"{(self.books[consumer] / target - 1) * 100:.0f} % above its target weight"
            if target
            else "its target weight is 0"
        )
        return HeldBack(self.names[consumer], reason, f"{share}: {why}")
