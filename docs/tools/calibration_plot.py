"""Drawings of the calibration: CPU over time on real brokers and in the lab, and CPU against messages."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from html import escape
from typing import Any

import numpy as np
from calibration_figures import LAB_STEP, REAL_STEP, Points, values

from trimtab_strategies.model.cluster_load import FloatArray

COLORS = (("#0072b2", "#56b4e9"), ("#b34700", "#ff9e4a"), ("#007a5a", "#4fd1a5"))
"""Colour of each broker on light, and on dark."""

SMALL, TITLE = 13, 17
"""Font sizes in pixels. A drawing is 480 pixels wide, and a phone shows it at three quarters of that."""

WIDTH, PANEL = 480.0, 300.0
LEFT, PLOT = 58.0, 404.0
_TOP, _HEIGHT, _TICKS = 56.0, 170.0, 34.0
_HIGHEST = 100.0

_STYLE = """\
text { fill: #222222; font-family: sans-serif }
.pale { fill: #595959 }
.page { fill: #ffffff } .grid { stroke: #dddddd } .mark { stroke: #a3437a; stroke-width: 2 } .event { stroke: #777777 }
.line { fill: none; stroke-width: 2 } .fit { stroke: #222222 }
@media (prefers-color-scheme: dark) {
text { fill: #eeeeee } .pale { fill: #bbbbbb }
.page { fill: #1e2129 } .grid { stroke: #444a55 } .mark { stroke: #f0a0cc } .event { stroke: #999999 }
.fit { stroke: #eeeeee }
DARK}
"""


def traces(data: Mapping[str, Any], changed: float) -> str:
    """CPU of each broker over time: the real run above, the lab's below. changed: minute in which the load changes."""
    minutes = len(data["lab"]["cpu"])
    names = (("real", "Real brokers", REAL_STEP), ("lab", "The lab", LAB_STEP))
    body = []
    for place, (side, title, step) in enumerate(names):
        inside = "\n".join(_trace(data[side], title, step, minutes, changed))
        body.append(f'<g transform="translate(0,{place * PANEL:.0f})">\n{inside}\n</g>')
    return svg(2 * PANEL, "CPU of three brokers over time, on real brokers and in the lab", body)


def curve(points: Points, fitted: Callable[[FloatArray], FloatArray], lab: Callable[[FloatArray], FloatArray]) -> str:
    """CPU against messages/s: a dot for each broker and minute, the curve through them, and the lab's."""
    most = float(np.ceil(points.rates.max() / 50) * 50)
    x = lambda rate: LEFT + PLOT * rate / most  # noqa: E731 - an axis
    body = [text(LEFT, 26, "CPU by messages/s of a broker", "title"), *_levels()]
    ticks = range(0, int(most) + 1, 100)
    body += [text(x(rate), _TOP + _HEIGHT + 22, str(rate), "pale", "middle") for rate in ticks]
    body.append(text(LEFT + PLOT, _TOP + _HEIGHT + 42, "messages/s", "pale", "end"))
    for rate, cpu, broker, grown in zip(points.rates, points.cpu, points.brokers, points.grown, strict=True):
        look = f'class="line s{broker}"' if grown else f'class="b{broker}" fill-opacity="0.6"'
        body.append(f'<circle cx="{x(rate):.1f}" cy="{_y(cpu):.1f}" r="4" {look}/>')
    grid = np.linspace(0, most, 80)
    for function, dashes in ((fitted, ""), (lab, ' stroke-dasharray="7 5"')):
        line = path(zip(x(grid).tolist(), map(_y, function(grid).tolist()), strict=True))
        body.append(f'<path d="{line}" class="line fit"{dashes}/>')
    body.append(text(LEFT, 46, "dots: minutes; rings: bundle grown; line: fit; dashes: lab", "pale"))
    return svg(PANEL, "CPU of a broker against the messages that it serves", body)


def _trace(side: Mapping[str, Any], title: str, step: float, minutes: int, changed: float) -> Iterator[str]:
    yield text(LEFT, 26, title, "title")
    for broker in range(len(COLORS)):
        at = LEFT + 110 * broker
        yield f'<line x1="{at}" x2="{at + 22}" y1="42" y2="42" class="line s{broker}"/>'
        yield text(at + 28, 47, f"broker {broker}", "pale")
    yield from _levels()
    x = lambda minute: LEFT + PLOT * minute / minutes  # noqa: E731 - an axis
    yield f'<line x1="{x(changed):.1f}" x2="{x(changed):.1f}" y1="{_TOP}" y2="{_TOP + _HEIGHT}" class="event"'
    yield ' stroke-dasharray="4 4"/>'
    yield text(x(changed) + 5, _TOP + 14, "one bundle x 6", "pale")
    cpu = values(side["cpu"])
    for broker in range(cpu.shape[1]):
        yield f'<path d="{_steps(cpu[:, broker], step / 60, x)}" class="line s{broker}"/>'
    yield from _moves(side["moves"], x)
    for minute in range(0, minutes + 1, 2):
        yield text(x(minute), _TOP + _HEIGHT + _TICKS + 22, f"{minute} min", "pale", "middle")


def _moves(moves: Sequence[Mapping[str, Any]], x: Callable[[float], float]) -> Iterator[str]:
    top = _TOP + _HEIGHT
    for move in moves:
        at = x(move["at"] / 60)
        yield f'<line x1="{at:.1f}" x2="{at:.1f}" y1="{top + 8}" y2="{top + 24}" class="mark"/>'
    yield text(LEFT - 6, top + 21, "moves", "pale", "end")
    plans: dict[int, int] = {}
    for move in moves:
        minute = int(move["at"] // 60)
        plans[minute] = plans.get(minute, 0) + 1
    for minute, count in plans.items():
        last = max(move["at"] for move in moves if move["at"] // 60 == minute)
        yield text(x(last / 60) + 5, top + 21, str(count), "pale")


def _levels() -> Iterator[str]:
    for percent in (0, 25, 50, 75, 100):
        y = _y(percent)
        yield f'<line x1="{LEFT}" x2="{LEFT + PLOT}" y1="{y:.1f}" y2="{y:.1f}" class="grid"/>'
        yield text(LEFT - 6, y + 5, f"{percent} %", "pale", "end")


def _y(percent: float) -> float:
    return _TOP + _HEIGHT * (1 - min(percent, _HIGHEST) / _HIGHEST)


def _steps(cpu: FloatArray, step: float, x: Callable[[float], float]) -> str:
    """A line of steps: each value holds for `step` minutes."""
    points = []
    for place, value in enumerate(cpu.tolist()):
        if not np.isnan(value):
            points += [(x(place * step), _y(value)), (x((place + 1) * step), _y(value))]
    return path(points)


def path(points: Iterable[tuple[float, float]]) -> str:
    """The ``d`` of a line through points."""
    return "M" + " L".join(f"{x:.1f},{y:.1f}" for x, y in points)


def text(x: float, y: float, words: str, look: str = "", anchor: str = "start") -> str:
    """Words at a place. look: ``title``, ``pale`` or plain."""
    size = TITLE if look == "title" else SMALL
    place = f'x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}"'
    return f'<text {place} class="{look}">{escape(words)}</text>'


def svg(height: float, title: str, body: Sequence[str]) -> str:
    """A whole file, `WIDTH` wide, with the `COLORS` of brokers as classes ``s0`` (stroke) and ``b0`` (fill)."""
    light = "".join(f".s{n} {{ stroke: {c} }} .b{n} {{ fill: {c} }}\n" for n, (c, _) in enumerate(COLORS))
    dark = "".join(f".s{n} {{ stroke: {c} }} .b{n} {{ fill: {c} }}\n" for n, (_, c) in enumerate(COLORS))
    style, _, media = _STYLE.partition("@media")
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH:.0f}" height="{height:.0f}"'
    parts = [
        f'{head} viewBox="0 0 {WIDTH:.0f} {height:.0f}" role="img">',
        f"<title>{escape(title)}</title>",
        f"<style>\n{style}{light}@media{media.replace('DARK', dark)}</style>",
        '<rect width="100%" height="100%" class="page"/>',
        *body,
        "</svg>\n",
    ]
    return "\n".join(parts)
