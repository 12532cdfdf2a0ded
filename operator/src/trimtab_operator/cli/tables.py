"""Tables that can be read wherever they are printed.

A terminal that is too narrow gets fewer columns, and a line that names those left out; names are folded before anything
is cut. What is no terminal (a pipe, a file) is as wide as its content, so that `grep` finds whole rows.
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
_NAME = 12
"""Characters that the first column keeps in any case."""


@dataclass(frozen=True, slots=True)
class Grid:
    """A table to print.

    names, numbers: headings, all different; numbers are right-aligned and never folded. rows: cells in that order.
    spare: headings that may be left out where there is no room, the least important first.
    """

    title: str
    names: tuple[str, ...]
    numbers: tuple[str, ...]
    rows: Sequence[Sequence[str | Text]]
    spare: tuple[str, ...] = ()


def without_empty(grid: Grid, *headings: str) -> Grid:
    """The same without those of the columns `headings` in which no row has anything. They must be among its names."""
    every = (*grid.names, *grid.numbers)
    empty = {heading for heading in headings if not any(str(row[every.index(heading)]) for row in grid.rows)}
    kept = [k for k, heading in enumerate(every) if heading not in empty]
    rows = [tuple(row[k] for k in kept) for row in grid.rows]
    return replace(grid, names=tuple(name for name in grid.names if name not in empty), rows=rows)


def console(color: str = "auto") -> Console:
    """Standard output: as wide as the terminal, or as ``COLUMNS`` says; endless where nobody looks at it.

    color: ``always``, ``never``, or ``auto``: on a terminal, unless ``NO_COLOR`` is set.
    """
    endless = not sys.stdout.isatty() and "COLUMNS" not in os.environ
    plain = color == "never" or (color == "auto" and bool(os.environ.get("NO_COLOR")))
    return Console(
        highlight=False,
        width=_ENDLESS if endless else None,
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
    left: list[str] = []
    spare = [heading for heading in grid.spare if heading in (*grid.names, *grid.numbers)]
    while _width(screen, table := _table(grid, left)) > screen.width and spare:
        left.append(spare.pop(0))
    return table, left


def _width(screen: Console, table: Table) -> int:
    """Characters that a line of `table` takes if nothing is folded."""
    return Measurement.get(screen, screen.options.update(max_width=_ENDLESS), table).maximum


def _table(grid: Grid, without: Collection[str]) -> Table:
    table = Table(
        title=grid.title or None, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, pad_edge=False
    )
    headings = (*grid.names, *grid.numbers)
    kept = [k for k, heading in enumerate(headings) if heading not in without]
    for k in kept:
        if k < len(grid.names):
            table.add_column(headings[k], overflow="fold", min_width=0 if k else _NAME)
        else:
            table.add_column(headings[k], justify="right", no_wrap=True)
    for row in grid.rows:
        table.add_row(*(row[k] if isinstance(row[k], Text) else Text(str(row[k])) for k in kept))
    return table
