"""SVG charts for the report of a backtest: usage of the brokers, how far apart they are, moves, results of a sweep.

Sizes are in units of the view box, because a chart is as wide as its column. Colors come from the page's style sheet.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from html import escape
from math import ceil, floor, isfinite, log10
from typing import NamedTuple

import numpy as np

from trimtab_lab.backtest.trace import Figures, Trace
from trimtab_strategies.counterfactual.imbalance import HOT
from trimtab_strategies.model.cluster_load import FloatArray

WIDTH = 900.0
_LEFT, _RIGHT = 52.0, 890.0
_POINTS = 400
"""Maximum number of points in a line. If there are more cycles, each point is the mean of several cycles."""
_LINES = 24
"""Maximum number of brokers with a line each.

More brokers are drawn as two bands (from the idlest to the busiest broker, and the middle half) and a median.
"""
_BARS = 120
_HOUR = 3600.0
_STEPS = (300, 600, 1800, 3600, 7200, 14_400, 21_600, 43_200, 86_400, 172_800, 604_800)
"""Seconds between two marks on the axis of time: the smallest of these values with at most `_MARKS` marks."""
_MARKS = 8
_KEYS = 4


class _Axis(NamedTuple):
    """A linear scale. It maps the values `low` to `high` to the positions `first` to `last` of the chart."""

    low: float
    high: float
    first: float
    last: float

    def __call__(self, value: float) -> float:
        span = self.high - self.low
        return self.first + (self.last - self.first) * (value - self.low) / span if span else self.first


_Axes = tuple[_Axis, _Axis]
"""The axis of time, and the axis of values."""


def load_chart(trace: Trace, begin: float, end: float, *, highest: float, worst_at: float) -> str:
    """Draw each broker's busiest resource (percent) over time, and the moves below. begin, end: epoch seconds."""
    x, y = _Axis(begin, end, _LEFT, _RIGHT), _Axis(0, highest, 200, 14)
    body = [*_time_axis(x, 300), *_value_axis(y, "%")]
    if np.isfinite(worst_at):
        first, last = x(max(worst_at, begin)), x(min(worst_at + _HOUR, end))
        label = "<title>the hour in which the brokers were farthest apart</title>"
        place = f'x="{first:.1f}" y="14" width="{last - first:.1f}" height="186"'
        body.append(f'<rect class="worst" {place}>{label}</rect>')
    if highest > HOT:
        body.append(f'<line class="hot" x1="{_LEFT}" x2="{_RIGHT}" y1="{y(HOT):.1f}" y2="{y(HOT):.1f}"/>')
    body += _brokers(trace, x, y)
    body += _bars(trace, x)
    return _svg(body, 306, "Usage of the brokers over time, and moves")


def range_chart(traces: Mapping[str, Trace], begin: float, end: float) -> str:
    """Draw the percentage points between the busiest and the idlest broker over time, with a line for each policy."""
    binned = {name: _binned(np.array(trace.times), trace.ranges()[:, np.newaxis]) for name, trace in traces.items()}
    most = max((float(np.nanmax(values)) for _, values in binned.values() if np.isfinite(values).any()), default=1.0)
    x, y = _Axis(begin, end, _LEFT, _RIGHT), _Axis(0, _nice(most), 210, 24 + 15 * ((len(traces) - 1) // _KEYS))
    body = [*_time_axis(x, 232), *_value_axis(y, "")]
    for number, (name, (times, values)) in enumerate(binned.items()):
        kind, place = (
            "live" if name == "live" else f"p{number}",
            (_LEFT + 210 * (number % _KEYS), 12 + 15 * (number // _KEYS)),
        )
        body.append(_line(times, values[:, 0], (x, y), f"line {kind}", name))
        body.append(f'<text class="{kind} key" x="{place[0]}" y="{place[1]}">{escape(_short(name))}</text>')
    return _svg(body, 238, "Points between the busiest and the idlest broker")


def _brokers(trace: Trace, x: _Axis, y: _Axis) -> Iterator[str]:
    names = sorted({name for brokers in trace.brokers for name in brokers})
    times, values = _binned(np.array(trace.times), _by_broker(trace, names))
    if len(names) > _LINES:
        with np.errstate(all="ignore"):
            low, first, middle, third, high = np.nanquantile(values, [0, 0.25, 0.5, 0.75, 1], axis=1)
        yield _band(times, (low, high), (x, y), "range")
        yield _band(times, (first, third), (x, y), "half")
        yield _line(times, middle, (x, y), "line median", f"median of {len(names)} brokers")
        return
    order = np.argsort(np.argsort(np.nan_to_num(values[0])))
    for column, name in enumerate(names):
        hue = 210 - 190 * int(order[column]) / max(len(names) - 1, 1)  # by usage in the first cycle, idlest to busiest
        yield f'<g style="--line: hsl({hue:.0f} 70% 45%)">{_line(times, values[:, column], (x, y), "line", name)}</g>'


def _by_broker(trace: Trace, names: Sequence[str]) -> FloatArray:
    """(k, n) usage (percent) of each broker in each cycle; NaN where the broker did not exist."""
    place = {name: column for column, name in enumerate(names)}
    values = np.full((len(trace.times), len(names)), np.nan)
    for row, (brokers, usage) in enumerate(zip(trace.brokers, trace.usage, strict=True)):
        values[row, [place[name] for name in brokers]] = usage
    return values


def _binned(times: FloatArray, values: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Average the values to at most `_POINTS` points: (p,) times and (p, x) values; NaN where none is known."""
    width = ceil(len(times) / _POINTS)
    starts = np.arange(0, len(times), width)
    known = np.isfinite(values)
    count = np.add.reduceat(known.astype(float), starts)
    total = np.add.reduceat(np.where(known, values, 0), starts)
    return times[starts], np.divide(total, count, out=np.full(total.shape, np.nan), where=count > 0)


def _bars(trace: Trace, x: _Axis) -> Iterator[str]:
    """Draw the moves in each of `_BARS` equal periods, and say for how many seconds they interrupted publishers."""
    edges = np.linspace(x.low, x.high, _BARS + 1)
    at = np.array([change.at for change in trace.changes])
    counts, _ = np.histogram(at, edges)
    silent, _ = np.histogram(at, edges, weights=[change.gap for change in trace.changes])
    y = _Axis(0, _nice(float(counts.max(initial=1))), 284, 234)
    yield f'<text class="axis" x="{_LEFT - 6}" y="{y(y.high) + 4:.1f}" text-anchor="end">{y.high:.0f}</text>'
    yield f'<text class="axis" x="{_LEFT - 6}" y="284" text-anchor="end">moves</text>'
    yield f'<line class="rule" x1="{_LEFT}" x2="{_RIGHT}" y1="284" y2="284"/>'
    width = (_RIGHT - _LEFT) / _BARS
    for number in np.flatnonzero(counts).tolist():
        top = y(float(counts[number]))
        told = f"{_written(edges[number])}: {counts[number]} moves, {silent[number]:.1f} s silent"
        place = f'x="{_LEFT + width * number:.1f}" y="{top:.1f}" width="{width * 0.8:.1f}" height="{284 - top:.1f}"'
        yield f'<rect class="moves" {place}><title>{told}</title></rect>'


def sweep_chart(figures: Mapping[str, Figures], front: Iterable[str], live: Figures) -> str:
    """Draw a dot for each variant and for `live`: x is `cut`, y is `area` (see `Figures`).

    If `cut` is not known for one of the dots, x is the number of moves for all of them. front: the variants that no
    other variant beats.
    """
    best = set(front)
    known = all(one.cut == one.cut for one in [*figures.values(), live])
    cost = {name: one.cut if known else float(one.moves) for name, one in {**figures, "live": live}.items()}
    area = {name: one.area for name, one in {**figures, "live": live}.items() if isfinite(one.area)}
    x = _Axis(0, _nice(1.02 * max(*cost.values(), 1e-9)), _LEFT, _RIGHT)
    y = _Axis(0, _nice(1.02 * max([*area.values(), 1e-9])), 250, 14)
    body = [
        *_value_axis(y, ""),
        f'<text class="axis" x="{_RIGHT}" y="284" text-anchor="end">{"clients cut, %" if known else "moves"}</text>',
    ]
    body += [f'<text class="axis" x="{x(at):.1f}" y="268" text-anchor="middle">{at:g}</text>' for at in _marks(x)]
    ordered = sorted((cost[name], area[name]) for name in best & area.keys())
    steps = " ".join(f"{x(across):.1f},{y(up):.1f}" for across, up in ordered)
    body.append(f'<polyline class="front" points="{steps}"/>')
    for name, up in area.items():
        across = cost[name]
        kind = "live" if name == "live" else "best" if name in best else "other"
        told = f"<title>{escape(name)}: {across:.1f}, area {up:.1f}</title>"
        body.append(f'<circle class="dot {kind}" cx="{x(across):.1f}" cy="{y(up):.1f}" r="5">{told}</circle>')
    return _svg(body, 290, "Disconnected clients and remaining difference between the brokers, by variant")


@dataclass(frozen=True, slots=True)
class HeatMap:
    """One figure by the values of two fields. cells: (row, column) -> figure; pairs that were not tried are absent."""

    across: str
    up: str
    columns: Sequence[str]
    rows: Sequence[str]
    cells: Mapping[tuple[str, str], float]

    def table(self, what: str) -> str:
        """The map as an HTML table. Larger values are darker. what: the name of the figure."""
        low, high = min(self.cells.values()), max(self.cells.values())
        head = "".join(f"<th>{escape(column)}</th>" for column in self.columns)
        rows = []
        for row in self.rows:
            cells = "".join(self._cell(self.cells.get((row, column)), low, high) for column in self.columns)
            rows.append(f"<tr><th>{escape(row)}</th>{cells}</tr>")
        corner = f"<th>{escape(self.up)} \\ {escape(self.across)}</th>"
        return f'<table class="heat"><caption>{escape(what)}</caption><tr>{corner}{head}</tr>{"".join(rows)}</table>'

    @staticmethod
    def _cell(value: float | None, low: float, high: float) -> str:
        if value is None or value != value:  # noqa: PLR0124 - NaN: not known
            return "<td>-</td>"
        share = (value - low) / (high - low) if high > low else 0.0
        return f'<td style="--share: {share:.2f}">{value:.4g}</td>'


def _time_axis(x: _Axis, foot: float) -> Iterator[str]:
    step = next((step for step in _STEPS if (x.high - x.low) / step <= _MARKS), _STEPS[-1])
    first = ceil(x.low / step) * step
    for at in np.arange(first, x.high, step).tolist():
        when = datetime.fromtimestamp(at, UTC)
        text = (
            f"{when:%b %d}"
            if step >= _STEPS[-3]
            else f"{when:%b %d %H:%M}"
            if when.hour == when.minute == 0
            else f"{when:%H:%M}"
        )
        yield f'<line class="rule" x1="{x(at):.1f}" x2="{x(at):.1f}" y1="14" y2="{foot - 16:.0f}"/>'
        yield f'<text class="axis" x="{x(at):.1f}" y="{foot:.0f}" text-anchor="middle">{text}</text>'


def _value_axis(y: _Axis, unit: str) -> Iterator[str]:
    for value in _marks(y):
        yield f'<line class="rule" x1="{_LEFT}" x2="{_RIGHT}" y1="{y(value):.1f}" y2="{y(value):.1f}"/>'
        yield f'<text class="axis" x="{_LEFT - 6}" y="{y(value) + 4:.1f}" text-anchor="end">{value:g}{unit}</text>'


def _marks(scale: _Axis) -> list[float]:
    return [float(f"{scale.high * part / 4:.6g}") for part in range(5)]


def _nice(most: float) -> float:
    """The least round number that is not below `most`, and whose quarters are round, too."""
    size = 10.0 ** floor(log10(most)) if most > 0 else 1.0
    return next(size * step for step in (1, 2, 4, 6, 8, 10) if size * step >= most)


def _line(times: FloatArray, values: FloatArray, axes: _Axes, kind: str, name: str) -> str:
    """A path with gaps where values are not known."""
    x, y = axes
    steps, drawn = [], False
    for at, value in zip(times.tolist(), values.tolist(), strict=True):
        known = value == value  # noqa: PLR0124 - NaN: not known
        if known:
            steps.append(f"{'L' if drawn else 'M'}{x(at):.1f},{y(min(value, y.high)):.1f}")
        drawn = known
    return f'<path class="{kind}" d="{" ".join(steps)}"><title>{escape(name)}</title></path>'


def _band(times: FloatArray, edges: tuple[FloatArray, FloatArray], axes: _Axes, kind: str) -> str:
    (low, high), (x, y) = edges, axes
    known = np.isfinite(low) & np.isfinite(high)
    at = [x(value) for value in times[known].tolist()]
    top, foot = ([y(min(value, y.high)) for value in edge[known].tolist()] for edge in (high, low))
    points = [*zip(at, top, strict=True), *zip(at[::-1], foot[::-1], strict=True)]
    return f'<polygon class="{kind}" points="{" ".join(f"{a:.1f},{b:.1f}" for a, b in points)}"/>'


def _written(at: float) -> str:
    return f"{datetime.fromtimestamp(at, UTC):%b %d %H:%M}"


def _short(name: str, most: int = 28) -> str:
    return name if len(name) <= most else f"{name[: most - 1]}…"


def _svg(body: Iterable[str], height: float, label: str) -> str:
    head = f'<svg viewBox="0 0 {WIDTH:.0f} {height:.0f}" role="img" aria-label="{escape(label)}">'
    return "\n".join([head, *body, "</svg>"])
