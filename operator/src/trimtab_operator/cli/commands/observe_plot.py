"""Draws load over time as an SVG: the CPU of the brokers, and below it their total throughput."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from html import escape

import numpy as np

from trimtab_pipeline.history.reader import LoadOverTime
from trimtab_strategies.model.cluster_load import FloatArray

_WIDTH, _HEIGHT = 960, 520
_LEFT, _RIGHT = 64, 760
_COLORS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#6a3d9a", "#7f7f7f")
"""One for each broker. If brokers outnumber the colors, percentiles are drawn. Color-blind readers can tell the colors
apart."""
_PERCENTILES = {"most used": 100, "90th percentile": 90, "median": 50, "10th percentile": 10, "least used": 0}
_DAY = 86_400
_STEPS = (60, 300, 900, 1800, 3600, 10_800, 21_600, 43_200, _DAY, 7 * _DAY, 30 * _DAY)
"""Seconds that may lie between two marks on the time axis."""
_MARKS = 8
_GAP = 4.0
"""No line is drawn across a pause of more than this many usual intervals."""


def draw(title: str, course: LoadOverTime) -> str:
    """The text of an SVG file. A line has a gap where its broker's data was not trusted."""
    begin, end = float(course.times[0]), float(course.times[-1])
    throughput = course.throughput / 1e6
    cpu = _Panel(56, 300, begin, end, _round_up(_highest(course.cpu, 100.0)))
    flow = _Panel(350, 480, begin, end, _round_up(_highest(throughput, 1.0)))
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{_HEIGHT}"',
        f' viewBox="0 0 {_WIDTH} {_HEIGHT}" font-family="sans-serif" font-size="12" fill="#333333">',
        f"<title>{escape(title)}</title><rect width='100%' height='100%' fill='white'/>",
        _text(_LEFT, 24, title, size=16),
        _text(_LEFT, 44, "CPU of the brokers, percent of the limit"),
        *cpu.axes(),
        *_named_lines(cpu, course.times, _series(course)),
        _text(_LEFT, 338, "Throughput in and out, MB/s"),
        *flow.axes(with_times=True),
        *flow.line(course.times, throughput, "#333333"),
        f"{_text(_RIGHT, 516, f'{datetime.fromtimestamp(end, UTC):%Y-%m-%d} UTC', anchor='end')}</svg>\n",
    ]
    return "\n".join(parts)


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

    def axes(self, *, with_times: bool = False) -> Iterator[str]:
        """Horizontal lines for five values, vertical ones for times."""
        for value in np.linspace(0, self.highest, 5):
            yield _rule(_LEFT, _RIGHT, self.y(value), self.y(value))
            yield _text(_LEFT - 8, self.y(value) + 4, f"{value:,.4g}", anchor="end")
        step = next((step for step in _STEPS if (self.end - self.begin) / step <= _MARKS), _STEPS[-1])
        for time in np.arange(math.ceil(self.begin / step) * step, self.end + 1, step).tolist():
            yield _rule(self.x(time), self.x(time), self.top, self.bottom)
            if with_times:
                yield _text(self.x(time), self.bottom + 18, _clock(time, step), anchor="middle")

    def line(self, times: FloatArray, values: FloatArray, color: str) -> Iterator[str]:
        """A line for each run of known values. A single value becomes a dot."""
        for run in _runs(times, values):
            rows = run * 2 if len(run) == 1 else run
            points = " ".join(f"{self.x(times[row]):.1f},{self.y(values[row]):.1f}" for row in rows)
            style = f'fill="none" stroke="{color}" stroke-width="1.5" stroke-linecap="round"'
            yield f'<polyline points="{points}" {style}/>'


def _series(course: LoadOverTime) -> Mapping[str, FloatArray]:
    """Percent of CPU over time: of each broker, or percentiles of many brokers."""
    if len(course.brokers) <= len(_COLORS):
        return dict(zip(course.brokers, course.cpu.T, strict=True))
    levels = np.full((len(_PERCENTILES), len(course.times)), np.nan)
    known = np.isfinite(course.cpu).any(axis=1)
    if known.any():
        levels[:, known] = np.nanpercentile(course.cpu[known], list(_PERCENTILES.values()), axis=1)
    return {f"{name} of {len(course.brokers)}": level for name, level in zip(_PERCENTILES, levels, strict=True)}


def _named_lines(panel: _Panel, times: FloatArray, series: Mapping[str, FloatArray]) -> Iterator[str]:
    """A line for each series, named at the right in the order of their last values (percent)."""
    colors = dict(zip(series, _COLORS, strict=False))
    for name, values in series.items():
        yield from panel.line(times, values, colors[name])
    last = {name: float(np.nan_to_num(values[-1], nan=-1.0)) for name, values in series.items()}
    for k, name in enumerate(sorted(last, key=lambda name: -last[name])):
        y = panel.top + 10 + k * 20
        yield f'<rect x="{_RIGHT + 16}" y="{y - 9}" width="12" height="12" fill="{colors[name]}"/>'
        yield _text(_RIGHT + 34, y + 1, f"{name}  {last[name]:.0f} %" if last[name] >= 0 else f"{name}  unknown")


def _highest(values: FloatArray, least: float) -> float:
    return float(values[np.isfinite(values)].max(initial=least))


def _round_up(value: float) -> float:
    """The next of 1, 2, 5, 10, 20, ... that is not below `value`."""
    size = 10.0 ** math.floor(math.log10(value))
    return next(factor * size for factor in (1, 2, 5, 10) if factor * size >= value * 0.999999)


def _text(x: float, y: float, text: str, *, size: int = 12, anchor: str = "start") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}">{escape(text)}</text>'


def _rule(x1: float, x2: float, y1: float, y2: float) -> str:
    return f'<line x1="{x1:.1f}" x2="{x2:.1f}" y1="{y1:.1f}" y2="{y2:.1f}" stroke="#dddddd"/>'


def _clock(time: float, step: int) -> str:
    at = datetime.fromtimestamp(time, UTC)
    return f"{at:%m-%d}" if step >= _DAY or (at.hour, at.minute) == (0, 0) else f"{at:%H:%M}"


def _runs(times: FloatArray, values: FloatArray) -> Sequence[list[int]]:
    """Rows of known values that follow each other without a pause."""
    known = np.flatnonzero(np.isfinite(values))
    usual = float(np.median(np.diff(times))) if len(times) > 1 else math.inf
    apart = (np.diff(known) > 1) | (np.diff(times[known]) > _GAP * usual)
    return [run.tolist() for run in np.split(known, np.flatnonzero(apart) + 1) if len(run)]
