"""Tables for a terminal.

On a narrow terminal less important columns are left out, and a line names them. If that is not enough, long names wrap,
and then the last columns are left out, too. Nothing is cut. Lines of text continue below their first word. In a pipe or
a file, a table is as wide as its content, so that `grep` finds whole rows.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

from rich import box
from rich.console import Console, Group
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

_ENDLESS = 10_000

_LINES = 25

_NAME = 12
"""Minimum width of a column of texts, unless its content is shorter."""

_NARROWEST = 20
"""Minimum width of a line of text, however far it is indented."""


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

    def narrowest(self) -> Grid:
        """This table with texts cut to the minimum width of their columns."""
        least = [None if heading in self.numbers else self._least(k) for k, heading in enumerate(self.headings)]
        return replace(
            self, rows=[[str(cell)[:most] for cell, most in zip(row, least, strict=True)] for row in self.rows]
        )

    def _least(self, column: int) -> int:
        """Minimum width of a column of texts: no word of its heading is folded."""
        longest = max((len(row[column]) for row in self.rows), default=0)
        return max(min(longest, _NAME), *map(len, self.headings[column].split()), 0)

    def table(self) -> Table:
        """This table for `rich`."""
        style = {"title_justify": "left", "title_style": "bold", "box": box.SIMPLE_HEAD, "pad_edge": False}
        table = Table(title=self.title or None, **style)  # type: ignore[arg-type]  # a mapping of several types
        for k, heading in enumerate(self.headings):
            number = heading in self.numbers
            table.add_column(
                heading,
                justify="right" if number else "left",
                no_wrap=number,
                overflow="fold",
                min_width=0 if number else self._least(k),
            )
        for row in self.rows:
            table.add_row(*(cell if isinstance(cell, Text) else Text(cell) for cell in row))
        return table


class Screen(Console):
    """A console on which a long line continues below its first word."""

    def print(self, *objects: Any, **options: Any) -> None:
        """As `Console.print`."""
        if len(objects) == 1 and isinstance(objects[0], Text) and not options.get("soft_wrap"):
            objects = (Group(*chain.from_iterable(map(self._folded, objects[0].split("\n", allow_blank=True)))),)
        super().print(*objects, **options)

    def _folded(self, line: Text) -> Iterator[Text]:
        indent = len(line.plain) - len(line.plain.lstrip())
        for part in line[indent:].wrap(self, max(_NARROWEST, self.width - indent)):
            part.rstrip()
            yield Text(" " * indent).append_text(part)


def console(color: str = "auto") -> Console:
    """Standard output: as wide as the terminal, or as ``COLUMNS`` says; as wide as needed in a pipe or a file.

    color: ``always``, ``never``, or ``auto``: on a terminal, unless ``NO_COLOR`` is set.
    """
    endless = not sys.stdout.isatty() and not os.environ.get("COLUMNS", "").isdigit()
    plain = color == "never" or (color == "auto" and bool(os.environ.get("NO_COLOR")))
    return Screen(
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
    for count in range(len(spare) + 1):
        if _fits(screen, shown := grid.without(spare[:count])):
            return shown.table(), spare[:count]
    others = [heading for heading in grid.headings[1:] if heading not in spare]
    while others and not _fits(screen, shown.narrowest()):
        spare.append(others.pop())
        shown = grid.without(spare)
    return shown.table(), spare


def _fits(screen: Console, grid: Grid) -> bool:
    endless = screen.options.update(max_width=_ENDLESS)
    return Measurement.get(screen, endless, grid.table()).maximum <= screen.width
