"""A backtest in parts: each plays some of the policies over one window of the recording.

Except for the first window, it is not known which owners a policy would have chosen before the window begins. So such a
window is played from an earlier time on. Averages and memory warm up for an hour, then the policies act for some hours
that do not count in the result. The seams between windows show how much the division changes the result.

The parts are independent of each other, and of how many run at the same time. So results are the same on one core and
on a cluster.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

from trimtab_lab.backtest.replay import HistoryReplay, PolicyReplay, play, recorded_cycles
from trimtab_lab.backtest.trace import Trace
from trimtab_pipeline.api import ForeignFileError
from trimtab_pipeline.history.recording import Recording
from trimtab_strategies.model import counted
from trimtab_strategies.model.cluster_load import FloatArray, IntArray

WARM_UP = 3600.0
"""Seconds that are read before policies begin to act. Nothing moves in them."""

RUN_IN = 3 * 3600.0
"""Seconds before each window, except the first one. In them, policies already act, but nothing counts in the result."""

_NEXT = 1e-3  # seconds: the resolution of recorded times
_SEAM = 3600.0  # seconds after a seam; moves in them are counted apart from all others

Report = Callable[[float], None]
"""Is called with the completed fraction of the work, from 0 to 1."""


class TimeWindow(NamedTuple):
    """A part of the recording, in epoch seconds.

    Cycles from `read` to `end` are played. Policies act from `act` on. Only cycles from `begin` to `end` count in
    the result.
    """

    read: float
    act: float
    begin: float
    end: float


def windows(begin: float, end: float, length: float | None = None) -> list[TimeWindow]:
    """The windows from `begin` to `end` (epoch s). length: seconds of each window; None: one window."""
    count = 1 if length is None else max(1, math.ceil((end - begin) / length))
    edges = [begin + k * (length or 0) for k in range(count)]
    ends = [*(edge - _NEXT for edge in edges[1:]), end]
    acts = [edge - RUN_IN * (k > 0) for k, edge in enumerate(edges)]
    return [TimeWindow(act - WARM_UP, act, edge, last) for act, edge, last in zip(acts, edges, ends, strict=True)]


@dataclass(frozen=True)
class ReplayTask:
    """Some replays over one window. folder: the history's folder. policy: the policy whose load was recorded."""

    folder: str
    policy: str
    window: TimeWindow
    replays: tuple[HistoryReplay, ...]


class ReplayedTask(NamedTuple):
    """The traces of a task's replays. If a file could not be read, `error` says why, and there are no traces."""

    traces: tuple[Trace, ...]
    error: str = ""


def played(task: ReplayTask, report: Report) -> ReplayedTask:
    """Play a task."""
    read, act, begin, end = task.window
    recording, replays = Recording(task.folder, task.policy), deepcopy(task.replays)
    first = max(read, recording.summary.begin)
    span = max(end - first, _NEXT)
    try:
        splits = any(isinstance(one, PolicyReplay) and one.replayed_splits is not None for one in replays)
        topics = recording.topics(first, end) if splits else None
        cycles = recorded_cycles(recording.cycles(first, end), topics)
        play(cycles, replays, begin, act=act, seen=lambda at: report((at - first) / span))
    except ForeignFileError as error:
        return ReplayedTask((), str(error))
    return ReplayedTask(tuple(one.trace for one in replays))


class Runner(Protocol):
    """Runs tasks."""

    def parallelism(self) -> int:
        """Number of tasks that run at the same time."""

    def map(
        self, function: Callable[[ReplayTask, Report], ReplayedTask], items: Sequence[ReplayTask], report: Report
    ) -> list[ReplayedTask]:
        """The results of ``function(item, report)`` in the order of `items`. report: see `Report`."""


class InProcess:
    """One task after the other, in this process."""

    def parallelism(self) -> int:
        """See `Runner`."""
        return 1

    def map(
        self, function: Callable[[ReplayTask, Report], ReplayedTask], items: Sequence[ReplayTask], report: Report
    ) -> list[ReplayedTask]:
        """See `Runner`."""
        return [
            function(item, lambda done, place=place: report((place + done) / len(items)))  # type: ignore[misc]
            for place, item in enumerate(items)
        ]


def tasks(
    folder: str, policy: str, parts: Sequence[TimeWindow], replays: Sequence[HistoryReplay], parallelism: int
) -> list[ReplayTask]:
    """At least one task for each window, and about one for each core if there are enough replays.

    The replays of one task share the reading of cycles, which takes about as long as the decisions of one policy.
    """
    groups = min(len(replays), max(1, math.ceil(parallelism / len(parts))))
    return [
        ReplayTask(folder, policy, window, tuple(replays[group::groups])) for window in parts for group in range(groups)
    ]


def play_all(work: Sequence[ReplayTask], replays: Sequence[HistoryReplay], runner: Runner, report: Report) -> str:
    """Run the tasks, and give each of `replays` its whole trace.

    Returns why a file could not be read, or why there is no trace; empty if there was no error.
    """
    found = runner.map(played, work, report)
    if errors := [one.error for one in found if one.error]:
        return errors[0]
    parts: dict[int, list[Trace]] = {}
    for task, result in zip(work, found, strict=True):
        for replay, trace in zip(task.replays, result.traces, strict=True):
            parts.setdefault(id(replay), []).append(trace)
    for replay in replays:
        replay.trace = Trace.joined(parts[id(replay)])
    if not all(replay.trace.times for replay in replays):
        return "not one cycle can be replayed: the history does not have the brokers of that time"
    return ""


class Seams(NamedTuple):
    """How much the division into windows changes the result. At a seam, one window ends and the next begins.

    number: the number of seams.
    jump, usual: mean change of the range at a seam, and between other consecutive cycles; NaN if unknown. The range is
    the number of points between the busiest and the idlest broker.
    moves, others: moves per hour in the hour after a seam, and at all other times.
    """

    number: int
    jump: float
    usual: float
    moves: float
    others: float

    def __str__(self) -> str:
        usual = "" if math.isnan(self.usual) else f", by {self.usual:.1f} from one cycle to the next elsewhere"
        changes = "is not known" if math.isnan(self.jump) else f"changes by {self.jump:.1f} points there{usual}"
        often = f"{self.moves:.1f} moves an hour in the hour after one, {self.others:.1f} at other times"
        return f"{counted(self.number, 'seam')}: range of the brokers {changes}; {often}"


def seams(trace: Trace, parts: Sequence[TimeWindow]) -> Seams | None:
    """The seams of a whole trace; None for a single window, or if no seam has cycles on both sides."""
    times, ranges = np.array(trace.times), trace.ranges()
    places = [int(np.searchsorted(times, window.begin)) for window in parts[1:]]
    places = [place for place in places if 0 < place < len(times)]
    if not places:
        return None
    steps = np.abs(np.diff(ranges))
    at = np.zeros(len(steps), dtype=bool)
    at[[place - 1 for place in places]] = True
    begins = times[places, np.newaxis]
    moves = np.bincount(np.searchsorted(times, [change.at for change in trace.changes]), minlength=len(times))
    after = ((times >= begins) & (times < begins + _SEAM)).any(axis=0)
    return Seams(
        number=len(places),
        jump=_mean(steps[at]),
        usual=_mean(steps[~at]),
        moves=_per_hour(moves[after], trace.seconds()[after]),
        others=_per_hour(moves[~after], trace.seconds()[~after]),
    )


def _mean(values: FloatArray) -> float:
    known = values[np.isfinite(values)]
    return float(known.mean()) if len(known) else float("nan")


def _per_hour(moves: IntArray, seconds: FloatArray) -> float:
    return 3600 * float(moves.sum()) / float(seconds.sum())
