"""Tables for a terminal, and sums of a snapshot by namespace and by broker.

A narrow terminal gets fewer columns, and a line that names those left out; long names are folded before anything is
cut. A pipe or a file is as wide as its content, so that `grep` finds whole rows.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

import numpy as np
from rich import box
from rich.console import Console
from rich.measure import Measurement
from rich.table import Table
from rich.text import Text

from trimtab_strategies.model import TRAFFIC, ClusterLoad
from trimtab_strategies.model.cluster_load import BoolArray, FloatArray, IntArray

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


@dataclass(frozen=True, slots=True)
class Sums:
    """Of g groups of bundles.

    bundles: (g,) how many. unknown: (g,) of how many of them the load is unknown; they are not in the others.
    topics: (g,). traffic: (g, 4) columns `TRAFFIC`, by the short-term averages.
    """

    bundles: IntArray
    unknown: IntArray
    topics: FloatArray
    traffic: FloatArray


def by_namespace(load: ClusterLoad) -> Sums:
    """A group per namespace, rows as in `ClusterLoad.namespaces`."""
    return _sums(load, load.bundles.namespace, len(load.namespaces))


def by_broker(load: ClusterLoad) -> Sums:
    """A group per broker: what it owns, which may be more or less than what it says of itself."""
    return _sums(load, load.bundles.owner, len(load.brokers))


def _sums(load: ClusterLoad, group: IntArray, count: int) -> Sums:
    """group: (m,) of each bundle, -1 in none."""
    rows = np.flatnonzero(group >= 0)
    short, groups = load.bundles.short[rows], group[rows]
    unknown: BoolArray = np.asarray(np.isnan(short).any(axis=1))
    columns = np.where(unknown[:, np.newaxis], 0.0, short).T
    return Sums(
        bundles=np.bincount(groups, minlength=count),
        unknown=np.bincount(groups[unknown], minlength=count),
        topics=np.bincount(groups, np.nan_to_num(load.bundles.topics[rows]), count).astype(np.float64),
        traffic=np.stack([np.bincount(groups, columns[k], count) for k in range(len(TRAFFIC))], axis=1),
    )
