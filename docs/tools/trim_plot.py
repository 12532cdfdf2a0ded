"""Charts as SVG for light and dark pages: axes with units, lines, dots and words in classes of one style sheet."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from math import log10

import numpy as np

from trimtab_strategies.model.cluster_load import FloatArray

WIDTH = 480.0
"""Pixels of a drawing, which a phone shows at three quarters of its size."""

LETTERS, SMALL, TITLE = 14, 13, 16
"""Font sizes in pixels. The smallest that can be read on a phone is 12."""

_LIGHT = {
    "page": "#ffffff", "ink": "#24292f", "soft": "#57606a", "grid": "#d8dee4", "band": "#eaeef2", "many": "#c2843c",
    "cold": "#0969da", "warm": "#bc4c00", "rare": "#8250df", "good": "#1a7f37",
}  # fmt: skip
_DARK = {
    "page": "#161b22", "ink": "#e6edf3", "soft": "#9ba6b2", "grid": "#30363d", "band": "#242b33", "many": "#d29a55",
    "cold": "#58a6ff", "warm": "#f0883e", "rare": "#bc8cff", "good": "#3fb950",
}  # fmt: skip
"""Colours by role. Each is a CSS class that fills a shape. The class with the prefix `line-` draws its outline."""


def svg(height: float, title: str, body: Sequence[str]) -> str:
    """A whole SVG file with its own background. title: for screen readers."""
    size = f'width="{WIDTH:.0f}" height="{height:.0f}" viewBox="0 0 {WIDTH:.0f} {height:.0f}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} role="img" font-family="sans-serif" font-size="{LETTERS}">'
    dark = "@media (prefers-color-scheme: dark) {" + _rules(_DARK) + "}"
    style = f"<style>{_rules(_LIGHT)}{dark}</style>"
    paper = "<rect class='page' width='100%' height='100%'/>"
    return "\n".join([head, f"<title>{escape(title)}</title>", style, paper, *body, "</svg>\n"])


def _rules(colors: dict[str, str]) -> str:
    return "".join(
        f".{name} {{fill: {color}}} .line-{name} {{stroke: {color}; fill: none}} " for name, color in colors.items()
    )


def text(x: float, y: float, words: str, color: str = "ink", *, size: int = LETTERS, anchor: str = "start") -> str:
    """Words at a place, in one of the colours."""
    place = f'x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}"'
    return f'<text class="{color}" {place}>{escape(words)}</text>'


@dataclass(frozen=True)
class Axes:
    """A field of a drawing with its scales. x, y: the values at its edges. logarithmic: the scale of y."""

    left: float
    top: float
    width: float
    height: float
    x: tuple[float, float]
    y: tuple[float, float]
    logarithmic: bool = False

    def at_x(self, value: float) -> float:
        """Pixels from the left of the drawing."""
        return self.left + self.width * (value - self.x[0]) / (self.x[1] - self.x[0])

    def at_y(self, value: float) -> float:
        """Pixels from the top of the drawing."""
        low, high = self.y
        share = log10(value / low) / log10(high / low) if self.logarithmic else (value - low) / (high - low)
        return self.top + self.height * (1 - share)

    def frame(
        self, xs: Sequence[float], ys: Sequence[float], x_unit: str, y_unit: str, title: str = ""
    ) -> Iterator[str]:
        """Grid lines with their values, what the axes show, and a heading."""
        bottom = self.top + self.height
        if title:
            yield text(self.left, self.top - 29, title)
        yield text(self.left, self.top - 10, y_unit, "soft", size=SMALL)
        for value in ys:
            y = self.at_y(value)
            yield f'<path class="line-grid" d="M{self.left:.1f},{y:.1f}h{self.width:.1f}"/>'
            yield text(self.left - 7, y + 4.5, f"{value:g}", "soft", size=SMALL, anchor="end")
        for value in xs:
            yield text(self.at_x(value), bottom + 17, f"{value:g}", "soft", size=SMALL, anchor="middle")
        yield text(self.left + self.width, bottom + 33, x_unit, "soft", size=SMALL, anchor="end")

    def line(self, xs: Sequence[float], ys: Sequence[float], color: str, *, wide: float = 1.6, dash: str = "") -> str:
        """A line with gaps where a value is not known."""
        steps, pen = list[str](), "M"
        for x, y in zip(xs, ys, strict=True):
            known = bool(np.isfinite(y))
            if known:
                steps.append(f"{pen}{self.at_x(x):.1f},{self.at_y(y):.1f}")
            pen = "L" if known else "M"
        look = f'stroke-width="{wide}" stroke-linejoin="round"' + (f' stroke-dasharray="{dash}"' if dash else "")
        return f'<path class="line-{color}" {look} d="{"".join(steps)}"/>'

    def stairs(self, ys: FloatArray, color: str, *, wide: float = 1.6) -> str:
        """A line that stays at each value for one unit of x, from 0 on."""
        xs = np.repeat(np.arange(len(ys) + 1), 2)[1:-1]
        return self.line(xs.tolist(), np.repeat(ys, 2).tolist(), color, wide=wide)

    def bar(self, x: float, until: float, y: float, base: float, color: str) -> str:
        """A filled rectangle from `base` to `y`."""
        left, right = self.at_x(x), self.at_x(until)
        high, low = sorted((self.at_y(y), self.at_y(base)))
        place = f'x="{left:.1f}" y="{high:.1f}" width="{right - left:.1f}" height="{low - high:.1f}"'
        return f'<rect class="{color}" {place}/>'

    def dots(self, xs: FloatArray, ys: FloatArray, color: str, *, size: float = 4.0, pale: bool = False) -> str:
        """Round dots, all in one path. Those outside of the field are left out."""
        inside = (xs >= self.x[0]) & (xs <= self.x[1]) & (ys >= self.y[0]) & (ys <= self.y[1])
        places = zip(xs[inside].tolist(), ys[inside].tolist(), strict=True)
        steps = "".join(f"M{self.at_x(x):.1f},{self.at_y(y):.1f}h0" for x, y in places)
        look = f'stroke-width="{size:g}" stroke-linecap="round"' + (' stroke-opacity=".45"' if pale else "")
        return f'<path class="line-{color}" {look} d="{steps}"/>'

    def note(self, x: float, y: float, words: str, color: str = "ink", *, anchor: str = "start") -> str:
        """Words at a place in the field."""
        return text(self.at_x(x), self.at_y(y), words, color, size=SMALL, anchor=anchor)
