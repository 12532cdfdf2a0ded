"""Draws the load of each broker over time as an SVG: a panel per scenario and strategy, with the moves below.

The file suits light and dark pages. The color of a line shows the broker's usage at the start, so a picture shows
whether busy and idle brokers converge. The band surrounds the level at which the load would be even. It is as wide as
the range that counts as balanced.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from math import ceil, log10

import numpy as np

from trimtab_lab.simulation.build import build
from trimtab_lab.simulation.compare import Outcome
from trimtab_lab.simulation.scenario import Scenario
from trimtab_lab.simulation.score import LEVEL, OVERLOADED
from trimtab_strategies.model.cluster_load import FloatArray, IntArray

_STYLE = """\
text { font: 13px system-ui, sans-serif; fill: #24292f } .title { font-size: 15px; font-weight: 600 }
.small { fill: #57606a; font-size: 12px } .page { fill: #ffffff } .rule { stroke: #d0d7de }
.band { fill: #0072b2; opacity: 0.16 } .hot { stroke: #cf222e; stroke-dasharray: 4 4; opacity: 0.7 }
.broker { fill: none; stroke-width: 1.5; stroke-linejoin: round } .moves { fill: #8250df } .counts { fill: #8250df }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3 } .small { fill: #9198a1 } .page { fill: #0d1117 } .rule { stroke: #30363d }
  .band { fill: #58a6ff } .hot { stroke: #ff7b72 } .moves { fill: #bc8cff } .counts { fill: #bc8cff }
}"""

_COLD, _WARM, _EMPTY = (0x2F, 0x8F, 0xDD), (0xE0, 0x6C, 0x00), "#1a9e6a"
"""Colors of the brokers that were idlest and busiest at the start, and of those that had no load."""

_PANEL, _ROW = 480.0, 312.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 66.0, 452.0, 76.0, 226.0
_TICKS, _FOOT = 276.0, 296.0
_HEAD, _LEGEND = 34.0, 30.0
_SAMPLES = 600
"""Maximum number of points in a line. Over a longer run, each point is a mean."""
_BINS = 60
"""Maximum number of ticks for moves. Over a longer run, each tick counts several minutes."""
_MARKS = 6
_STEPS = (1, 2, 5, 10, 15, 20, 30, 60, 120, 240, 480, 720, 1440, 2880)
"""Minutes between two marks on the axis of time."""


def draw(scenarios: Mapping[str, Scenario], outcomes: Sequence[Outcome]) -> str:
    """The text of an SVG file: the first seed of each outcome."""
    body: list[str] = []
    top, columns = _LEGEND, 1
    for name, world in scenarios.items():
        shown = [outcome for outcome in outcomes if outcome.scenario == name]
        columns = max(columns, min(2, len(shown)))
        body.append(_text(16, top + 22, f"{name}: {world.title}, seed {shown[0].seeds[0]}", "title"))
        highest = _highest(shown)
        most = max(_binned(outcome.record.moves)[0].max() for outcome in shown)
        levels = build(world, np.random.default_rng(shown[0].seeds[0])).levels
        for number, outcome in enumerate(shown):
            x, y = _PANEL * (number % 2), top + _HEAD + _ROW * (number // 2)
            lines = "\n".join(_RunPanel(outcome, levels, highest, int(most)).lines())
            body.append(f'<g transform="translate({x:.0f},{y:.0f})">\n{lines}\n</g>')
        top += _HEAD + _ROW * ceil(len(shown) / 2)
    return _document(_PANEL * columns, top, [*_legend(), *body])


def _document(width: float, height: float, body: Sequence[str]) -> str:
    size = f'width="{width:.0f}" height="{height:.0f}" viewBox="0 0 {width:.0f} {height:.0f}"'
    head = [f'<svg xmlns="http://www.w3.org/2000/svg" {size}>', "<title>Load of the brokers over time</title>"]
    page = '<rect class="page" width="100%" height="100%"/>'
    return "\n".join([*head, f"<style>\n{_STYLE}\n</style>", page, *body, "</svg>\n"])


def _legend() -> Iterator[str]:
    """A row that explains the lines and the band."""
    for k in range(24):
        yield f'<rect x="{16 + 2 * k}" y="12" width="2" height="8" fill="{_shade(k / 23)}"/>'
    yield _text(70, 20, "idle to busy at the start", "small")
    yield f'<rect x="224" y="12" width="14" height="8" fill="{_EMPTY}"/>'
    yield _text(244, 20, "empty at first", "small")
    yield '<rect class="band" x="332" y="10" width="14" height="12"/>'
    yield _text(352, 20, f"level ± {LEVEL / 2:.0f} points", "small")


def _highest(outcomes: Sequence[Outcome]) -> float:
    """Upper edge of the panels, as a ratio: at least 1, at most 1.5."""
    most = max(float(np.nanmax(outcome.record.pressure)) for outcome in outcomes)
    return float(np.clip(ceil(most * 10) / 10, 1.0, 1.5))


@dataclass(frozen=True, slots=True)
class _RunPanel:
    """One run. levels: (rounds,) ratio. highest: ratio at the upper edge. most: moves of the longest tick."""

    outcome: Outcome
    levels: FloatArray
    highest: float
    most: int

    def lines(self) -> Iterator[str]:
        score, pressure = self.outcome.scores[0], self.outcome.record.pressure
        yield _text(_LEFT, 20, self.outcome.who.name, "title")
        waited = "never balanced" if score.balanced is None else f"balanced after {score.balanced} min"
        told = f"{score.moves} moves, {score.cut:.1f} % of clients cut, {waited}, cost {score.cost:.1f}"
        yield _text(_LEFT, 40, told, "small")
        yield _text(_LEFT, 60, "usage of each broker's busiest resource", "small")
        yield from self._axes()
        yield self._band()
        for broker in np.argsort(np.nan_to_num(pressure[0]), kind="stable").tolist():
            yield self._broker(broker)
        yield from self._ticks()

    def _axes(self) -> Iterator[str]:
        for value in np.arange(0, self.highest + 0.01, 0.5 if self.highest > 1 else 0.25).tolist():
            yield f'<line class="rule" x1="{_LEFT}" x2="{_RIGHT}" y1="{self._y(value):.1f}" y2="{self._y(value):.1f}"/>'
            yield _text(_LEFT - 6, self._y(value) + 4, f"{value * 100:.0f} %", "small", "end")
        hot = self._y(OVERLOADED)
        yield f'<line class="hot" x1="{_LEFT}" x2="{_RIGHT}" y1="{hot:.1f}" y2="{hot:.1f}"/>'
        yield _text(_RIGHT, hot - 4, "hot", "small", "end")
        rounds = len(self.outcome.record.moves)
        step = next((step for step in _STEPS if rounds / step <= _MARKS), _STEPS[-1])
        for minute in range(0, rounds + 1, step):
            unit = " min" if minute + step > rounds else ""
            yield _text(self._x(minute), _FOOT, f"{minute}{unit}", "small", "middle")

    def _x(self, minute: float) -> float:
        return _LEFT + (_RIGHT - _LEFT) * minute / len(self.outcome.record.moves)

    def _y(self, ratio: float) -> float:
        return _BOTTOM - (_BOTTOM - _TOP) * min(max(ratio, 0.0), self.highest) / self.highest

    def _band(self) -> str:
        """The level, and the points around it that count as balanced."""
        known = np.append(self.levels, self.levels[-1])
        minutes, levels = _sampled(np.arange(len(known)), known)
        half = LEVEL / 200
        above = [f"{self._x(m):.1f},{self._y(v + half):.1f}" for m, v in zip(minutes, levels, strict=True)]
        below = [f"{self._x(m):.1f},{self._y(v - half):.1f}" for m, v in zip(minutes, levels, strict=True)]
        return f'<polygon class="band" points="{" ".join([*above, *below[::-1]])}"/>'

    def _broker(self, broker: int) -> str:
        """A path with gaps where the broker is away."""
        values = self.outcome.record.pressure[:, broker]
        starts = self.outcome.record.pressure[0]
        minutes, sampled = _sampled(np.arange(len(values)), values)
        heights = ["" if np.isnan(value) else f"{self._y(value):.1f}" for value in sampled]
        steps = []
        for k, (minute, height) in enumerate(zip(minutes, heights, strict=True)):
            before, after = heights[k - 1] if k else "", heights[k + 1] if k + 1 < len(heights) else ""
            if height and not before == height == after:  # a straight line needs its ends only
                steps.append(f"{'L' if before else 'M'}{self._x(minute):.1f},{height}")
        ends = f"{_percent(values[0])} at the start, {_percent(values[-1])} at the end"
        named = f"<title>broker-{broker:02d}: {ends}</title>"
        return f'<path class="broker" stroke="{_color(starts, broker)}" d="{" ".join(steps)}">{named}</path>'

    def _ticks(self) -> Iterator[str]:
        """A tick for each bin of minutes with moves, and the number of moves where there is room."""
        counts, width = _binned(self.outcome.record.moves)
        room = -np.inf
        for number in np.flatnonzero(counts).tolist():
            count, x = int(counts[number]), self._x((number + 0.5) * width)
            high = max(2.0, 20.0 * count / self.most)
            place = f'x="{x - 1.5:.1f}" y="{_TICKS - high:.1f}" width="3" height="{high:.1f}"'
            yield f'<rect class="moves" {place}><title>{count} moves</title></rect>'
            if x - room >= 9 + 7 * int(log10(count)):
                yield _text(x, _TICKS - 4 - high, str(count), "small counts", "middle")
                room = x
        yield f'<line class="rule" x1="{_LEFT}" x2="{_RIGHT}" y1="{_TICKS}" y2="{_TICKS}"/>'
        yield _text(_LEFT - 6, _TICKS - 14, "moves", "small counts", "end")
        yield _text(_LEFT - 6, _TICKS, "per min" if width == 1 else f"in {width} min", "small counts", "end")


def _binned(moves: IntArray) -> tuple[IntArray, int]:
    """Moves of each bin, and the minutes of a bin."""
    width = ceil(len(moves) / _BINS)
    return np.add.reduceat(moves, np.arange(0, len(moves), width)), width


def _sampled(minutes: FloatArray | IntArray, values: FloatArray) -> tuple[list[float], list[float]]:
    """At most `_SAMPLES` points: the given ones, or means of equal parts."""
    width = ceil(len(values) / _SAMPLES)
    if width == 1:
        return minutes.tolist(), values.tolist()
    starts = np.arange(0, len(values), width)
    count = np.diff(np.append(starts, len(values)))
    return minutes[starts].tolist(), (np.add.reduceat(values, starts) / count).tolist()


def _color(starts: FloatArray, broker: int) -> str:
    """The color for a broker's first usage, relative to the lowest and highest one of brokers with load."""
    value, loaded = float(starts[broker]), starts[starts > 0]
    if not value > 0:
        return _EMPTY
    lowest, highest = float(loaded.min()), float(loaded.max())
    return _shade(0.5 if highest == lowest else (value - lowest) / (highest - lowest))


def _shade(share: float) -> str:
    """Color between cold (0) and warm (1)."""
    mixed = (round(cold + (warm - cold) * share) for cold, warm in zip(_COLD, _WARM, strict=True))
    return "#" + "".join(f"{part:02x}" for part in mixed)


def _percent(ratio: float) -> str:
    return "away" if np.isnan(ratio) else f"{ratio * 100:.0f} %"


def _text(x: float, y: float, words: str, look: str, anchor: str = "start") -> str:
    place = f'x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"'
    return f'<text class="{look}" {place}>{escape(words)}</text>'
