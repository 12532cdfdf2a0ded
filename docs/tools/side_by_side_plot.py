"""Drawing of the runs on real brokers: each broker's messages and CPU over time, and the moves."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from calibration_plot import COLORS, LEFT, PLOT, path, svg, text

STEP = 10.0
"""Seconds between two points of a series."""

_ROW, _HEAD = 274.0, 66.0
_TOP, _RATES, _GAP, _CPU = 56.0, 100.0, 14.0, 50.0
_BOTTOM = _TOP + _RATES + _GAP + _CPU


def draw(runs: Mapping[str, Mapping[str, Any]], rate: float) -> str:
    """The SVG file, with one run below the other, so that it fits on a phone.

    runs: by title, as `benchmarks/side_by_side.py` records them. rate: messages/s of all brokers.
    """
    body = [text(8, 24, "Messages/s and CPU of each broker", "title"), *_legend()]
    for place, (title, run) in enumerate(runs.items()):
        inside = "\n".join(_run(title, run, rate))
        body.append(f'<g transform="translate(0,{_HEAD + place * _ROW:.0f})">\n{inside}\n</g>')
    return svg(_HEAD + _ROW * len(runs), "Pulsar's own balancers and Trimtab on the same real brokers", body)


def _legend() -> Iterator[str]:
    for broker in range(len(COLORS)):
        x = 8 + 112 * broker
        yield f'<line x1="{x}" x2="{x + 22}" y1="45" y2="45" class="line s{broker}"/>'
        yield text(x + 28, 50, f"broker {broker}", "pale")
    yield '<line x1="346" x2="346" y1="38" y2="52" class="mark"/>'
    yield text(354, 50, "a move", "pale")


def _run(title: str, run: Mapping[str, Any], rate: float) -> Iterator[str]:
    halves = (run["first"], run["shift"])
    rates, cpu = ([row for half in halves for row in half[what]] for what in ("rates", "cpu"))
    shift, end = STEP * len(halves[0]["rates"]), STEP * len(rates)
    yield text(8, 24, title, "title")
    yield text(8, 44, f"{halves[0]['moves']} moves, then {halves[1]['moves']}", "pale")
    yield from _panel(_TOP, _RATES, rates, rate, [f"{value:.0f}" for value in (0, rate / 3, rate)])
    yield from _panel(_TOP + _RATES + _GAP, _CPU, cpu, 100.0, ["0 %", "", "100 %"])
    at = LEFT + PLOT * shift / end
    yield f'<line x1="{at:.1f}" x2="{at:.1f}" y1="{_TOP}" y2="{_BOTTOM}" class="event" stroke-dasharray="4 4"/>'
    for time in (*halves[0]["moved_at"], *(shift + time for time in halves[1]["moved_at"])):
        x = LEFT + PLOT * time / end
        yield f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{_BOTTOM + 2}" y2="{_BOTTOM + 12}" class="mark"/>'
    for minute in range(0, int(end // 60) + 1, 2):
        x = LEFT + PLOT * 60 * minute / end
        yield text(x, _BOTTOM + 30, f"{minute} min", "pale", "middle" if x < LEFT + 0.95 * PLOT else "end")


def _panel(
    top: float, height: float, rows: Sequence[Sequence[float | None]], most: float, names: Sequence[str]
) -> Iterator[str]:
    """A line for each broker over time. rows: (times, brokers), None unknown. names: of 0, `most` / 3 and `most`."""
    for value, name in zip((0, most / 3, most), names, strict=True):
        y = top + height * (1 - value / most)
        yield f'<line x1="{LEFT}" x2="{LEFT + PLOT}" y1="{y:.1f}" y2="{y:.1f}" class="grid"/>'
        yield text(LEFT - 6, y + 5, name, "pale", "end")
    series = np.array(rows, dtype=np.float64)
    x = LEFT + PLOT * (np.arange(len(series)) + 0.5) / len(series)
    for broker, values in enumerate(series.T):
        known = np.isfinite(values)
        y = top + height * (1 - np.minimum(values[known], most) / most)
        yield f'<path d="{path(zip(x[known].tolist(), y.tolist(), strict=True))}" class="line s{broker}"/>'
