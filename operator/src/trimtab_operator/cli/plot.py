"""Load over time as an SVG: the CPU of each broker, below it the throughput of all. Drawn here, with nothing else."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from html import escape

import numpy as np

from trimtab_pipeline.history_reader import Course
from trimtab_strategies.model.cluster_load import FloatArray

_WIDTH, _HEIGHT = 960, 520
_LEFT, _RIGHT = 64, 760
_COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#6a3d9a", "#7f7f7f")
"""Told apart by those who see few colours, too."""
_NAMED = len(_COLORS)
"""Up to so many brokers have a line each; of more, the span and the median are drawn."""
_STEPS = (60, 300, 900, 1800, 3600, 10_800, 21_600, 43_200, 86_400, 604_800, 2_592_000)
"""Seconds between two marks on the axis of time."""
_MARKS = 8
_GAP = 4.0
"""A line is not drawn across a pause of so many usual intervals."""


@dataclass(frozen=True, slots=True)
class _Panel:
    """A rectangle between `top` and `bottom` in which values from 0 to `highest` are drawn over `begin` to `end`."""

    top: float
    bottom: float
    begin: float
    end: float
    highest: float

    def x(self, time: float) -> float:
        return _LEFT + (_RIGHT - _LEFT) * (time - self.begin) / max(self.end - self.begin, 1.0)

    def y(self, value: float) -> float:
        return self.bottom - (self.bottom - self.top) * min(value, self.highest) / self.highest


def draw(title: str, course: Course) -> str:
    """The text of an SVG file of 960 x 520. Where a broker was not trusted its line has a gap."""
    begin, end = float(course.times[0]), float(course.times[-1])
    cpu = _Panel(56, 300, begin, end, _round_up(_highest(course.cpu, 100.0)))
    flow = _Panel(350, 480, begin, end, _round_up(_highest(course.throughput / 1e6, 1.0)))
    parts = [
        _text(_LEFT, 24, title, size=16),
        _text(_LEFT, 44, "CPU of the brokers, percent of the limit"),
        *_axes(cpu, with_times=False),
        *(_lines(cpu, course) if len(course.brokers) <= _NAMED else _span(cpu, course)),
        _text(_LEFT, 338, "Throughput in and out, MB/s"),
        *_axes(flow, with_times=True),
        *_line(flow, course.times, course.throughput / 1e6, "#333333"),
    ]
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{_HEIGHT}" viewBox="0 0 {_WIDTH} {_HEIGHT}"'
    )
    style = ' font-family="sans-serif" font-size="12" fill="#333333">'
    body = "\n".join(["<rect width='100%' height='100%' fill='white'/>", *parts])
    return f"{head}{style}\n<title>{escape(title)}</title>\n{body}\n</svg>\n"


def _highest(values: FloatArray, least: float) -> float:
    known = values[np.isfinite(values)]
    return max(least, float(known.max(initial=0.0)))


def _round_up(value: float) -> float:
    """The next of 1, 2, 5, 10, 20, ... that is not below `value`."""
    size = 10.0 ** math.floor(math.log10(value))
    return next(factor * size for factor in (1, 2, 5, 10) if factor * size >= value * 0.999999)


def _text(x: float, y: float, text: str, *, size: int = 12, anchor: str = "start") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}">{escape(text)}</text>'


def _axes(panel: _Panel, *, with_times: bool) -> Iterable[str]:
    """Lines across for four values, and marks for times."""
    for k in range(5):
        value = panel.highest * k / 4
        y = panel.y(value)
        yield f'<line x1="{_LEFT}" x2="{_RIGHT}" y1="{y:.1f}" y2="{y:.1f}" stroke="#dddddd"/>'
        yield _text(_LEFT - 8, y + 4, f"{value:,.4g}", anchor="end")
    step = next((step for step in _STEPS if (panel.end - panel.begin) / step <= _MARKS), _STEPS[-1])
    for time in np.arange(math.ceil(panel.begin / step) * step, panel.end + 1, step):
        x = panel.x(float(time))
        yield f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{panel.top}" y2="{panel.bottom}" stroke="#eeeeee"/>'
        if with_times:
            yield _text(x, panel.bottom + 18, _clock(float(time), step), anchor="middle")
    if with_times:
        yield _text(_RIGHT, panel.bottom + 36, f"{datetime.fromtimestamp(panel.end, UTC):%Y-%m-%d} UTC", anchor="end")


def _clock(time: float, step: int) -> str:
    moment = datetime.fromtimestamp(time, UTC)
    return f"{moment:%m-%d}" if step >= 86_400 or (moment.hour, moment.minute) == (0, 0) else f"{moment:%H:%M}"  # noqa: PLR2004


def _lines(panel: _Panel, course: Course) -> Iterable[str]:
    """A line for each broker, named at the right in the order in which they end."""
    for k in range(len(course.brokers)):
        yield from _line(panel, course.times, course.cpu[:, k], _COLORS[k])
    last = [_last(course.cpu[:, k]) for k in range(len(course.brokers))]
    order = sorted(range(len(last)), key=lambda k: -last[k])
    for place, k in enumerate(order):
        y = panel.top + 10 + place * 20
        yield f'<rect x="{_RIGHT + 16}" y="{y - 9}" width="12" height="12" fill="{_COLORS[k]}"/>'
        told = f"{course.brokers[k]}  {last[k]:.0f} %" if last[k] >= 0 else f"{course.brokers[k]}  unknown"
        yield _text(_RIGHT + 34, y + 1, told)


def _last(values: FloatArray) -> float:
    """The newest value, -1 where that is unknown."""
    return float(values[-1]) if math.isfinite(values[-1]) else -1.0


def _span(panel: _Panel, course: Course) -> Iterable[str]:
    """From the least to the most used broker, from the tenth to the ninetieth percentile, and the median."""
    known = np.isfinite(course.cpu).any(axis=1)
    times, cpu = course.times[known], course.cpu[known]
    levels = np.nanpercentile(cpu, (0, 10, 50, 90, 100), axis=1) if len(cpu) else np.empty((5, 0))
    for low, high, color in ((0, 4, "#cfe3f1"), (1, 3, "#8fbfde")):
        for rows in _runs(times, levels[low]):
            there = [f"{panel.x(times[row]):.1f},{panel.y(levels[high][row]):.1f}" for row in rows]
            back = [f"{panel.x(times[row]):.1f},{panel.y(levels[low][row]):.1f}" for row in reversed(rows)]
            yield f'<polygon points="{" ".join(there + back)}" fill="{color}"/>'
    yield from _line(panel, times, levels[2], _COLORS[0])
    keys = (("#cfe3f1", "least to most used"), ("#8fbfde", "10th to 90th percentile"), (_COLORS[0], "median"))
    for place, (color, name) in enumerate(keys):
        y = panel.top + 10 + place * 20
        yield f'<rect x="{_RIGHT + 16}" y="{y - 9}" width="12" height="12" fill="{color}"/>'
        yield _text(_RIGHT + 34, y + 1, name)
    yield _text(_RIGHT + 16, panel.top + 80, f"{len(course.brokers)} brokers")


def _line(panel: _Panel, times: FloatArray, values: FloatArray, color: str) -> Iterable[str]:
    for rows in _runs(times, values):
        if len(rows) == 1:
            x, y = panel.x(times[rows[0]]), panel.y(values[rows[0]])
            yield f'<circle cx="{x:.1f}" cy="{y:.1f}" r="1.5" fill="{color}"/>'
        else:
            points = " ".join(f"{panel.x(times[row]):.1f},{panel.y(values[row]):.1f}" for row in rows)
            yield f'<polyline points="{points}" fill="none" stroke="{color}" stroke-width="1.5"/>'


def _runs(times: FloatArray, values: FloatArray) -> Sequence[list[int]]:
    """Rows of known values that follow each other without a pause."""
    usual = float(np.median(np.diff(times))) if len(times) > 1 else math.inf
    runs: list[list[int]] = []
    for row in np.flatnonzero(np.isfinite(values)).tolist():
        if runs and runs[-1][-1] == row - 1 and times[row] - times[row - 1] <= _GAP * usual:
            runs[-1].append(row)
        else:
            runs.append([row])
    return runs
