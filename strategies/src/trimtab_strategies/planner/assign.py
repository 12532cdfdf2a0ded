"""Assign an owner to bundles that no broker serves. This is not balancing, so no cap and no cool-down applies.

The placement chooses among the brokers with load data. A bundle that was never measured counts as an average one.
Otherwise a hundred new bundles would all go to the broker that is least used now. On a cluster without trusted data,
such as a new one, each bundle goes to the broker with the fewest bundles.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from trimtab_strategies.filters import BrokerSelection
from trimtab_strategies.guard import MoveLimits, Verdict, measured, trusted_brokers
from trimtab_strategies.model import CPU, ClusterLoad, Decision, HeldBack, Memory, Move, Plan, Reason, counted
from trimtab_strategies.model.cluster_load import FloatArray, IntArray
from trimtab_strategies.planner.candidates import DestinationChoice, LeastLoaded, selection_on
from trimtab_strategies.planner.prediction import OVERLOAD_LINE, PredictedLoad
from trimtab_strategies.protocols import HeaviestFirst, Placement, forget_others
from trimtab_strategies.usage import (
    Weights,
    attributed,
    drivers,
    measured_percent,
    percent,
    sum_by_broker,
    with_moves_in_flight,
)


def assign(  # noqa: PLR0917 - the arguments of `decide`
    cluster: ClusterLoad,
    bundles: IntArray,
    placement: Placement,
    limits: MoveLimits,
    memory: Memory,
    rng: np.random.Generator,
    reason: Reason,
    selection: BrokerSelection | None = None,
    restarted: Collection[str] = (),
) -> Decision:
    """Give each of `bundles` (rows) an owner among the brokers that are ready and schedulable.

    The placement decides among brokers with trusted data. If less than `limits.min_trusted_brokers` (ratio) of the
    ready brokers have such data, the placement is not asked, and all brokers count as equally good. Among equally good
    brokers `rng` picks one with the fewest bundles. `reason` is the reason of every move. A bundle that no broker may
    have (by `selection`, or by the rules of its namespace) waits.

    restarted: names of the brokers that have already restarted in a rolling restart that still goes on. A bundle goes
    to the least used of these brokers that may have it and that stay below `OVERLOAD_LINE`: any other broker restarts
    soon, and the bundle would have to move again. If there is none, the placement decides.
    """
    landed = believed(with_moves_in_flight(cluster), restarted)
    measured_brokers = trusted_brokers(landed)
    trusted = _enough(measured_brokers, cluster, limits)
    may_receive = np.flatnonzero(cluster.brokers.ready & cluster.brokers.schedulable)
    candidates = may_receive[measured_brokers.allowed[may_receive]] if trusted else may_receive
    before = measured_percent(cluster.brokers.usage, cluster.brokers.limit)
    predicted = PredictedLoad(landed, Weights())
    if not len(candidates):
        text = f"{len(bundles)} bundles wait: no broker is ready and schedulable"
        held_back = HeldBack("", Reason.NO_CANDIDATE, text, len(bundles))
        return Decision(Plan((), (held_back,) if len(bundles) else (), cluster.brokers.names, before, before), memory)
    choosing = DestinationChoice(placement if trusted else None, candidates, selection_on(landed, selection))
    first = np.array([row for row in candidates.tolist() if cluster.brokers.names[row] in restarted], dtype=np.int64)
    housing = _Housing(landed, choosing, predicted, rng, memory.placement, first)
    if isinstance(placement, HeaviestFirst):
        load, _ = expected_load(landed, bundles)
        bundles = bundles[np.argsort(-load[:, CPU], kind="stable")]
    moves = tuple(housing.moves(bundles, reason))
    plan = Plan(moves, (*housing.waiting(), *choosing.problems()), cluster.brokers.names, before, predicted.percent())
    return Decision(plan, replace(memory, placement=forget_others(housing.memory, cluster.brokers.names)))


def _enough(measured_brokers: Verdict, cluster: ClusterLoad, limits: MoveLimits) -> bool:
    """Whether enough ready brokers have trusted data, and at least one such broker may receive bundles."""
    trusted, ready = measured_brokers.allowed, cluster.brokers.ready
    receivers = bool((trusted & cluster.brokers.schedulable).any())
    return receivers and int(trusted.sum()) >= limits.min_trusted_brokers * int(ready.sum())


@dataclass
class _Housing:
    """State of one assignment: the prediction, the bundle counts and the placement's memory so far."""

    cluster: ClusterLoad
    choosing: DestinationChoice
    predicted: PredictedLoad
    rng: np.random.Generator
    memory: Mapping[str, Any]
    first: IntArray
    _waiting: dict[Reason, list[str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._counts = np.bincount(self.cluster.bundles.owner + 1, minlength=len(self.cluster.brokers) + 1)[1:]

    def moves(self, bundles: IntArray, reason: Reason) -> Iterator[Move]:
        """A move to its new owner for each bundle (rows) that gets one, in the given order."""
        load, traffic = expected_load(self.cluster, bundles)
        for k, bundle in enumerate(bundles.tolist()):
            best = self.best(bundle, load[k])
            if len(best):
                yield self.move(bundle, self.fewest(best), load[k], traffic[k], reason)
            else:
                self._waiting.setdefault(self.choosing.why_none(bundle), []).append(self.cluster.bundles.names[bundle])

    def waiting(self) -> tuple[HeldBack, ...]:
        """The bundles that no broker may have, an entry per reason."""
        return tuple(
            HeldBack(
                "",
                why,
                f"{counted(len(names), 'bundle')} without an owner, first {names[0]}: no broker may have it",
                len(names),
            )
            for why, names in self._waiting.items()
        )

    def move(self, bundle: int, chosen: int, load: FloatArray, traffic: FloatArray, reason: Reason) -> Move:
        """The move of a bundle to the `chosen` broker (row). Counts the bundle there, with its expected load."""
        self._counts[chosen] += 1
        self.memory = self.choosing.chosen(bundle, chosen, self.predicted.cluster, self.memory)
        self.predicted.add(chosen, load, traffic)
        owner = self.cluster.bundles.owner[bundle]
        names, limit = self.cluster.brokers.names, self.cluster.brokers.limit
        points = float(percent(load, limit[chosen])[CPU])
        return Move(
            self.cluster.bundles.names[bundle], names[owner] if owner >= 0 else "", names[chosen], reason, points
        )

    def best(self, bundle: int, load: FloatArray) -> IntArray:
        """The best candidates for a bundle with this `load` (5,): several if they are equally good."""
        if len(self.first):
            preferred = np.intersect1d(self.first, self.choosing.without_preferences().candidates(bundle))
            if len(fitting := self.predicted.fitting(preferred, load, OVERLOAD_LINE)):
                return LeastLoaded(self.predicted).best(self.cluster, bundle, fitting, self.memory).brokers
        choice = self._with_room(bundle, load).best(bundle, self.predicted.cluster, self.memory)
        self.memory = choice.memory
        return choice.brokers

    def _with_room(self, bundle: int, load: FloatArray) -> DestinationChoice:
        """The choice among brokers in the zone of the bundle's namespace, or among all when none of those has room."""
        if not self.cluster.policies or not self.cluster.policy_of(bundle).zone:
            return self.choosing
        full = self.predicted.with_load(self.choosing.candidates(bundle), load) > OVERLOAD_LINE  # unknown: not full
        return self.choosing.without_preferences() if full.all() else self.choosing

    def fewest(self, brokers: IntArray) -> int:
        """One of `brokers` (rows): at random among those with the fewest bundles."""
        counts = self._counts[brokers]
        tied = brokers[counts == counts.min()]
        return int(tied[self.rng.integers(len(tied))])


def believed(cluster: ClusterLoad, restarted: Collection[str]) -> ClusterLoad:
    """The cluster with an estimated load for those `restarted` brokers (names) whose data is not trusted yet.

    The load of such a broker is the expected load of its bundles. Limits that it lacks are medians of trusted brokers.
    """
    if not restarted:
        return cluster
    brokers, trusted = cluster.brokers, trusted_brokers(cluster).allowed
    young = np.array([name in restarted for name in brokers.names], dtype=bool) & brokers.ready & ~trusted
    if not young.any() or not trusted.any():
        return cluster
    owned = np.flatnonzero((cluster.bundles.owner >= 0) & young[cluster.bundles.owner])
    load, traffic = expected_load(cluster, owned)
    owner, count = cluster.bundles.owner[owned], len(brokers)
    usual = np.median(brokers.limit[trusted], axis=0)
    limit = np.where(np.isfinite(brokers.limit) & (brokers.limit > 0), brokers.limit, usual)
    guessed = replace(
        brokers,
        usage=np.where(young[:, np.newaxis], sum_by_broker(owner, load, count), brokers.usage),
        traffic=np.where(young[:, np.newaxis], sum_by_broker(owner, traffic, count), brokers.traffic),
        limit=np.where(young[:, np.newaxis], limit, brokers.limit),
        age=np.where(young, 0.0, brokers.age),
        trusted=brokers.trusted | young,
    )
    return replace(cluster, brokers=guessed)


def expected_load(cluster: ClusterLoad, bundles: IntArray) -> tuple[FloatArray, FloatArray]:
    """Usage (k, 5) and traffic (k, 4) that `bundles` (rows, k) will add to their next broker.

    The load of a measured bundle is what its traffic causes on average over all trusted brokers. An unmeasured bundle
    counts as an average measured one. Both results are 0 as long as nothing has been measured.
    """
    known = measured(cluster)
    short = np.where(known[:, np.newaxis], cluster.bundles.short, 0.0)
    traffic = np.where(known[bundles, np.newaxis], short[bundles], short.sum(axis=0) / max(1, int(known.sum())))
    believed = trusted_brokers(cluster).allowed
    owned = np.flatnonzero((cluster.bundles.owner >= 0) & known)
    owned = owned[believed[cluster.bundles.owner[owned]]]
    drive = drivers(cluster)
    total = drive[owned].sum(axis=0)
    caused = attributed(cluster, owned).sum(axis=0)
    rate = np.divide(caused, total, out=np.zeros(len(caused)), where=total > 0)
    mean_drive = drive[known].sum(axis=0) / max(1, int(known.sum()))
    return np.where(known[bundles, np.newaxis], drive[bundles], mean_drive) * rate, traffic
