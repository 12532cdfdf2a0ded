"""Bars while a comparison runs: the brokers of the run that this process plays, redrawn in place on a terminal."""

from __future__ import annotations

from contextlib import AbstractContextManager
from math import ceil
from time import monotonic

import numpy as np
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from trimtab_lab.simulation.batch import Task
from trimtab_lab.simulation.deciders import Orders, Watcher
from trimtab_lab.simulation.score import OVERLOADED
from trimtab_strategies.counterfactual.imbalance import busiest
from trimtab_strategies.model import ClusterLoad, counted

EVERY = 0.1
"""Minimum seconds between two pictures. Drawing one takes a few milliseconds."""

WARM = 70.0
"""Percent from which a bar is yellow. From `OVERLOADED` on it is red."""

_BAR = 20
"""Characters of a full bar."""

_AROUND = 4
"""Lines of the terminal that are not for bars."""


class LiveBars:
    """Shows the run that this process plays, and how many of all runs are over."""

    def __init__(self, console: Console, runs: int) -> None:
        """Nothing is shown before `shown` is entered. runs: the number of all runs."""
        self._console, self._runs, self._over = console, runs, 0
        self._live = Live(console=console, auto_refresh=False, transient=True)
        self._drawn = 0.0

    def shown(self) -> AbstractContextManager[Live]:
        """A context manager that holds the terminal while bars are shown, and then removes them."""
        return self._live

    def begin(self, task: Task) -> Watcher:
        """See `Audience`."""
        return _Run(self, task)

    def count(self) -> None:
        """See `Audience`."""
        self._over += 1

    def clear(self) -> None:
        """Remove the bars until the next run draws some."""
        self._live.update(Text(), refresh=True)

    def draw(self, task: Task, minute: int, moves: int, cluster: ClusterLoad) -> None:
        """Draw a round, unless one was drawn a moment ago."""
        if monotonic() - self._drawn < EVERY:
            return
        self._live.update(self._picture(task, minute, moves, cluster), refresh=True)
        self._drawn = monotonic()

    def _picture(self, task: Task, minute: int, moves: int, cluster: ClusterLoad) -> RenderableType:
        run = f"{task.name}  {task.who.name}  seed {task.seed}"
        then = f"minute {minute} of {task.scenario.rounds}  {counted(moves, 'move')}"
        heading = Text(f"{run}  {then}", style="bold", overflow="ellipsis", no_wrap=True)
        size = self._console.size
        bars = brokers(cluster, size.width, size.height - _AROUND)
        return Group(heading, bars, Text(f"{self._over} of {counted(self._runs, 'run')} done", style="dim"))


class _Run:
    """Watches one run, and adds up its moves."""

    def __init__(self, bars: LiveBars, task: Task) -> None:
        self._bars, self._task = bars, task
        self._minute, self._moves = 0, 0

    def see(self, cluster: ClusterLoad, orders: Orders) -> None:
        """See `Watcher`. Owners for bundles that had none do not count as moves."""
        self._minute += 1
        self._moves += sum(bool(move.source) for move in orders.moves)
        self._bars.draw(self._task, self._minute, self._moves, cluster)


def brokers(cluster: ClusterLoad, width: int, height: int) -> Table:
    """A bar for each broker, in as many columns as `height` lines require and `width` characters allow."""
    cells = [
        Text.assemble(f"{name} ", bar(percent))
        for name, percent in zip(cluster.brokers.names, busiest(cluster.brokers).tolist(), strict=True)
    ]
    widest = max(map(len, cells), default=1)
    columns = max(1, min(ceil(len(cells) / max(1, height)), width // (widest + 2)))
    shown = cells[: columns * max(1, height)]
    lines = ceil(len(shown) / columns)
    table = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    for line in range(lines):
        table.add_row(*shown[line::lines])
    if len(shown) < len(cells):
        table.add_row(Text(f"and {counted(len(cells) - len(shown), 'more broker')}", style="dim"))
    return table


def bar(percent: float) -> Text:
    """A bar with its percent; empty, with a question mark, for NaN."""
    if np.isnan(percent):
        return Text(f"{'░' * _BAR}   ?  ", style="dim")
    filled = min(_BAR, round(percent / 100 * _BAR))
    color = "red" if percent >= OVERLOADED * 100 else "yellow" if percent >= WARM else "green"
    return Text.assemble(("█" * filled, color), ("░" * (_BAR - filled), "dim"), f" {percent:3.0f} %")
