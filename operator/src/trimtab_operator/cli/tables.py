"""Tables for a terminal.

On a narrow terminal less important columns are left out, and a line names them. If that is not enough, long names wrap.
Nothing is cut. In a pipe or a file, a table is as wide as its content, so that `grep` finds whole rows.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from rich import box
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

_ENDLESS = 10_000

_LINES = 25

_NAME = 12
"""Minimum width of the first column, unless its content is shorter."""


@dataclass(frozen=True, slots=True)
class Grid:
    """A table to print.

    headings: all different. rows: each has a cell for each heading, in the same order. numbers: headings of columns
    that are right-aligned and never folded. spare: headings that a narrow terminal does without, the least important
    first. `numbers` and `spare` may name columns that do not exist.
    """

    title: str
    headings: tuple[str, ...]
    rows: Sequence[Sequence[str | Text]]
    numbers: Collection[str] = ()
    spare: Sequence[str] = ()

    def without(self, headings: Collection[str]) -> Grid:
        """This table without some columns."""
        kept = [k for k, heading in enumerate(self.headings) if heading not in headings]
        rows = [tuple(row[k] for k in kept) for row in self.rows]
        return replace(self, headings=tuple(self.headings[k] for k in kept), rows=rows)

    def without_empty(self, *headings: str) -> Grid:
        """This table without those columns of `headings` whose cells are all empty."""
        columns = {heading: k for k, heading in enumerate(self.headings)}
        headings = tuple(heading for heading in headings if heading in columns)
        return self.without([h for h in headings if not any(str(row[columns[h]]) for row in self.rows)])

    def table(self) -> Table:
        """This table for `rich`."""
        style = {"title_justify": "left", "title_style": "bold", "box": box.SIMPLE_HEAD, "pad_edge": False}
        table = Table(title=self.title or None, **style)  # type: ignore[arg-type]  # a mapping of several types
        for k, heading in enumerate(self.headings):
            number = heading in self.numbers
            longest = max(len(heading), *(len(row[k]) for row in self.rows), 0)
            table.add_column(
                heading,
                justify="right" if number else "left",
                no_wrap=number,
                overflow="fold",
                min_width=0 if k else min(longest, _NAME),
            )
        for row in self.rows:
            table.add_row(*(cell if isinstance(cell, Text) else Text(cell) for cell in row))
        return table


def console(color: str = "auto") -> Console:
    """Standard output: as wide as the terminal, or as ``COLUMNS`` says; as wide as needed in a pipe or a file.

    color: ``always``, ``never``, or ``auto``: on a terminal, unless ``NO_COLOR`` is set.
    """
    endless = not sys.stdout.isatty() and not os.environ.get("COLUMNS", "").isdigit()
    plain = color == "never" or (color == "auto" and bool(os.environ.get("NO_COLOR")))
    return Console(
        highlight=False,
        width=_ENDLESS if endless else None,
        height=_LINES if endless else None,  # rich gives a dumb terminal 80 columns unless both are set
        color_system=None if plain else "standard" if color == "always" else "auto",
        force_terminal=True if color == "always" else None,
        no_color=plain,
    )


def print_grid(screen: Console, grid: Grid) -> None:
    """Print as many columns as there is room for."""
    table, left = fitted(screen, grid)
    screen.print(table)
    if left:
        screen.print(Text(f"no room for: {', '.join(left)} (-o json has all)", style="dim"))


def fitted(screen: Console, grid: Grid) -> tuple[Table, list[str]]:
    """A table of as many columns as `screen` has room for, and the headings of those left out."""
    spare = [heading for heading in grid.spare if heading in grid.headings]
    endless = screen.options.update(max_width=_ENDLESS)
    for count in range(len(spare) + 1):
        table = grid.without(spare[:count]).table()
        if Measurement.get(screen, endless, table).maximum <= screen.width:
            return table, spare[:count]
    return table, spare
