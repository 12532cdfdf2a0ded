"""Draws the runs of `side_by_side_page` as an SVG: the brokers' messages and CPU over time, and each move."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from itertools import pairwise
from typing import Any

from side_by_side_words import title

COLORS = ("#0072b2", "#d55e00", "#009e73")
"""Of the brokers; told apart by those who see few colours, too."""

STEP = 10.0
"""Seconds between two points of a series."""

_SIZE, _SMALL, _TITLE = 14, 13, 16
_CELL, _ROW = (480.0, 262.0)
_LEFT, _WIDTH = 58.0, 408.0
_TOP, _RATES, _CPU = 60.0, 100.0, 50.0
_HEAD = 84.0


def draw(runs: Sequence[Mapping[str, Any]], rate: float) -> str:
    """The text of an SVG file, a run below the other, so that it fits on a phone. rate: messages/s of all brokers."""
    width, height = _CELL, _HEAD + _ROW * len(runs)
    parts = [
        "<rect width='100%' height='100%' fill='white'/>",
        _text(8, 20, "Messages/s and CPU (percent of its control group)"),
        _text(8, 40, "of each broker; a tick below is a move"),
        *_key(),
    ]
    for n, run in enumerate(runs):
        inside = "\n".join(_cell(run, rate))
        parts.append(f'<g transform="translate(0,{_HEAD + n * _ROW:.0f})">\n{inside}\n</g>')
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}"'
    style = f' viewBox="0 0 {width:.0f} {height:.0f}" font-family="sans-serif" font-size="{_SIZE}" fill="#333333">'
    body = "\n".join(parts)
    return f"{head}{style}\n<title>Pulsar's own balancers and Trimtab side by side</title>\n{body}\n</svg>\n"


def _key() -> Iterator[str]:
    for broker, color in enumerate(COLORS):
        x = 8.0 + broker * 100
        yield f'<rect x="{x:.0f}" y="53" width="12" height="12" fill="{color}"/>'
        yield _text(x + 18, 64, f"broker {broker}")


def _cell(run: Mapping[str, Any], rate: float) -> Iterator[str]:
    halves = (run["first"], run["shift"])
    rates = [row for half in halves for row in half["rates"]]
    cpu = [row for half in halves for row in half["cpu"]]
    shift, end = STEP * len(halves[0]["rates"]), STEP * len(rates)
    bottom = _TOP + _RATES + 12 + _CPU
    yield _text(8, 24, title(run), size=_TITLE)
    yield _text(8, 44, f"{halves[0]['moves']} moves, then {halves[1]['moves']}", color="#666666")
    yield from _frame(_TOP, _RATES, (0, rate / 3, rate), [f"{value:.0f}" for value in (0, rate / 3, rate)])
    yield from _frame(_TOP + _RATES + 12, _CPU, (0, 100), ["0 %", "100 %"])
    for broker, color in enumerate(COLORS):
        yield _line([row[broker] for row in rates], rate, (_TOP, _RATES), color)
        yield _line([row[broker] for row in cpu], 100.0, (_TOP + _RATES + 12, _CPU), color)
    at = _LEFT + _WIDTH * shift / end
    yield f'<line x1="{at:.1f}" x2="{at:.1f}" y1="{_TOP}" y2="{bottom}" stroke="#666666" stroke-dasharray="4 3"/>'
    moved = [*halves[0]["moved_at"], *(shift + time for time in halves[1]["moved_at"])]
    yield from (_tick(_LEFT + _WIDTH * time / end, bottom) for time in moved)
    for minute in range(0, int(end // 60) + 1, 2):
        x = _LEFT + _WIDTH * 60 * minute / end
        anchor = "middle" if x < _LEFT + 0.97 * _WIDTH else "end"  # the drawing ends there
        yield _text(x, bottom + 23, f"{minute} min", anchor=anchor, size=_SMALL, color="#666666")


def _frame(top: float, height: float, values: Sequence[float], told: Sequence[str]) -> Iterator[str]:
    for value, text in zip(values, told, strict=True):
        y = top + height * (1 - value / values[-1])
        yield f'<line x1="{_LEFT}" x2="{_LEFT + _WIDTH}" y1="{y:.1f}" y2="{y:.1f}" stroke="#dddddd"/>'
        yield _text(_LEFT - 6, y + 4, text, anchor="end", size=_SMALL)


def _line(values: Sequence[float | None], highest: float, where: tuple[float, float], color: str) -> str:
    """A path that pauses where nothing is known. where: top and height."""
    top, height = where
    points = [
        None
        if value is None
        else (_LEFT + _WIDTH * (k + 0.5) / len(values), top + height * (1 - min(value, highest) / highest))
        for k, value in enumerate(values)
    ]
    steps = [_point(point, "L" if before else "M") for before, point in pairwise([None, *points]) if point]
    return f'<path d="{" ".join(steps)}" fill="none" stroke="{color}" stroke-width="1.5"/>'


def _point(point: tuple[float, float], letter: str) -> str:
    return f"{letter}{point[0]:.1f},{point[1]:.1f}"


def _tick(x: float, y: float) -> str:
    return f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{y + 1:.1f}" y2="{y + 8:.1f}" stroke="#cc79a7"/>'


def _text(x: float, y: float, text: str, *, size: int = _SIZE, anchor: str = "start", color: str = "#333333") -> str:
    look = f'font-size="{size}" text-anchor="{anchor}" fill="{color}"'
    return f'<text x="{x:.1f}" y="{y:.1f}" {look}>{escape(text)}</text>'
