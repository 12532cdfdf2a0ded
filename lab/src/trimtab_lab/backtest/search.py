"""A search for better parameters by successive halving, on the first part of the recorded load.

The search has three steps, called rungs. All variants are replayed over the last ninth of the first part, the best
third of them over the last third of this part, and the best third of these over all of it. So most of the time is spent
on promising variants. The winner and the unchanged policy are then replayed over the rest of the load, which no variant
has seen. The winner is proposed only if it is better there, too.

    cost = area + weight x clients cut per day, % + broker-minutes above 85 % per hour / 5

If the replayed load is shorter than a day, the clients cut in it count as those of a full day: the moves that level the
cluster once would not recur after a few hours.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from trimtab_lab.backtest.players import policy_replay
from trimtab_lab.backtest.replay import HistoryReplay, LiveReplay
from trimtab_lab.backtest.sweep import Variant
from trimtab_lab.backtest.tasks import Report, Runner, play_all, tasks, windows
from trimtab_lab.backtest.trace import Figures, cost

RUNGS = (1 / 9, 1 / 3, 1.0)
"""Ratios of the first part that are replayed, in this order."""

KEPT = 3
"""One in this many variants goes on to the next rung."""

BETTER = 0.03
"""Ratio by which the winner must cost less on load that it has not seen."""

AS_IS = "as it is"
_LIVE = "live"


class UnreadableHistoryError(Exception):
    """A file of the history can't be read. The message names the file and the reason."""


class UnjudgedError(Exception):
    """The load does not show which policy is better. The message says why."""


class Rung(NamedTuple):
    """A step of the search. begin, end: epoch s. costs: of its variants and the unchanged policy, lowest first."""

    begin: float
    end: float
    costs: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Tuned:
    """A finished search. best: the variant that won it. rungs: the steps of the search.

    winner: the best variant; None unless it costs less than the unchanged policy in the last rung, and at least
    `BETTER` less on the rest of the load. begin, end: epoch s of the rest. figures, costs: those of the unchanged
    policy, the best variant and what really happened, on the rest.
    """

    winner: Variant | None
    best: Variant
    rungs: Sequence[Rung]
    begin: float
    end: float
    figures: Mapping[str, Figures]
    costs: Mapping[str, float]

    @property
    def gained(self) -> float:
        """Ratio by which the best variant costs less than the unchanged policy, on load that was not seen."""
        before = self.costs[AS_IS]
        return 1 - self.costs[self.best.name] / before if before > 0 else 0.0


@dataclass(frozen=True)
class Search:
    """How to search.

    folder: the history's folder. policy: the recorded policy. seen, rest: cycles (epoch s, oldest first) of the part
    that the search may see, and of the rest. weight: points of cost per 1 % of the clients cut each day. splits:
    whether splits are replayed, too.
    """

    folder: str
    policy: str
    seen: Sequence[float]
    rest: Sequence[float]
    weight: float
    seed: int = 1
    splits: bool = False

    def run(self, as_is: Mapping[str, Any], variants: Sequence[Variant], runner: Runner, report: Report) -> Tuned:
        """Search, and judge the winner. Raises `UnreadableHistoryError` and `UnjudgedError`."""
        left, rungs = {one.name: one for one in variants}, []
        steps = self._steps(len(left))
        for number, (share, kept) in enumerate(steps):
            times = self.seen[-max(2, round(share * len(self.seen))) :]
            playing = {AS_IS: as_is, **{name: one.manifest for name, one in left.items()}}
            figures = self._played(times, playing, runner, _part(report, number, len(steps) + 1))
            rungs.append(Rung(times[0], times[-1], self._costs(figures)))
            left = {name: left[name] for name in [name for name in rungs[-1].costs if name in left][:kept]}
        [best] = left.values()
        playing = {AS_IS: as_is, best.name: best.manifest}
        figures = self._played(self.rest, playing, runner, _part(report, len(steps), len(steps) + 1), live=True)
        found = Tuned(best, best, rungs, self.rest[0], self.rest[-1], figures, self._costs(figures))
        won = found.gained >= BETTER and rungs[-1].costs[best.name] < rungs[-1].costs[AS_IS]
        return found if won else replace(found, winner=None)

    def _costs(self, figures: Mapping[str, Figures]) -> dict[str, float]:
        """The cost of each policy, lowest first. Raises `UnjudgedError` if a policy has no cost."""
        found = {name: cost(one, self.weight) for name, one in figures.items()}
        if not all(map(math.isfinite, found.values())):
            raise UnjudgedError("fewer than two brokers were measured at a time, so no policy is better than another")
        return dict(sorted(found.items(), key=lambda item: item[1]))

    @staticmethod
    def _steps(count: int) -> list[tuple[float, int]]:
        """For each rung its share of the first part, and how many variants remain after it."""
        kept = [max(1, math.ceil(count / KEPT ** (rung + 1))) for rung in range(len(RUNGS) - 1)]
        return list(zip(RUNGS, [*kept, 1], strict=True))

    def _played(
        self,
        times: Sequence[float],
        playing: Mapping[str, Mapping[str, Any]],
        runner: Runner,
        report: Report,
        *,
        live: bool = False,
    ) -> dict[str, Figures]:
        """The figures of each policy by name, over some cycles; with `live`, also those of what really happened."""
        replays = [policy_replay(name, each, self.seed, splits=self.splits) for name, each in playing.items()]
        players: list[HistoryReplay] = [*replays, *([LiveReplay(_LIVE)] if live else [])]
        work = tasks(self.folder, self.policy, windows(times[0], times[-1]), players, runner.parallelism())
        if error := play_all(work, players, runner, report):
            raise UnreadableHistoryError(error)
        return {one.name: one.trace.figures() for one in players}


def _part(report: Report, number: int, of: int) -> Callable[[float], None]:
    return lambda done: report((number + done) / of)
