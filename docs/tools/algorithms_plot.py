"""Runs of the simulation as SVG: usage of each broker over the hour, and moves per minute."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape

import numpy as np

from trimtab_lab.simulation import Record
from trimtab_strategies.model.cluster_load import FloatArray

INK, TOLD, PALE, MOVED = "#333333", "#666666", "#dddddd", "#cc79a7"

SIZE, SMALL, TITLE = 14, 13, 17
"""Font sizes in pixels. A drawing is 480 pixels wide, and a phone shows it at three quarters of that."""

_CELL, _ROW = (480.0, 292.0)
_LEFT, _WIDTH = 58.0, 400.0
_TOP, _HEIGHT, _BARS = 78.0, 130.0, 34.0
_HIGHEST = 1.2  # ratio of usage at the upper edge
_COLD, _WARM = (0x56, 0xB4, 0xE9), (0xD5, 0x5E, 0x00)


@dataclass(frozen=True, slots=True)
class Panel:
    """One run. title: the strategy; told: its result in two short lines."""

    title: str
    told: tuple[str, str]
    record: Record


def draw(title: str, panels: Sequence[Panel]) -> str:
    """The text of an SVG file, one panel below the other to fit on a phone."""
    most = max(int(panel.record.moves.max(initial=1)) for panel in panels)
    body = []
    for n, panel in enumerate(panels):
        inside = "\n".join(_panel(panel, most))
        body.append(f'<g transform="translate(0,{n * _ROW:.0f})">\n{inside}\n</g>')
    return svg(_CELL, _ROW * len(panels), title, body)


def svg(width: float, height: float, title: str, body: Sequence[str]) -> str:
    """A whole SVG file on white, readable on a dark page, too."""
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}"'
    style = f' viewBox="0 0 {width:.0f} {height:.0f}" font-family="sans-serif" font-size="{SIZE}" fill="{INK}">'
    parts = [f"<title>{escape(title)}</title>", "<rect width='100%' height='100%' fill='white'/>", *body]
    return "\n".join([head + style, *parts, "</svg>\n"])


def text(x: float, y: float, words: str, *, size: int = SIZE, anchor: str = "start", color: str = INK) -> str:
    look = f'font-size="{size}" text-anchor="{anchor}" fill="{color}"'
    return f'<text x="{x:.1f}" y="{y:.1f}" {look}>{escape(words)}</text>'


def shade(share: float) -> str:
    """Colour between cold (0) and warm (1)."""
    mixed = (round(cold + (warm - cold) * share) for cold, warm in zip(_COLD, _WARM, strict=True))
    return "#" + "".join(f"{part:02x}" for part in mixed)


def _panel(panel: Panel, most: int) -> Iterator[str]:
    pressure, moves = panel.record.pressure, panel.record.moves
    yield text(_LEFT, 24, panel.title, size=TITLE)
    yield from (text(_LEFT, 45 + 18 * n, line, color=TOLD) for n, line in enumerate(panel.told))
    for value in (0.0, 0.5, 1.0):
        y = _y(value)
        yield f'<line x1="{_LEFT}" x2="{_LEFT + _WIDTH}" y1="{y:.1f}" y2="{y:.1f}" stroke="{PALE}"/>'
        yield text(_LEFT - 6, y + 4, f"{value * 100:.0f} %", anchor="end", size=SMALL)
    starts = pressure[0]
    for broker in np.argsort(np.nan_to_num(starts), kind="stable").tolist():
        yield _line(pressure[:, broker], shade(_share(float(starts[broker]), starts)))
    yield from _bars(moves.tolist(), most)
    rounds = len(moves)
    for minute in range(0, rounds + 1, 20):
        x = _LEFT + _WIDTH * minute / rounds
        yield text(x, _TOP + _HEIGHT + _BARS + 28, f"{minute} min", anchor="middle", size=SMALL, color=TOLD)


def _share(value: float, among: FloatArray) -> float:
    """Where a broker's first value is between the lowest and the highest, as a ratio 0-1."""
    lowest, highest = float(np.nanmin(among)), float(np.nanmax(among))
    return 0.5 if highest == lowest else (value - lowest) / (highest - lowest)


def _y(value: float) -> float:
    return _TOP + _HEIGHT * (1 - min(value, _HIGHEST) / _HIGHEST)


def _line(values: FloatArray, color: str) -> str:
    """A path with gaps where the broker is away."""
    width, steps, pen = _WIDTH / (len(values) - 1), list[str](), "M"
    for k, value in enumerate(values.tolist()):
        known = not np.isnan(value)
        if known:
            steps.append(f"{pen}{_LEFT + k * width:.1f},{_y(value):.1f}")
        pen = "L" if known else "M"
    return f'<path d="{" ".join(steps)}" fill="none" stroke="{color}" stroke-width="1.6"/>'


def _bars(moves: Sequence[int], most: int) -> Iterator[str]:
    bottom, width = _TOP + _HEIGHT + _BARS + 10, _WIDTH / len(moves)
    for k, count in enumerate(moves):
        if count:
            height = max(1.5, _BARS * count / most)
            where = f'x="{_LEFT + k * width:.1f}" y="{bottom - height:.1f}"'
            yield f'<rect {where} width="{width - 1:.1f}" height="{height:.1f}" fill="{MOVED}"/>'
    yield f'<line x1="{_LEFT}" x2="{_LEFT + _WIDTH}" y1="{bottom}" y2="{bottom}" stroke="{PALE}"/>'
    yield text(_LEFT - 6, bottom, "moves", anchor="end", size=SMALL, color=MOVED)
