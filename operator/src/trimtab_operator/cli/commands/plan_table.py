"""How `trimtab plan` shows what was foreseen: as data, or as tables that a person reads from top to bottom."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from trimtab_operator.cli.common import spoken
from trimtab_operator.cli.output import is_data, print_data
from trimtab_operator.cli.tables import console
from trimtab_operator.loop.preview import Preview
from trimtab_operator.resources.policy import Mode
from trimtab_operator.status.conditions import cpu_range
from trimtab_strategies.model import (
    CPU,
    MEMORY,
    NETWORK_IN,
    NETWORK_OUT,
    ClusterLoad,
    HeldBack,
    Plan,
    Split,
    counted,
)


@dataclass(frozen=True, slots=True)
class Stand:
    """The policy to plan for, as a BalancingPolicy object. told: what it stands for, where it is from a file."""

    manifest: Mapping[str, Any]
    told: str = ""

    @property
    def status(self) -> Mapping[str, Any]:
        """What the operator wrote of the policy that the cluster has; empty where it has none."""
        found: Mapping[str, Any] = self.manifest.get("status") or {}
        return found

    @property
    def name(self) -> str:
        """Of the BalancingPolicy."""
        return str(self.manifest["metadata"]["name"])


_SHOWN = {"cpu": CPU, "memory": MEMORY, "networkIn": NETWORK_IN, "networkOut": NETWORK_OUT}

_HEADINGS = {"cpu": "CPU", "memory": "Memory", "networkIn": "Net in", "networkOut": "Net out"}

_NOTICEABLE = 0.1
"""Percent points below which a prediction is the same as what is measured."""


def show(stand: Stand, foreseen: Preview, output: str, color: str = "auto", notes: Sequence[str] = ()) -> None:
    """Print `foreseen`; output: ``table``, ``json`` or ``yaml``. notes: what it rests on, in lines."""
    if is_data(output):
        print_data({**as_data(stand.name, foreseen), "notes": list(notes)}, output)
        return
    screen = console(color)
    if stand.told:
        screen.print(Text(stand.told, style="dim"))
    print_tables(screen, stand.name, foreseen)
    for note in notes:
        screen.print(Text(spoken(note), style="yellow"))


def as_data(policy: str, foreseen: Preview) -> dict[str, Any]:
    """Plain data. Usage in percent of a broker's limit, null where it is unknown; `name`: of the Bundle object."""
    plan, records = foreseen.plan, foreseen.snapshot.records
    moves = [
        {
            "bundle": move.bundle,
            "name": records[move.bundle].name,
            "source": move.source,
            "destination": move.destination,
            "reason": str(move.reason),
            "cpu": _rounded(move.load),
        }
        for move in plan.moves
    ]
    return {
        "policy": policy,
        "mode": str(foreseen.settings.mode),
        "refusal": _held(foreseen.refusal) if foreseen.refusal else None,
        "restraint": _held(foreseen.gate.restraint) if foreseen.gate.restraint else None,
        "moves": moves,
        "splits": [_split(split, records[split.bundle].name) for split in plan.splits],
        "heldBack": [_held(held) for held in plan.held_back],
        "brokers": [_broker(plan, row) for row in range(len(plan.brokers))],
    }


def _split(split: Split, name: str) -> dict[str, Any]:
    return {
        "bundle": split.bundle,
        "name": name,
        "source": split.source,
        "boundaries": [f"0x{boundary:08x}" for boundary in split.boundaries],
        "destinations": list(split.destinations),
        "reason": str(split.reason),
    }


def _held(held: HeldBack) -> dict[str, Any]:
    return {"subject": held.subject, "reason": str(held.reason), "detail": held.detail, "count": held.count}


def _broker(plan: Plan, row: int) -> dict[str, Any]:
    usage: dict[str, Any] = {"broker": plan.brokers[row]}
    for name, column in _SHOWN.items():
        usage[f"{name}Before"] = _rounded(plan.before[row, column])
        usage[f"{name}After"] = _rounded(plan.after[row, column])
    return usage


def _rounded(value: float) -> float | None:
    return round(float(value), 1) if math.isfinite(value) else None


def print_tables(screen: Console, policy: str, foreseen: Preview) -> None:
    """What would happen in a line or two, then brokers, moves, and what is held back."""
    plan = foreseen.plan
    screen.print(Text(_headline(policy, foreseen)))
    screen.print(Text(_cpu_line(plan, foreseen.snapshot.load)))
    screen.print(_brokers_table(plan))
    if plan.splits:
        screen.print(_splits_table(plan))
    if plan.moves:
        screen.print(_moves_table(plan))
    if plan.held_back:
        screen.print(_held_table(plan))


def _headline(policy: str, foreseen: Preview) -> str:
    count, splits = len(foreseen.plan.moves), foreseen.plan.splits
    moves = counted(count, "move") + (f" and {counted(len(splits), 'split')}" if splits else "")
    if (refusal := foreseen.refusal) is not None:
        text = f"moves nothing: {refusal.reason}: {refusal.detail}"
        return f"{policy} {text}" + (f"\nwithout that it would make {moves}:" if count or splits else "")
    if not count and not splits:
        return f"{policy} moves nothing"
    if foreseen.settings.mode is Mode.DRY_RUN:
        return f"{policy} proposes {moves} and makes none: spec.mode is DryRun"
    if foreseen.settings.mode is Mode.APPROVE:
        return f"{policy} proposes {moves}, for a person to approve: spec.mode is Approve"
    if (restraint := foreseen.gate.restraint) is not None:
        return f"{policy} makes drains only, and proposes {moves}: {restraint.reason}: {restraint.detail}"
    return f"{policy} makes {moves}"


def _cpu_line(plan: Plan, load: ClusterLoad | None) -> str:
    now, then = cpu_range(plan, load), cpu_range(plan, load, after=True)
    if now is None or then is None:
        return "CPU of the brokers is unknown"
    after = "" if plan.empty else f", then {then[0]:.0f} % to {then[1]:.0f} %"
    return f"CPU of the brokers: {now[0]:.0f} % to {now[1]:.0f} %{after}"


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        table.add_column(column, overflow="fold")
    return table


def _brokers_table(plan: Plan) -> Table:
    table = _table("Brokers", "Broker", *_HEADINGS.values())
    for column in table.columns[1:]:
        column.justify, column.no_wrap = "right", True
    for row, name in enumerate(plan.brokers):
        cells = (_change(plan.before[row, column], plan.after[row, column]) for column in _SHOWN.values())
        table.add_row(Text(name), *cells)
    return table


def _change(before: float, after: float) -> Text:
    if not math.isfinite(before):
        return Text("unknown", style="dim")
    if not math.isfinite(after) or abs(after - before) < _NOTICEABLE:
        return Text(f"{before:.1f} %")
    return Text(f"{before:.1f} -> {after:.1f} %", style="green" if after < before else "yellow")


def _moves_table(plan: Plan) -> Table:
    table = _table("Moves", "Bundle", "Source -> destination", "CPU", "Reason")
    table.columns[2].justify, table.columns[2].no_wrap = "right", True
    for move in plan.moves:
        way = f"{move.source or '(nobody)'} -> {move.destination}"
        cpu = f"{move.load:.1f} %" if math.isfinite(move.load) else "unknown"
        table.add_row(Text(move.bundle), Text(way), cpu, str(move.reason))
    return table


def _splits_table(plan: Plan) -> Table:
    table = _table("Splits", "Bundle", "Children", "Their owners", "Reason")
    for split in plan.splits:
        owners = ", ".join(split.destinations) or f"{split.source} keeps all"
        table.add_row(Text(split.bundle), str(len(split.boundaries) + 1), Text(owners), str(split.reason))
    return table


def _held_table(plan: Plan) -> Table:
    table = _table("Held back", "Reason", "Of", "Why")
    for held in plan.held_back:
        table.add_row(str(held.reason), Text(held.subject or "the cluster"), Text(held.detail))
    return table
