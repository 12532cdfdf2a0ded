"""When a policy acts: when its next cycle is due, and whether its windows (`spec.windows`) are open.

Cycles run at a fixed rate, or immediately after an event that should not wait.

A slow cycle does not delay the later ones, and a missed cycle is left out. After an early cycle (for example, because
the policy was edited) the interval begins again. Each cycle is late by a random part of the interval, so that the
policies of many clusters do not query one Prometheus at the same moment.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from trimtab_operator.observe.departures import departures_of
from trimtab_operator.resources.common import LONGEST, Day, Window, WindowKind
from trimtab_operator.state.cluster import ClusterState
from trimtab_operator.state.settings import Settings
from trimtab_strategies.params import seconds

JITTER = 0.05
"""Fraction of the interval by which a cycle may be late."""


@dataclass(slots=True)
class Schedule:
    """When the cycles of one policy run.

    due: when the next cycle is due, in seconds of the cluster's clock. beat: the same without the random delay.
    generation: the policy's generation at the last cycle. leaving: brokers that had to be emptied at the last check.
    """

    cluster: ClusterState
    due: float = 0.0
    beat: float = 0.0
    generation: int = -1
    leaving: frozenset[str] = frozenset()

    def is_due(self, settings: Settings) -> bool:
        """Whether a cycle is due: the interval is over, the policy was edited, or another broker is to be emptied."""
        self._decide_for_departures(settings.name)
        return self.cluster.clock() >= self.due or settings.generation != self.generation

    def at_once(self) -> None:
        """Have the next reconcile run a cycle."""
        self.due = self.cluster.clock()

    def next(self, interval: float) -> None:
        """Set the time of the next cycle: `interval` seconds after the last beat, plus a random delay."""
        now, planned = self.cluster.clock(), self.beat + interval
        self.beat = planned if self.beat <= now < planned else now + interval
        self.due = self.beat + JITTER * interval * self.cluster.chance()

    def _decide_for_departures(self, policy: str) -> None:
        """Make a cycle due if another broker must be emptied, for a drain or before its restart."""
        departures = departures_of(self.cluster, policy)
        leaving = departures.drained | (departures.rollout.following if departures.rollout.restarted else frozenset())
        if leaving - self.leaving:
            self.at_once()
        self.leaving = leaving


_DAYS = LONGEST // 24 + 1
"""Number of days before and after a point in time in which to look for the beginnings of windows."""


@dataclass(frozen=True, slots=True)
class Opening:
    """Whether the policy may act. until: when that changes (epoch seconds); None if it does not within a week."""

    open: bool
    until: float | None


def opening(windows: Sequence[Window], now: float) -> Opening:
    """Whether `windows` are open at `now` (epoch seconds).

    Within a window of kind Deny they are closed. Otherwise they are open within any window of kind Allow, or always if
    there is none.
    """
    if not windows:
        return Opening(open=True, until=None)
    spans = {kind: list(_spans((w for w in windows if w.kind is kind), now)) for kind in WindowKind}
    needs_one = any(window.kind is WindowKind.ALLOW for window in windows)

    def is_open(at: float) -> bool:
        allowed = not needs_one or _within(spans[WindowKind.ALLOW], at)
        return allowed and not _within(spans[WindowKind.DENY], at)

    present, horizon = is_open(now), now + LONGEST * 3600
    edges = sorted({edge for found in spans.values() for span in found for edge in span if now < edge <= horizon})
    return Opening(present, next((edge for edge in edges if is_open(edge) != present), None))


def _within(spans: Iterable[tuple[float, float]], at: float) -> bool:
    return any(begin <= at < end for begin, end in spans)


def _spans(windows: Iterable[Window], now: float) -> Iterator[tuple[float, float]]:
    """Beginning and end (epoch seconds) of each occurrence of `windows` around `now`."""
    order = list(Day)
    for window in windows:
        zone, days = ZoneInfo(window.time_zone), {order.index(day) for day in window.days} or set(range(7))
        hour, minute = map(int, window.start.split(":"))
        today = datetime.fromtimestamp(now, zone).date()
        for offset in range(-_DAYS, _DAYS + 1):
            day = today + timedelta(days=offset)
            if day.weekday() in days:
                local = datetime(day.year, day.month, day.day, hour, minute, tzinfo=zone)
                begin = local.astimezone(UTC).timestamp()
                yield begin, begin + seconds(window.duration)
