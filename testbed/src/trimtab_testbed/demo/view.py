"""Shows the demo while it runs: a live table on a terminal, a line every few seconds elsewhere."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from trimtab_strategies.model import counted
from trimtab_testbed.demo.snapshot import BrokerRow, DemoSnapshot

_RECENT = 10  # moves shown in the live table
_BAR = 12  # characters of a full bar: with it, all columns fit into a terminal of 80
_SLIMMEST = 3  # shorter bars are left out
_NUMBERS = 42  # characters that a row needs besides the broker's name and the bars
_LINE_EVERY = 5.0  # seconds between two lines while nothing moves
_WAITING = "waiting for the operator to see the brokers"
_WARM, _HOT = 50.0, 70.0  # percent from which a bar is yellow or red


class Show(Protocol):
    """Shows snapshots of the cluster, each one in place of the last."""

    def running(self) -> AbstractContextManager[Any]:
        """A context manager around all calls of `update`."""

    def update(self, snapshot: DemoSnapshot) -> None:
        """Show a snapshot."""


def show_on(console: Console, title: str) -> Show:
    """The live table if `console` is a terminal, otherwise lines."""
    return LiveTable(console, title) if console.is_terminal else LineView(console)


class LineView:
    """Prints a line for each move, and the state of the cluster every few seconds."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._printed = 0
        self._next = 0.0

    def running(self) -> AbstractContextManager[Any]:
        """A context manager that does nothing."""
        return nullcontext()

    def update(self, snapshot: DemoSnapshot) -> None:
        """Print new moves, and the state if it is due."""
        for move in snapshot.moves[self._printed :]:
            self._print(f"{move.at:4.0f} s  {move.bundle}: {move.source} -> {move.destination} ({move.reason})")
        self._printed = len(snapshot.moves)
        if snapshot.at >= self._next:
            self._next = snapshot.at + _LINE_EVERY
            self._print(f"{snapshot.at:4.0f} s  {state(snapshot)}")

    def _print(self, text: str) -> None:
        self._console.print(text, highlight=False, markup=False, soft_wrap=True)


def state(snapshot: DemoSnapshot) -> str:
    """The state of the cluster in one line."""
    cpu = [row.cpu for row in snapshot.brokers if row.cpu is not None]
    spread = f"CPU {min(cpu):.0f}-{max(cpu):.0f} %" if cpu else "CPU unknown"
    moves = f"{counted(len(snapshot.moves), 'move')}, {sum(move.landed for move in snapshot.moves)} landed"
    if not snapshot.cycles:
        return f"{spread}; {moves}; {_WAITING}"
    return f"{spread}; {moves}; last cycle {snapshot.cycles[-1].total:.2f} s: {snapshot.cycles[-1].outcome}"


class LiveTable:
    """Shows brokers with bars, recent moves with reasons, and the last cycle by phase, redrawn in place."""

    def __init__(self, console: Console, title: str) -> None:
        self._title = title
        self._console = console
        self._live = Live(console=console, refresh_per_second=4)

    def running(self) -> AbstractContextManager[Any]:
        """A context manager that holds the terminal while the table is live."""
        return self._live

    def update(self, snapshot: DemoSnapshot) -> None:
        """Redraw the table."""
        self._live.update(render(snapshot, self._title, self._console.width))


def render(snapshot: DemoSnapshot, title: str, width: int) -> Group:
    """The whole display, for a terminal `width` characters wide."""
    heading = Text(f"{title}   {snapshot.at:.0f} s", style="bold")
    return Group(heading, broker_table(snapshot, width), move_table(snapshot), _footer(snapshot))


def broker_table(snapshot: DemoSnapshot, width: int) -> Table:
    """One row per broker. In a narrow terminal bars shrink or disappear, then names wrap. Numbers are never cut."""
    bars = _bar_width(snapshot, width)
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    table.add_column("broker", overflow="fold")
    for column in ("CPU", "memory", "net in", "net out"):
        table.add_column(column, no_wrap=True)
    table.add_column("bundles", justify="right", no_wrap=True)
    for row in snapshot.brokers:
        table.add_row(*_cells(row, bars))
    return table


def _bar_width(snapshot: DemoSnapshot, width: int) -> int:
    """Characters of the CPU bar that leave room for the rest; 0 for no bars. The memory bar has half as many."""
    names = max((len(row.name) for row in snapshot.brokers), default=0)
    room = (width - names - _NUMBERS) * 2 // 3
    return min(_BAR, room) if room >= _SLIMMEST else 0


def _cells(row: BrokerRow, bars: int) -> list[Text | str]:
    network = [Text(_percent(value)) for value in (row.network_in, row.network_out)]
    return [row.name, bar(row.cpu, bars), bar(row.memory, bars // 2), *network, str(row.bundles)]


def bar(percent: float | None, width: int = _BAR) -> Text:
    """A bar of `width` characters (0: none) with its percent; empty when unknown."""
    if not width:
        return Text(_percent(percent))
    filled = 0 if percent is None else min(width, round(percent / 100 * width))
    known = percent or 0.0
    colour = "red" if known >= _HOT else "yellow" if known >= _WARM else "green"
    return Text.assemble(("█" * filled, colour), ("░" * (width - filled), "dim"), f" {_percent(percent)}")


def _percent(value: float | None) -> str:
    return "  ?" if value is None else f"{value:3.0f} %"


def move_table(snapshot: DemoSnapshot) -> Table:
    """The latest moves, newest last."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
    for column in ("", "bundle", "from", "to", "why"):
        table.add_column(column)
    for move in snapshot.moves[-_RECENT:]:
        mark = Text("✓", "green") if move.landed else Text("…", "yellow")
        table.add_row(mark, move.bundle, move.source, move.destination, move.reason)
    return table


def _footer(snapshot: DemoSnapshot) -> Text:
    if not snapshot.cycles:
        return Text(_WAITING, style="dim")
    last = snapshot.cycles[-1]
    phases = ", ".join(f"{phase} {seconds:.2f}" for phase, seconds in last.seconds.items())
    return Text(f"{state(snapshot)}{f' ({phases})' if phases else ''}\n{snapshot.balanced}", style="dim")
