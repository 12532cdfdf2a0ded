"""The result of a replay: usage of the brokers over time, moves, and the figures of both.

`fidelity` compares the replay of the policy that really ran with what really happened.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Self

import numpy as np

from trimtab_strategies.counterfactual.imbalance import HOT, busiest, range_of
from trimtab_strategies.counterfactual.recorded_cycle import RecordedCycle
from trimtab_strategies.model import ClusterLoad, Split
from trimtab_strategies.model.cluster_load import FloatArray
from trimtab_strategies.shedding.trim.plan import USUAL_GAP

_LONGEST = 2.0  # a cycle counts for at most this many usual intervals; the rest of a gap in the recording is left out
_HOUR = 3600.0


class Change(NamedTuple):
    """A move for balance, or off a drained broker.

    at: epoch seconds. clients: number of clients that it disconnected; NaN: unknown. gap: seconds for which it
    interrupted publishers.
    """

    at: float
    bundle: str
    source: str
    destination: str
    clients: float
    gap: float


@dataclass(frozen=True, slots=True)
class NamespaceFigures:
    """What a replay cost one namespace.

    moves: number of moves. clients: number of clients that they disconnected. silent: seconds for which they
    interrupted publishers.
    """

    moves: int
    clients: float
    silent: float


@dataclass(frozen=True, slots=True)
class Figures:
    """The figures of a replay.

    moves, again: moves for balance or off a drained broker; of these, moves of a bundle that had moved before.
    cut:    percent of the clients (producers and consumers) that lost their connection; NaN if they are not known.
    silent: seconds for which moves interrupted publishers, summed over all bundles.
    area:   points between the busiest and the idlest broker (percent of the limit, busiest resource), mean over time.
    within: points between these two that are not exceeded for 95 % of the time.
    worst, worst_at: mean of these points in the worst hour, and the epoch seconds at which that hour begins.
    hot:    broker-minutes above `HOT`.
    measured: ratio 0-1 of the work that was measured on the broker that has it in the replay; mean over time.
    hours:  replayed time without gaps. cycles: number of recorded cycles.
    splits: number of splits that the policy made; their clients and gaps count like those of moves.
    divided, guessed: ratios 0-1 of the work in parts of these splits, and in parts whose shares are a guess; means over
            time.
    """

    moves: int
    again: int
    cut: float
    silent: float
    area: float
    within: float
    worst: float
    worst_at: float
    hot: float
    measured: float
    hours: float
    cycles: int
    splits: int = 0
    divided: float = 0.0
    guessed: float = 0.0


@dataclass
class Trace:
    """A replay, cycle by cycle.

    times: (k) epoch seconds. usage: for each cycle the usage of each broker's busiest resource, percent, in the order
    of `brokers`; NaN for a broker that is not ready or not schedulable, or whose usage is not known. splits: clients
    and gap of each split, as in `Change`. divided: for each cycle the ratios 0-1 of its work in parts of splits, and in
    parts whose shares are a guess. lost: epoch seconds and names of brokers that were gone then, and had not been
    drained.
    """

    times: list[float] = field(default_factory=list)
    brokers: list[tuple[str, ...]] = field(default_factory=list)
    usage: list[FloatArray] = field(default_factory=list)
    measured: list[float] = field(default_factory=list)
    clients: list[float] = field(default_factory=list)
    changes: list[Change] = field(default_factory=list)
    splits: list[tuple[float, float]] = field(default_factory=list)
    divided: list[tuple[float, float]] = field(default_factory=list)
    lost: list[tuple[float, str]] = field(default_factory=list)

    @classmethod
    def joined(cls, parts: Iterable[Self]) -> Self:
        """One trace of `parts`, which follow each other."""
        whole = cls()
        for part in parts:
            for name, values in vars(part).items():
                getattr(whole, name).extend(values)
        return whole

    def add(
        self, cycle: RecordedCycle, cluster: ClusterLoad, moves: Sequence[tuple[str, str, str]], *, measured: float
    ) -> None:
        """Add a cycle. cluster: as replayed, before `moves` (bundle, source, destination) are made."""
        self.times.append(cluster.now)
        self.brokers.append(cluster.brokers.names)
        self.usage.append(busiest(cluster.brokers))
        self.measured.append(measured)
        self.clients.append(cycle.clients)
        sessions, gaps = cluster.bundles.sessions, cycle.load.publish_gaps
        for bundle, source, destination in moves:
            gap = gaps.get(bundle.rpartition("/")[0], USUAL_GAP)
            self.changes.append(
                Change(cluster.now, bundle, source, destination, float(sessions[cluster.bundles.index[bundle]]), gap)
            )

    def note_split(self, cluster: ClusterLoad, split: Split, parts: Sequence[str]) -> None:
        """Add a split of a bundle in `cluster`. Its clients are cut once; parts that leave are moves without cost."""
        clients = float(cluster.bundles.sessions[cluster.bundles.index[split.bundle]])
        gap = cluster.publish_gaps.get(split.bundle.rpartition("/")[0], USUAL_GAP)
        self.splits.append((clients, gap))
        for part, broker in zip(parts, split.destinations or (split.source,) * len(parts), strict=True):
            if broker != split.source:
                self.changes.append(Change(cluster.now, part, split.source, broker, 0.0, 0.0))

    def ranges(self) -> FloatArray:
        """(k,) points between the busiest and the idlest broker; NaN where fewer than two are known."""
        return np.array([range_of(usage) for usage in self.usage])

    def seconds(self) -> FloatArray:
        """(k,) seconds that each cycle counts for: until the next one, but at most two usual intervals."""
        steps = np.diff(self.times)
        usual = float(np.median(steps)) if len(steps) else 0.0
        seconds: FloatArray = np.minimum(np.append(steps, usual), _LONGEST * usual)
        return seconds

    def figures(self) -> Figures:
        """The figures. Raises `ValueError` for a replay without a cycle."""
        if not self.times:
            raise ValueError("not one cycle was replayed")
        ranges, seconds = self.ranges(), self.seconds()
        known = np.isfinite(ranges)
        weight = np.where(known, seconds, 0.0)
        worst_at, worst = self._worst_hour(ranges, weight)
        hot = sum(float((usage > HOT).sum()) * each for usage, each in zip(self.usage, seconds, strict=True)) / 60
        times = Counter(change.bundle for change in self.changes)
        clients = float(np.nanmean(self.clients)) if np.isfinite(self.clients).any() else float("nan")
        lost = float(np.nansum([*(move.clients for move in self.changes), *(clients for clients, _ in self.splits)]))
        divided, guessed = np.transpose(self.divided) if self.divided else np.zeros((2, len(seconds)))
        return Figures(
            moves=len(self.changes),
            again=sum(count - 1 for count in times.values()),
            cut=100 * lost / clients if clients > 0 else float("nan"),
            silent=sum(move.gap for move in self.changes) + sum(gap for _, gap in self.splits),
            area=_mean(ranges, weight),
            within=_quantile(ranges[known], weight[known], 0.95),
            worst=worst,
            worst_at=worst_at,
            hot=hot,
            measured=_mean(np.array(self.measured), seconds),
            hours=float(seconds.sum()) / _HOUR,
            cycles=len(self.times),
            splits=len(self.splits),
            divided=_mean(divided, seconds),
            guessed=_mean(guessed, seconds),
        )

    def by_namespace(self) -> dict[str, NamespaceFigures]:
        """What the moves cost each namespace, the most moves first."""
        found: dict[str, list[Change]] = {}
        for change in self.changes:
            found.setdefault(change.bundle.rpartition("/")[0], []).append(change)
        ordered = sorted(found.items(), key=lambda item: (-len(item[1]), item[0]))
        return {
            space: NamespaceFigures(
                len(changes), float(np.nansum([c.clients for c in changes])), sum(c.gap for c in changes)
            )
            for space, changes in ordered
        }

    def _worst_hour(self, ranges: FloatArray, weight: FloatArray) -> tuple[float, float]:
        """Beginning (epoch s) and mean (points) of the clock hour with the largest mean; NaN if nothing is known.

        Hours of which less than half was recorded are left out. If all hours are like that, only the one that was
        recorded most is used.
        """
        hours = np.array(self.times) // _HOUR * _HOUR
        covered = {float(hour): float(weight[hours == hour].sum()) for hour in np.unique(hours)}
        enough = min(_HOUR / 2, max(covered.values()))
        means = {
            hour: _mean(ranges[hours == hour], weight[hours == hour]) for hour, of in covered.items() if of >= enough
        }
        known = {hour: mean for hour, mean in means.items() if np.isfinite(mean)}
        return max(known.items(), key=lambda item: item[1]) if known else (float("nan"), float("nan"))


def _mean(values: FloatArray, weight: FloatArray) -> float:
    total = float(weight.sum())
    return float(np.where(weight > 0, values * weight, 0.0).sum()) / total if total > 0 else float("nan")


def _quantile(values: FloatArray, weight: FloatArray, share: float) -> float:
    """The least value that is not exceeded for `share` (ratio) of the weight."""
    if not len(values):
        return float("nan")
    order = np.argsort(values)
    reached = np.cumsum(weight[order]) >= share * weight.sum()
    return float(values[order][int(np.argmax(reached))])


NEAR = 180.0
"""Maximum seconds between a real move and the replayed one: a real move is measured after it has landed."""


class Fidelity(NamedTuple):
    """How well a replay shows what happened.

    reproduced: ratio 0-1 of the real moves that the replay made, too; NaN if no bundle moved. moves: number of real
    moves. Those in the first cycle do not count, because they were decided before it.
    decided: the same ratio if the policy decides in each cycle from the real owners; NaN if this was not replayed. A
    replay goes on from its own moves, so one different choice changes all that follows. This ratio has no such drift.
    error: points by which the replayed range of the brokers differs from the measured one, mean over time.
    """

    reproduced: float
    moves: int
    error: float
    decided: float = float("nan")

    def __str__(self) -> str:
        made = "no bundle really moved" if not self.moves else f"{self.reproduced:.0%} of the {self.moves} real moves"
        asked = "" if math.isnan(self.decided) else f"; asked in each cycle with the real owners: {self.decided:.0%}"
        off = "is not known" if math.isnan(self.error) else f"off by {self.error:.1f} points"
        return f"the recorded policy, replayed: {made}{asked}; range of the brokers {off}"


def fidelity(replay: Trace, live: Trace, followed: Trace | None = None) -> Fidelity:
    """The fidelity of `replay`. All traces must have the cycles of `live`.

    followed: a replay in which the policy decides in each cycle from the real owners.
    """
    off = np.abs(replay.ranges() - live.ranges())
    error = float(np.nanmean(off)) if np.isfinite(off).any() else float("nan")
    real = [change for change in live.changes if change.at > live.times[0]]
    decided = float("nan") if followed is None else _reproduced(followed.changes, real)
    return Fidelity(_reproduced(replay.changes, real), len(real), error, decided)


def _reproduced(replayed: Sequence[Change], real: Sequence[Change]) -> float:
    """Ratio of the `real` moves with a replayed one of the same bundle to the same broker at about the same time."""
    times: dict[tuple[str, str], list[float]] = {}
    for change in replayed:
        times.setdefault((change.bundle, change.destination), []).append(change.at)
    same = [
        any(abs(at - change.at) <= NEAR for at in times.get((change.bundle, change.destination), ())) for change in real
    ]
    return sum(same) / len(same) if same else float("nan")
