"""The guard: which brokers may shed and receive, which bundles may move, and how many moves are left.

All strategies share it. Everything that the guard rules out carries a `Reason`. Caps count a whole decision: a child
of a split that leaves its parent's owner counts as a move, so splits and shedding share the caps of a broker.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from trimtab_strategies.hash_ring import is_monitoring
from trimtab_strategies.model import NO_POLICY, ClusterLoad, HeldBack, Reason, counted
from trimtab_strategies.model.cluster_load import BoolArray, FloatArray, IntArray, somewhere
from trimtab_strategies.params import as_duration
from trimtab_strategies.usage import MOVING

_CODES = tuple(Reason)

_CODE_OF = {reason: np.int8(code) for code, reason in enumerate(_CODES)}


@dataclass(frozen=True, slots=True)
class MoveLimits:
    """Limits that no strategy may exceed.

    cool_down:            a bundle that moved may move again after more than these seconds.
    max_moves_per_cycle:  moves in one decision; None: see `cycle_cap`.
    max_moves_per_hour:   moves in any hour; None: see `hour_cap`.
    max_splits_per_cycle: splits in one decision.
    max_moves_per_broker: moves from, and moves to, one broker in one decision.
    min_trusted_brokers:  ratio 0-1 of the ready brokers whose data must be trusted.
    max_lost_brokers:     ratio 0-1 of the brokers that may be not ready.
    ramp_up:              seconds after its start in which a broker receives fewer bundles; 0: none.
    """

    cool_down: float = 1800.0
    max_moves_per_cycle: int | None = None
    max_moves_per_broker: int = 10
    max_moves_per_hour: int | None = None
    max_splits_per_cycle: int = 10
    min_trusted_brokers: float = 0.75
    max_lost_brokers: float = 0.4
    ramp_up: float = 0.0

    def cycle_cap(self, brokers: int) -> int:
        """Maximum number of moves in one decision: by default twice the number of brokers, at least 20."""
        return max(20, 2 * brokers) if self.max_moves_per_cycle is None else self.max_moves_per_cycle

    def hour_cap(self, brokers: int) -> int:
        """Maximum number of moves in any hour: by default 20 times the number of brokers, at least 200."""
        return max(200, 20 * brokers) if self.max_moves_per_hour is None else self.max_moves_per_hour


class Verdict:
    """Which rows pass, and for each other row the first reason that ruled it out."""

    def __init__(self, count: int) -> None:
        """Start with `count` rows that all pass."""
        self._code: npt.NDArray[np.int8] = np.full(count, -1, dtype=np.int8)

    @property
    def allowed(self) -> BoolArray:
        """Which rows pass."""
        passed: BoolArray = self._code < 0
        return passed

    def reason(self, row: int) -> Reason | None:
        """Why a row does not pass; None if it does."""
        code = self._code[row]
        return _CODES[code] if code >= 0 else None

    def reasons(self) -> list[Reason | None]:
        """For each row why it does not pass; None where it does."""
        return [_CODES[code] if code >= 0 else None for code in self._code.tolist()]

    def counts(self) -> Mapping[Reason, int]:
        """How many rows each reason held back."""
        return Counter(_CODES[code] for code in self._code[self._code >= 0].tolist())

    def rule_out(self, rows: BoolArray, reason: Reason) -> Verdict:
        """A verdict that also rules out these rows (mask) for `reason`. Earlier reasons stay."""
        if not somewhere(rows):
            return self
        after = Verdict(0)
        after._code = np.where(rows & self.allowed, _CODE_OF[reason], self._code)
        return after

    def narrowed(self, rows: IntArray, other: Verdict) -> Verdict:
        """A verdict that also rules out what `other` rules out. other: a verdict on `rows` (k) only."""
        after = Verdict(0)
        after._code = self._code.copy()
        after._code[rows] = np.where(after._code[rows] < 0, other._code, after._code[rows])
        return after


@dataclass(frozen=True, slots=True)
class Guarded:
    """The bundles and brokers that a decision may use.

    sheddable:   bundles (m) that may leave their owner.
    may_shed:    brokers (n) that take part in the comparison and may give load away.
    may_receive: brokers (n) that may receive bundles.
    refusal:     why this cycle moves nothing, or None.
    budget:      number of moves left. cap: the cap that sets it.
    receives:    maximum number of moves (n,) to each broker, see `receivable`.
    """

    sheddable: Verdict
    may_shed: Verdict
    may_receive: Verdict
    refusal: HeldBack | None
    budget: int
    cap: Reason
    receives: IntArray
    held_back: tuple[HeldBack, ...] = field(default=())


def guard(cluster: ClusterLoad, limits: MoveLimits, *, moved_last_hour: int) -> Guarded:
    """Apply `limits` to a snapshot of the cluster (pending moves counted as landed)."""
    may_shed = trusted_brokers(cluster)
    may_receive = may_shed.rule_out(~cluster.brokers.schedulable, Reason.UNSCHEDULABLE)
    sheddable = movable_bundles(cluster, limits)
    left_this_hour = max(0, limits.hour_cap(len(cluster.brokers)) - moved_last_hour)
    per_cycle, receives = limits.cycle_cap(len(cluster.brokers)), receivable(cluster, limits)
    return Guarded(
        sheddable=sheddable,
        may_shed=may_shed,
        may_receive=may_receive,
        refusal=_refusal(cluster, limits, may_shed),
        budget=min(per_cycle, left_this_hour),
        cap=Reason.HOUR_CAP if left_this_hour < per_cycle else Reason.CYCLE_CAP,
        receives=receives,
        held_back=(
            *_brokers_held_back(cluster, may_receive),
            *_ramping_up(cluster, limits, receives),
            *_bundles_held_back(sheddable, limits),
        ),
    )


def trusted_brokers(cluster: ClusterLoad) -> Verdict:
    """The brokers whose load can be compared: ready, trusted, and measured in every resource that moves with a bundle.

    A resource for which no broker has data does not count. If only some brokers have data for a resource, the other
    brokers are ruled out.
    """
    brokers = cluster.brokers
    usage, limit = brokers.usage[:, MOVING], brokers.limit[:, MOVING]
    known = (np.isfinite(usage) & np.isfinite(limit)) | (limit <= 0)
    believed = brokers.ready & brokers.trusted
    required: BoolArray = np.logical_or.reduce(known[believed], axis=0)
    complete = np.logical_and(known[:, required].all(axis=1), required.any())
    verdict = _with_doubtful_data(Verdict(len(brokers)).rule_out(~brokers.ready, Reason.NOT_READY), cluster)
    verdict = verdict.rule_out(~np.isfinite(brokers.age) | (brokers.trusted & ~complete), Reason.NO_LOAD_DATA)
    verdict = verdict.rule_out(~brokers.trusted & known.all(axis=1), Reason.OUT_DATED_DATA)
    traffic = (brokers.traffic < 0) | np.isinf(brokers.traffic)
    impossible = np.logical_or((usage < 0).any(axis=1), traffic.any(axis=1))
    return verdict.rule_out(~brokers.trusted | impossible, Reason.UNTRUSTED)


def _with_doubtful_data(verdict: Verdict, cluster: ClusterLoad) -> Verdict:
    """`verdict`, with untrusted brokers ruled out for the reason that the load source gave."""
    brokers, doubts = cluster.brokers, cluster.quality.doubts
    reasons = [doubts[name].reason if name in doubts else None for name in brokers.names]
    for reason in sorted({reason for reason in reasons if reason is not None}):
        rows = np.array([other is reason for other in reasons], dtype=bool)
        verdict = verdict.rule_out(rows & ~brokers.trusted, reason)
    return verdict


def movable_bundles(cluster: ClusterLoad, limits: MoveLimits) -> Verdict:
    """The bundles that may move: owned, not pinned, not moving, not just moved, and measured.

    Brokers' heartbeat bundles stay, and so do those of namespaces that are excluded from balancing.
    """
    bundles = cluster.bundles
    verdict = Verdict(len(bundles)).rule_out(bundles.owner < 0, Reason.UNOWNED)
    verdict = verdict.rule_out(bundles.pinned, Reason.PINNED)
    verdict = verdict.rule_out(bundles.in_flight, Reason.IN_FLIGHT)
    for reason in sorted(set(cluster.withheld.values())):
        held = [
            bundles.index[name] for name, why in cluster.withheld.items() if why is reason and name in bundles.index
        ]
        verdict = verdict.rule_out(np.isin(np.arange(len(bundles)), held), reason)
    since = cluster.now - bundles.last_unload
    # a time in the future comes from a wrong clock: it must not hold a bundle until then
    verdict = verdict.rule_out((since <= limits.cool_down) & (since >= -limits.cool_down), Reason.COOL_DOWN)
    excluded = _excluded(cluster)
    if somewhere(excluded):
        verdict = verdict.rule_out(excluded[bundles.namespace], Reason.EXCLUDED)
    return verdict.rule_out(~measured(cluster), Reason.NO_LOAD_DATA)


def _excluded(cluster: ClusterLoad) -> BoolArray:
    """The namespaces that are excluded from balancing."""
    excluded = _monitoring(cluster.namespaces)
    if not cluster.policies:
        return excluded
    policies = (cluster.policies.get(space, NO_POLICY) for space in cluster.namespaces)
    found: BoolArray = excluded | np.array([not policy.unload for policy in policies], dtype=bool)
    return found


@lru_cache(maxsize=4)
def _monitoring(namespaces: tuple[str, ...]) -> BoolArray:
    """Which of `namespaces` belong to brokers' own checks. Cached, because namespaces rarely change between cycles."""
    found = np.array([is_monitoring(space) for space in namespaces], dtype=bool)
    found.flags.writeable = False
    return found


def measured(cluster: ClusterLoad) -> BoolArray:
    """The bundles (m) whose short-term averages are all known and valid (not negative)."""
    short = cluster.bundles.short
    for known, found in tuple(_MEASURED):
        if known is short:
            return found
    found = _all_known(short)
    found.flags.writeable = False
    _MEASURED.append((short, found))
    return found


_MEASURED: deque[tuple[FloatArray, BoolArray]] = deque(maxlen=1)
"""The last result of `measured`. It is kept because all policies of a backtest share the same averages."""


def _all_known(short: FloatArray) -> BoolArray:
    if short.min(initial=0) >= 0 and short.max(initial=0) < np.inf:  # all are valid: NaN fails both tests
        return np.ones(len(short), dtype=bool)
    known = np.isfinite(short) & (short >= 0)
    every: BoolArray = known[:, 0].copy()
    for column in known.T[1:]:  # column by column: faster than `all` over the rows
        every &= column
    return every


def mass_failure(lost: int, count: int, limits: MoveLimits) -> bool:
    """Whether so many of `count` brokers are lost that nothing may move. A single lost broker is no mass failure."""
    return lost > 1 and lost / count > limits.max_lost_brokers


def _refusal(cluster: ClusterLoad, limits: MoveLimits, may_shed: Verdict) -> HeldBack | None:
    brokers = cluster.brokers
    count, ready = len(brokers), int(brokers.ready.sum())
    trusted = int(may_shed.allowed.sum())
    if mass_failure(count - ready, count, limits):
        bound = f"more than {limits.max_lost_brokers:.0%} (limits.maxLostBrokersPercent)"
        return HeldBack("", Reason.MASS_FAILURE, f"{count - ready} of {count} brokers are not ready, {bound}")
    if ready and trusted / ready < limits.min_trusted_brokers:
        bound = f"fewer than {limits.min_trusted_brokers:.0%} (limits.minTrustedBrokersPercent)"
        return HeldBack("", _main_doubt(may_shed), f"{trusted} of {ready} ready brokers have trusted data, {bound}")
    if trusted < 2:  # noqa: PLR2004 - a comparison needs two
        return HeldBack("", Reason.NO_BROKERS, f"{trusted} of {count} brokers can take part: two are needed to compare")
    return _partial(cluster, limits)


def _main_doubt(may_shed: Verdict) -> Reason:
    """The most common reason for which a broker's data is not trusted."""
    doubts = {reason: n for reason, n in may_shed.counts().items() if reason is not Reason.NOT_READY}
    return max(doubts, key=lambda reason: (doubts[reason], reason))


def _partial(cluster: ClusterLoad, limits: MoveLimits) -> HeldBack | None:
    """The refusal when the source's answer was incomplete and too many bundles have no data, or None.

    The brokers of a query that failed are untrusted anyway. This check is about bundles: if many are not measured, the
    measured ones would seem to cause their broker's whole load. The bound is the same as for brokers.
    """
    if not cluster.quality.partial:
        return None
    owned = cluster.bundles.owner >= 0
    count = int((owned & measured(cluster)).sum())
    total = int(owned.sum())
    if count >= limits.min_trusted_brokers * total:
        return None
    what = "; ".join(
        [f"{part}: {error}" for part, error in cluster.quality.failed[:3]] + list(cluster.quality.warnings[:3])
    )
    return HeldBack("", Reason.PARTIAL_DATA, f"{count} of {total} bundles are measured ({what})")


def _brokers_held_back(cluster: ClusterLoad, may_receive: Verdict) -> list[HeldBack]:
    """One entry per broker that takes no bundles."""
    words = {
        Reason.NOT_READY: "not ready",
        Reason.NO_LOAD_DATA: "a resource that other brokers report was never measured here",
        Reason.OUT_DATED_DATA: "newest sample {:.0f} s old",
        Reason.UNTRUSTED: "its samples can't be right",
        Reason.UNSCHEDULABLE: "takes no bundles",
    }
    held_back = []
    for row in np.flatnonzero(~may_receive.allowed).tolist():
        if (reason := may_receive.reason(row)) is not None:
            name, doubt = cluster.brokers.names[row], cluster.quality.doubts.get(cluster.brokers.names[row])
            detail = (
                doubt.text
                if doubt is not None and doubt.reason is reason
                else words[reason].format(cluster.brokers.age[row])
            )
            held_back.append(HeldBack(name, reason, detail))
    return held_back


def _ramping_up(cluster: ClusterLoad, limits: MoveLimits, most: IntArray) -> list[HeldBack]:
    """One entry per broker that receives fewer bundles because it started lately. most: moves (n,) to each."""
    rows = np.flatnonzero(most < limits.max_moves_per_broker).tolist()
    return [
        HeldBack(
            cluster.brokers.names[row],
            Reason.RAMPING_UP,
            f"started {max(0.0, cluster.now - cluster.traits_of(row).started):.0f} s ago: receives at most "
            f"{counted(int(most[row]), 'bundle')} in this cycle (limits.rampUp)",
        )
        for row in rows
    ]


def _bundles_held_back(sheddable: Verdict, limits: MoveLimits) -> list[HeldBack]:
    """One entry per reason, with the number of bundles."""
    words = {
        Reason.PINNED: "pinned to their owner",
        Reason.IN_FLIGHT: "still moving",
        Reason.DISRUPTION_BUDGET: "whose move exceeds what a disruption budget has left",
        Reason.LAST_PRIORITY: "in namespaces with the priority Last",
        Reason.COOL_DOWN: f"moved less than {as_duration(limits.cool_down)} ago",
        Reason.NO_LOAD_DATA: "never measured",
        Reason.EXCLUDED: "in namespaces that are left out of balancing",
        Reason.UNOWNED: "without an owner: only an owned bundle can move",
    }
    counts = sheddable.counts().items()
    return [HeldBack("", reason, f"{counted(count, 'bundle')} {words[reason]}", count) for reason, count in counts]


def receivable(cluster: ClusterLoad, limits: MoveLimits) -> IntArray:
    """Maximum moves (n,) to each broker in one decision: `limits.max_moves_per_broker`, or fewer while it ramps up.

    A broker starts with cold caches. The number grows from 1 in proportion to the time since its start, until
    `limits.ramp_up` has passed. If every ready broker started within this time, the whole cluster is new, and no broker
    ramps up.
    """
    if limits.ramp_up <= 0:
        return np.full(len(cluster.brokers), max(1, limits.max_moves_per_broker))
    age = np.maximum(cluster.now - cluster.started, 0.0)
    young = age < limits.ramp_up  # an unknown start is NaN, and not young
    if not somewhere(cluster.brokers.ready & ~young):
        young[:] = False
    most = limits.max_moves_per_broker
    part = np.divide(age, limits.ramp_up, out=np.ones(len(age)), where=young)
    receives: IntArray = np.maximum(1, np.floor(most * part)).astype(np.int64)
    return receives


class MoveCaps:
    """The moves that one decision has left; brokers are rows."""

    def __init__(self, brokers: int, *, budget: int, per_broker: int, receives: IntArray | None = None) -> None:
        """Allow `budget` moves, at most `per_broker` from each broker and at most `per_broker` to each.

        brokers: number of brokers. receives: maximum number of moves (n,) to each broker (`receivable`), if it is below
        `per_broker`. Drains may exceed it.
        """
        self._budget, self._per_broker = budget, per_broker
        self._receives = np.full(brokers, per_broker) if receives is None else np.minimum(receives, per_broker)
        self._sent, self._received = np.zeros(brokers, dtype=np.int64), np.zeros(brokers, dtype=np.int64)

    @property
    def full(self) -> IntArray:
        """The brokers (rows) that receive nothing more."""
        return np.flatnonzero(self._received >= self._receives)

    @property
    def full_for_drains(self) -> IntArray:
        """The brokers (rows) that receive nothing more from a broker that is emptied. Ramping up sets no limit here."""
        return np.flatnonzero(self._received >= self._per_broker)

    def allow(self, count: int = 1) -> bool:
        """Whether `count` more moves may be made."""
        return count <= self._budget

    def may_send(self, broker: int, count: int = 1) -> bool:
        """Whether `count` more bundles may leave a broker (row)."""
        return bool(self._sent[broker] + count <= self._per_broker)

    def may_receive(self, broker: int, count: int = 1) -> bool:
        """Whether a broker (row) may receive `count` more bundles."""
        return bool(self._received[broker] + count <= self._receives[broker])

    def count(self, source: int, destination: int) -> None:
        """Count one move."""
        self._budget -= 1
        self._sent[source] += 1
        self._received[destination] += 1
