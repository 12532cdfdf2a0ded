"""Windows of a policy (`spec.windows`): when it may act, and until when. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

from trimtab_operator.resources.common import LONGEST, Day, Window, WindowKind, seconds

_DAYS = LONGEST // 24 + 1
"""Days before and after a moment on which a window that matters to it may have begun."""


@dataclass(frozen=True, slots=True)
class Opening:
    """Whether the policy may act, and until when that holds (epoch seconds); None: for the next week."""

    open: bool
    until: float | None


def opening(windows: Sequence[Window], now: float) -> Opening:
    """Whether `windows` are open at `now` (epoch seconds).

    With windows of kind Allow they are open within any of those, else always. Within one of kind Deny they are closed.
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
    """Beginning and end (epoch seconds) of each occurrence around `now`."""
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
