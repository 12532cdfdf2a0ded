"""The comparison as SVG: connections cut against imbalance, over all scenarios and in each one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import ceil, sqrt

from algorithms_plot import INK, PALE, SIZE, SMALL, TITLE, TOLD, svg, text
from comparison_data import OURS, STRATEGIES, Comparison, moving, overviews

WIDTH = 480.0
"""Pixels of a drawing; a phone shows a drawing at three quarters of its size."""

_LOOKS: Mapping[str, tuple[str, str]] = {
    "Trim": ("#d55e00", "M0,-7L1.9,-2.4L6.8,-2.1L3,1L4.3,5.8L0,3.1L-4.3,5.8L-3,1L-6.8,-2.1L-1.9,-2.4Z"),
    "ThresholdShedder": ("#0072b2", "M-4.2,-4.2H4.2V4.2H-4.2Z"),
    "OverloadShedder": ("#777777", "M-5,-1.6H-1.6V-5H1.6V-1.6H5V1.6H1.6V5H-1.6V1.6H-5Z"),
    "UniformLoadShedder": ("#009e73", "M0,-5.4L5.2,3.8H-5.2Z"),
    "AvgShedder": ("#cc79a7", "M0,-5.8L5.8,0L0,5.8L-5.8,0Z"),
    "WeightedBalancer": ("#56b4e9", "M-4.6,0A4.6,4.6 0 1,0 4.6,0A4.6,4.6 0 1,0 -4.6,0Z"),
    "TransferShedder": ("#8a6d00", "M0,5.4L5.2,-3.8H-5.2Z"),
}
"""Colour and outline of each shedder's mark. A mark without filling shows the shedder as Pulsar runs it."""

_SPARE = ("#333333", "M-4,-2H4V2H-4Z")


@dataclass(frozen=True, slots=True)
class _Frame:
    """An area for marks, in pixels, and the highest values at its right and upper edge.

    The connections have a square-root scale, because some strategies cut twenty times as many as others.
    """

    left: float
    top: float
    width: float
    height: float
    cut: float
    area: float

    def at(self, cut: float, area: float) -> tuple[float, float]:
        return self.left + self.width * sqrt(cut / self.cut), self.top + self.height * (1 - area / self.area)


def over_all() -> str:
    """One chart: the medians over the scenarios in which something should move."""
    points = {one.strategy: (one.cut, one.area) for one in overviews()}
    frame = _framed(58, 56, 400, 280, list(points.values()))
    title = "Connections cut against imbalance, medians over the scenarios"
    body = [
        text(58, 24, "Connections cut against imbalance", size=TITLE),
        text(58, 44, "median over the scenarios in which something should move", size=SMALL, color=TOLD),
        *_axes(frame, SMALL),
        *_front(frame, points),
        *_marks(frame, points),
        text(
            frame.left + frame.width / 2,
            frame.top + frame.height + 38,
            "connections cut, % of all, on a square-root scale",
            anchor="middle",
        ),
        _upright(16, frame.top + frame.height / 2, "imbalance over the run, points"),
        *_legend(frame.top + frame.height + 62),
    ]
    return svg(WIDTH, frame.top + frame.height + 62 + _legend_height(), title, body)


def in_each() -> str:
    """A small chart for each scenario in which something should move, with the same marks."""
    scenarios, columns, cell = moving(), 2, (240.0, 174.0)
    head = 44 + _legend_height()
    body = [text(14, 22, "Connections cut (%, to the right), imbalance (points, upwards)", size=SIZE), *_legend(44)]
    for number, one in enumerate(scenarios):
        x, y = number % columns * cell[0], head + number // columns * cell[1]
        body.append(f'<g transform="translate({x:.0f},{y:.0f})">\n' + "\n".join(_small(one)) + "\n</g>")
    return svg(WIDTH, head + ceil(len(scenarios) / columns) * cell[1], "The comparison in each scenario", body)


def _small(one: Comparison) -> Iterator[str]:
    points = {who: (cell["cut"].median, cell["area"].median) for who, cell in one.cells.items()}
    frame = _framed(40, 34, 186, 112, list(points.values()))
    yield text(14, 20, one.scenario.title, size=SMALL)
    yield from _axes(frame, SMALL)
    yield from _front(frame, points)
    yield from _marks(frame, points)


def _framed(left: float, top: float, width: float, height: float, points: Sequence[tuple[float, float]]) -> _Frame:
    cut, area = (max(values) for values in zip(*points, strict=True))
    return _Frame(left, top, width, height, _round_up(cut, 4), _round_up(area, 2))


def _round_up(value: float, parts: int) -> float:
    """A round number above `value`, so that no mark is on the edge. Divided by `parts`, it is round, too."""
    steps = (parts * part for part in (0.5, 1, 2, 3, 5, 10, 15, 20, 25, 30, 40, 50, 75, 100, 150, 200, 250))
    return next((step for step in steps if step >= value * 1.05), ceil(value * 1.05))


def _axes(frame: _Frame, size: int) -> Iterator[str]:
    """Lines at 0, in the middle and at the edge. The middle is half of the imbalance, a quarter of the connections."""
    right, bottom = frame.left + frame.width, frame.top + frame.height
    for cut, area in ((0.0, 0.0), (frame.cut / 4, frame.area / 2), (frame.cut, frame.area)):
        x, y = frame.at(cut, area)
        yield f'<line x1="{frame.left}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}" stroke="{PALE}"/>'
        yield f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{frame.top}" y2="{bottom}" stroke="{PALE}"/>'
        yield text(frame.left - 6, y + 4, f"{area:g}", anchor="end", size=size, color=TOLD)
        yield text(x, bottom + 16, f"{cut:g}", anchor="middle", size=size, color=TOLD)


def _front(frame: _Frame, points: Mapping[str, tuple[float, float]]) -> Iterator[str]:
    """The steps that join the strategies that no other one beats in both connections and imbalance."""
    best, steps = frame.area, list[str]()
    for cut, area in sorted(points.values()):
        if area < best:
            (x, y), (_, above) = frame.at(cut, area), frame.at(cut, best)
            steps.append(f"{'L' if steps else 'M'}{x:.1f},{above:.1f}L{x:.1f},{y:.1f}")
            best = area
    x, y = frame.at(frame.cut, best)
    path = "".join(steps) + f"L{x:.1f},{y:.1f}"
    yield f'<path d="{path}" fill="none" stroke="{TOLD}" stroke-dasharray="3 3"/>'


def _marks(frame: _Frame, points: Mapping[str, tuple[float, float]]) -> Iterator[str]:
    """Trim is drawn last, above the others."""
    for who in sorted(points, key=lambda name: name == OURS):
        yield _mark(who, *frame.at(*points[who]))


def _mark(strategy: str, x: float, y: float) -> str:
    shedder, _, run_by = strategy.partition("/")
    color, outline = _LOOKS.get(shedder, _SPARE)
    filling = color if run_by == "Trimtab" else "white"
    look = f'fill="{filling}" fill-opacity="0.85" stroke="{color}" stroke-width="1.6"'
    return f'<path transform="translate({x:.1f},{y:.1f})" d="{outline}" {look}><title>{strategy}</title></path>'


def _legend(top: float) -> Iterator[str]:
    shedders = _shedders()
    for number, shedder in enumerate(shedders):
        x, y = 66 + number % 2 * 206, top + number // 2 * 22
        yield _mark(f"{shedder}/Trimtab", x, y - 5)
        yield text(x + 14, y, shedder, size=SIZE, color=INK)
    y = top + ceil(len(shedders) / 2) * 22
    yield text(58, y, "filled: under Trimtab; outline: as Pulsar runs it; dashed: the best", size=SMALL, color=TOLD)


def _legend_height() -> float:
    return ceil(len(_shedders()) / 2) * 22 + 12.0


def _shedders() -> list[str]:
    return list(dict.fromkeys(name.partition("/")[0] for name in STRATEGIES))


def _upright(x: float, y: float, words: str) -> str:
    return f'<g transform="translate({x:.0f},{y:.0f}) rotate(-90)">{text(0, 0, words, anchor="middle")}</g>'
