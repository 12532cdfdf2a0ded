"""TransferShedder: the most used broker gives bundles to the least used one, and may take smaller ones in exchange.

Idea. When the brokers' usage differs too much for some cycles, sort the brokers by usage. The top one gives some of its
reported (heaviest) bundles directly to the lowest, the lighter ones first, until the two would meet in the middle. A
bundle that is too large still moves if the lowest broker can give enough back: a swap. Then come the next two brokers,
until the predicted spread is small enough.

Formula. u = weighted maximum of the resources' percent, heap included; L = history * L + (1 - history) * u, once per
snapshot; a, s = mean and standard deviation of L. A cycle is a hit in three cases: (1) s > target; (2) the lowest
broker has L < a * m, or its smoothed throughput is below m times that of the top broker (m = half the target, at most
0.5); (3) the top broker has L above the overload threshold and above a + target. It acts at the `hit_count`-th hit in a
row. The top broker gives T * (L_top - L_low) / 2 / L_top of its throughput T. After a swap the throughput of both must
be below T, that of the lowest at most that of the top, and that of the top below 3/4 of T.

When it helps. With large bundles, because it names destinations and swaps. It makes few moves per cycle, each with a
known destination. When it hurts. It uses only the few reported bundles. One broker that has just given bundles away
stops all shedding. In a large cluster a single hot broker hardly changes the deviation.

Compatibility. `Java` decides as Pulsar does, with the side effect of its debug mode (`debug_mode`) and all known
defects; `Corrected` fixes them. Two rules differ from Pulsar in both forms: a bundle that may not move now is not given
back in a swap either, and the lowest broker is chosen among those that may receive bundles. Brokers with equal usage
are ordered by name. The delay counts from the decision, because the shedder does not see when moves land.

Source. Pulsar 4.2.4 `org.apache.pulsar.broker.loadbalance.extensions.scheduler.TransferShedder`, with equal decisions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, Any

import numpy as np
from pydantic import Field

from trimtab_strategies.filters import BrokerSelection, Manager
from trimtab_strategies.model import RESOURCES, ClusterLoad, HeldBack, Reason, counted
from trimtab_strategies.model.cluster_load import BoolArray, FloatArray, IntArray
from trimtab_strategies.params import Compatibility, Defect, Duration, DurationOrZero, Percent, WeightedParams, seconds
from trimtab_strategies.protocols import Shedding, Unload, recall, remember
from trimtab_strategies.shedding.bundle_choice import carried, reported
from trimtab_strategies.shedding.transfer.matching import Loads, Spread, TransferCycle, TransferSettings
from trimtab_strategies.shedding.transfer.reports import Reports, SnapshotReports
from trimtab_strategies.usage import Weight, Weights, broker_usage, smooth


def current_throughput(cluster: ClusterLoad) -> FloatArray:
    """Current throughput of each broker (n,), in plus out, bytes/s; the sum over its bundles if it reports none."""
    total = reported(cluster)[1]
    known = np.isfinite(total)
    return total if known.all() else np.where(known, total, carried(cluster)[1])


class Survey:
    """The state of the brokers before a cycle."""

    def __init__(
        self, cluster: ClusterLoad, memory: Mapping[str, Any], *, delay: float, data_ttl: float, corrected: bool
    ) -> None:
        """Survey `cluster` with the `memory` of earlier cycles; delay and data_ttl (seconds) as in the parameters.

        `skip` is the reason to skip the cycle, or None. `order` holds the brokers (rows) from the least to the most
        used one. `rested` holds those whose delay is over. The time of their last move is removed from `memory`.
        """
        self.cluster, self.memory = cluster, memory
        self.delay, self.data_ttl, self.corrected = delay, data_ttl, corrected
        names = cluster.brokers.names
        usage, smoothed = recall(memory, "ema", names), recall(memory, "throughput", names)
        self.loads = Loads(usage, smoothed, current_throughput(cluster), cluster.brokers.schedulable)
        by_name = np.array(sorted(range(len(names)), key=names.__getitem__), dtype=np.int64)
        takes_part = np.isfinite(usage) & (cluster.brokers.ready if corrected else True)
        self._present = by_name[takes_part[by_name]]
        self._fresh = self._present[~_older(cluster.brokers.age[self._present], data_ttl)]
        self._resting = self._find_resting()
        self.skip = self._find_skip()
        self.order, self.spread = self._ordered() if self.skip is None else (by_name[:0], Spread(0, 0, 0, 0))

    def after(self, unloads: tuple[Unload, ...]) -> dict[str, Any]:
        """The memory after `unloads`: brokers that gave bundles away rest; if `corrected`, receivers rest, too."""
        unloaded = recall(self.memory, "unloaded", self.cluster.brokers.names)
        for unload in unloads:
            unloaded[unload.broker] = self.cluster.now
            if self.corrected and unload.destination >= 0:
                unloaded[unload.destination] = self.cluster.now
        return remember(self.memory, "unloaded", self.cluster.brokers.names, unloaded)

    def _find_resting(self) -> IntArray:
        """Brokers with fresh data that still rest. Brokers that no longer rest are removed from the memory.

        As in Java, only those before the first resting broker are removed, unless `corrected`.
        """
        names, rows = self.cluster.brokers.names, self._fresh
        unloaded = recall(self.memory, "unloaded", names)
        # a time far in the future comes from a wrong clock: it must not stop the cluster until then
        unloaded[unloaded > self.cluster.now + self.delay] = 0
        elapsed = self.cluster.now - self.cluster.brokers.age[rows] - unloaded[rows]
        resting = np.round(elapsed * 1000) < np.round(self.delay * 1000)
        seen = len(rows) if self.corrected or not resting.any() else int(np.argmax(resting))
        self.rested: IntArray = rows[:seen][~resting[:seen] & np.isfinite(elapsed[:seen])]
        if len(self.rested):
            unloaded[self.rested] = np.nan
            self.memory = remember(self.memory, "unloaded", names, unloaded)
        found: IntArray = rows[resting]
        return found

    def _find_skip(self) -> HeldBack | None:
        """Why the whole cycle is skipped; None if it is not."""
        names, java = self.cluster.brokers.names, not self.corrected
        if len(self._resting) and (java or len(self._resting) == len(self._fresh)):
            who = names[self._resting[0]]
            text = f"{who} gave or took bundles less than {self.delay:g} s before its newest data"
            return HeldBack("", Reason.COOL_DOWN, text)
        if not len(self._fresh):
            if not len(self._present):
                return HeldBack("", Reason.NO_BROKERS, "no broker has load data")
            return HeldBack("", Reason.OUT_DATED_DATA, f"every broker's data is older than {self.data_ttl:g} s")
        missing = self.cluster.brokers.ready & ~np.isfinite(self.loads.usage)
        if java and missing.any():
            return HeldBack("", Reason.NO_LOAD_DATA, f"{names[int(np.argmax(missing))]} has no load data")
        return None

    def _ordered(self) -> tuple[IntArray, Spread]:
        """Brokers from the least to the most used, ties by name; and the spread over those with fresh data."""
        taking_part = self._fresh[~np.isin(self._fresh, self._resting)] if self.corrected else self._present
        order = taking_part[np.argsort(self.loads.usage[taking_part], kind="stable")]
        return order, Spread.of(self.loads.usage[self._fresh], exact=not self.corrected)


def _older(seconds: FloatArray, bound: float) -> BoolArray:
    """Whether more than `bound` seconds have passed, in whole milliseconds as in Pulsar."""
    passed: BoolArray = np.round(seconds * 1000) > np.round(bound * 1000)
    return passed


DEFECTS = (
    Defect(
        "Bundles that a swap gives back count only in debug mode. So later bundles and the deviation are judged by a"
        " wrong load.",
        "They always count.",
    ),
    Defect(
        "Each swap continues from where the last one stopped, so bundles that it skipped are never offered again.",
        "Each swap considers all reported bundles that the low broker still has.",
    ),
    Defect(
        "Brokers with outdated data, or no longer registered, count neither in the mean nor in the deviation, but still"
        " give and take.",
        "They take no part.",
    ),
    Defect("One registered broker without data stops every cycle.", "It takes no part."),
    Defect(
        "If the top broker's smoothed usage is 0, the wanted amount is 0 / 0: no bundle exceeds it, and all but one"
        " leave.",
        "A broker without usage gives nothing.",
    ),
    Defect("A tiny negative variance makes the deviation NaN, which is never too large.", "It counts as 0."),
    Defect(
        "One broker that gave bundles away during the delay stops the whole cycle. Brokers that took them never rest.",
        "Only brokers that gave or took bundles rest.",
    ),
    Defect(
        "Bundles are ordered by inbound bytes in coarse steps, then by outbound bytes in coarse steps, so the heaviest"
        " may be missing from the report.",
        "They are ordered by their throughput.",
    ),
    Defect("A balanced cluster is reported as HitCount.", "It is reported as Balanced."),
)
"""Known defects of the original."""


class TransferShedderParams(WeightedParams):
    """Parameters of TransferShedder."""

    memory_weight: Weight = 0
    """Factor on heap memory percent.
    Pulsar: loadBalancerMemoryResourceWeight"""
    target_deviation_percent: Annotated[float, Field(ge=0, le=1000)] = 25
    """Percentage points of standard deviation of the brokers' smoothed usage above which bundles move.
    Pulsar: loadBalancerBrokerLoadTargetStd in 0-1"""
    overload_threshold: Annotated[float, Field(gt=0, le=100)] = 85
    """Percent of smoothed usage above which a broker that is well above the average is overloaded.
    Pulsar: loadBalancerBrokerOverloadedThresholdPercentage"""
    history_percent: Percent = 90
    """Percent of the smoothed usage that comes from earlier snapshots; 0 uses only this snapshot.
    Pulsar: loadBalancerHistoryResourcePercentage in 0-1"""
    hit_count: Annotated[int, Field(ge=1)] = 4
    """Cycles in a row with a reason to act, including the one that acts. Pulsar's setting does not count that last
    cycle, so it is less by one.
    Pulsar: loadBalancerSheddingConditionHitCountThreshold in cycles before"""
    max_brokers: Annotated[int, Field(ge=1)] = 3
    """Maximum number of brokers that give bundles away in one cycle.
    Pulsar: loadBalancerMaxNumberOfBrokerSheddingPerCycle"""
    transfer: bool = True
    """Choose the destinations, and swap bundles. If false, the placement chooses the destinations, and nothing is
    swapped.
    Pulsar: loadBalancerTransferEnabled"""
    delay: DurationOrZero = "3m"
    """Time for which a broker rests after giving bundles away.
    Pulsar: loadBalanceSheddingDelayInSeconds in seconds"""
    data_ttl: Duration = "30m"
    """Time after which a broker's data is outdated.
    Pulsar: loadBalancerBrokerLoadDataTTLInSeconds in seconds"""
    top_bundles: Annotated[int, Field(ge=1)] = 10
    """Number of the heaviest bundles of each broker that are considered.
    Pulsar: loadBalancerMaxNumberOfBundlesInBundleLoadReport"""
    policy_bundles: bool = False
    """Also move bundles of namespaces with an isolation or anti-affinity policy.
    Pulsar: loadBalancerSheddingBundlesWithPoliciesEnabled"""
    excluded_namespaces: Annotated[tuple[str, ...], Field(max_length=1000)] = ()
    """Namespaces whose bundles stay where they are.
    Pulsar: loadBalancerSheddingExcludedNamespaces"""
    debug_mode: bool = False
    """Count the bundles that a swap gives back as moved load. Pulsar does so only in debug mode. The corrected form
    always does so.
    Pulsar: loadBalancerDebugModeEnabled"""
    compatibility: Compatibility = Compatibility.JAVA
    """Whether to keep Pulsar's known defects."""

    @property
    def weights(self) -> Weights:
        """The weights of all resources."""
        return super().weights._replace(memory=self.memory_weight)

    @property
    def corrected(self) -> bool:
        """Whether the known defects are fixed."""
        return self.compatibility is Compatibility.CORRECTED


@dataclass(frozen=True, slots=True)
class TransferOutcome:
    """What one cycle decided, and from which figures.

    rested:        brokers (rows) that may act again, because their delay is over.
    before, after: the spread of the brokers' usage; None if they were not compared.
    """

    shedding: Shedding
    rested: IntArray
    before: Spread | None = None
    after: Spread | None = None


def snapshot_reports(cluster: ClusterLoad, sheddable: BoolArray, params: TransferShedderParams) -> Reports:
    """The brokers' reports of this snapshot."""
    return SnapshotReports(
        cluster,
        sheddable,
        BrokerSelection(Manager.EXTENSIBLE).on(cluster),
        count=params.top_bundles,
        excluded=params.excluded_namespaces,
        with_policies=params.policy_bundles,
        in_steps=not params.corrected,
    )


@dataclass(frozen=True)
class TransferShedder:
    """See the module.

    Memory: ``hits``, cycles in a row with a reason to act; ``now``, the time of the last snapshot in the averages; and
    by broker ``ema`` (smoothed usage, ratio), ``throughput`` (smoothed, bytes/s) and ``unloaded`` (epoch seconds of the
    last unload).
    reports: makes the brokers' reports.
    """

    params: TransferShedderParams
    reports: Callable[[ClusterLoad, BoolArray, TransferShedderParams], Reports] = field(default=snapshot_reports)

    def shed(self, cluster: ClusterLoad, sheddable: BoolArray, memory: Mapping[str, Any]) -> Shedding:
        """Bundles and swaps that make the brokers' usage more equal, one `Unload` each, in the order of decision."""
        return self.outcome(cluster, sheddable, memory).shedding

    def outcome(self, cluster: ClusterLoad, sheddable: BoolArray, memory: Mapping[str, Any]) -> TransferOutcome:
        """The result of `shed`, and the spread of the brokers' usage before and after it."""
        p = self.params
        survey = Survey(
            cluster,
            self.averaged(cluster, memory),
            delay=seconds(p.delay),
            data_ttl=seconds(p.data_ttl),
            corrected=p.corrected,
        )
        memory = survey.memory
        if survey.skip is not None:
            return TransferOutcome(Shedding(held_back=(survey.skip,), memory=memory), survey.rested)
        before, reports = replace(survey.spread), self.reports(cluster, sheddable, self.params)
        cycle = TransferCycle(survey.loads, survey.order, survey.spread, self._settings(), reports)
        hits = int(memory.get("hits", 0)) + 1 if cycle.cause() is not None else 0
        memory = {**memory, "hits": hits}
        unloads = tuple(cycle.unloads()) if self._acts(hits) else ()
        if unloads:
            shedding = Shedding(unloads, memory={**survey.after(unloads), "hits": 0})
        else:
            why = self._nothing(cycle) if self._acts(hits) else self._waiting(cycle, hits)
            shedding = Shedding(held_back=(why,), memory=memory)
        return TransferOutcome(shedding, survey.rested, before, cycle.spread)

    def averaged(self, cluster: ClusterLoad, memory: Mapping[str, Any]) -> Mapping[str, Any]:
        """The memory with this snapshot in the averages. A snapshot never counts twice."""
        if memory.get("now") == cluster.now:
            return memory
        names, every = cluster.brokers.names, range(len(RESOURCES))
        usage = broker_usage(cluster, self.params.weights, every)
        for what, value in (("ema", usage), ("throughput", current_throughput(cluster))):
            known = np.where(np.isfinite(value), value, np.nan)
            after = smooth(recall(memory, what, names), known, self.params.history_percent / 100)
            memory = remember(memory, what, names, after)
        return {**memory, "now": cluster.now}

    def _settings(self) -> TransferSettings:
        p = self.params
        return TransferSettings(
            target=p.target_deviation_percent / 100,
            overload=p.overload_threshold / 100,
            max_brokers=p.max_brokers,
            transfer=p.transfer,
            counts_returned=p.debug_mode or p.corrected,
            rewinds=p.corrected,
            sheds_at_zero=not p.corrected,
        )

    def _acts(self, hits: int) -> bool:
        return hits >= self.params.hit_count

    def _waiting(self, cycle: TransferCycle, hits: int) -> HeldBack:
        reason = Reason.BALANCED if self.params.corrected and not hits else Reason.HIT_COUNT
        needed = f"{self.params.hit_count} are needed (transferShedder.hitCount)"
        state = f"cause to act in {counted(hits, 'cycle')} in a row, {needed}"
        state = state if hits else "close enough"
        return HeldBack("", reason, f"{state}: {self._spread(cycle)}")

    def _nothing(self, cycle: TransferCycle) -> HeldBack:
        if cycle.unreported:
            text = f"{counted(cycle.unreported, 'broker')} that should give bundles away reported none"
            return HeldBack("", Reason.NO_LOAD_DATA, text)
        if cycle.too_few:
            text = f"{counted(cycle.too_few, 'broker')} that should give bundles away had none that fit"
            return HeldBack("", Reason.NO_BUNDLES, text)
        return HeldBack("", Reason.HIT_COUNT, f"no broker to give and none to take: {self._spread(cycle)}")

    def _spread(self, cycle: TransferCycle) -> str:
        spread = cycle.spread
        return (
            f"usage {spread.mean * 100:.1f} % on average, deviation {spread.deviation * 100:.1f} points,"
            f" target {self.params.target_deviation_percent:g}"
            f" (transferShedder.targetDeviationPercent)"
        )
