"""Output of `trimtab plan`: as data, or as tables."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.text import Text

from trimtab_operator.cli.common import is_data, print_data, spoken
from trimtab_operator.cli.tables import Grid, console, print_grid
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
    Reason,
    Split,
    counted,
    some,
)
from trimtab_strategies.params import rounded


@dataclass(frozen=True, slots=True)
class Stand:
    """The policy to plan for, as a BalancingPolicy object. note: a note on its origin, if it comes from a file."""

    manifest: Mapping[str, Any]
    note: str = ""

    @property
    def status(self) -> Mapping[str, Any]:
        """The status of the policy in the cluster; empty if there is none."""
        found: Mapping[str, Any] = self.manifest.get("status") or {}
        return found

    @property
    def name(self) -> str:
        """Name of the BalancingPolicy."""
        return str(self.manifest["metadata"]["name"])


_SHOWN = {"cpu": CPU, "memory": MEMORY, "networkIn": NETWORK_IN, "networkOut": NETWORK_OUT}

_HEADINGS = {"cpu": "CPU", "memory": "Memory", "networkIn": "Net in", "networkOut": "Net out"}

_NOTICEABLE = 0.1
"""Difference in percentage points below which prediction and measurement count as equal."""


def show(stand: Stand, foreseen: Preview, output: str, color: str = "auto", notes: Sequence[str] = ()) -> None:
    """Print `foreseen`. output: ``table``, ``json`` or ``yaml``. notes: lines on what the plan is based on."""
    if is_data(output):
        print_data({**as_data(stand.name, foreseen), "notes": list(notes)}, output)
        return
    screen = console(color)
    if stand.note:
        screen.print(Text(stand.note, style="dim"))
    print_tables(screen, stand.name, foreseen)
    for note in notes:
        screen.print(Text(spoken(note), style="yellow"))


def as_data(policy: str, foreseen: Preview) -> dict[str, Any]:
    """Plain data. Usage in percent of a broker's limit, null if unknown; `name`: of the Bundle object."""
    plan, records = foreseen.plan, foreseen.snapshot.records
    moves = [
        {
            "bundle": move.bundle,
            "name": records[move.bundle].name,
            "source": move.source,
            "destination": move.destination,
            "reason": str(move.reason),
            "cpu": rounded(move.load, 1),
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
        "notMeasured": _unmeasured(foreseen.snapshot.load),
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
        usage[f"{name}Before"] = rounded(plan.before[row, column], 1)
        usage[f"{name}After"] = rounded(plan.after[row, column], 1)
    return usage


def print_tables(screen: Console, policy: str, foreseen: Preview, headline: str = "") -> None:
    """Print a summary, then brokers, splits, moves, and what is held back. headline: empty for the usual one."""
    plan, records = foreseen.plan, foreseen.snapshot.records
    names = {bundle: record.name for bundle, record in records.items()}
    for line in _unmeasured(foreseen.snapshot.load):
        screen.print(Text(spoken(line), style="red"))
    screen.print(Text(headline or _headline(policy, foreseen)))
    screen.print(Text(_cpu_line(plan, foreseen.snapshot.load)))
    print_grid(screen, _brokers_grid(plan))
    if plan.splits:
        print_grid(screen, _splits_grid(plan, names))
    if plan.moves:
        print_grid(screen, _moves_grid(plan, names))
    if plan.held_back:
        print_grid(screen, _held_grid(plan, names))


def _unmeasured(load: ClusterLoad) -> list[str]:
    """A line for each reason why brokers can't be measured; they take no part in balancing."""
    brokers: dict[str, list[str]] = {}
    for name, doubt in load.quality.doubts.items():
        if doubt.reason is Reason.NO_LOAD_DATA:
            brokers.setdefault(doubt.text, []).append(name)
    return [f"not measured: {some(names)}: {text}" for text, names in brokers.items()]


_SHOWN_ONLY = {
    Mode.DRY_RUN: "proposes {moves} and makes none",
    Mode.APPROVE: "proposes {moves}, for approval",
}
"""What a policy does with its plan in the modes that don't carry it out."""


def _headline(policy: str, foreseen: Preview) -> str:
    count, splits = len(foreseen.plan.moves), foreseen.plan.splits
    moves = counted(count, "move") + (f" and {counted(len(splits), 'split')}" if splits else "")
    if (refusal := foreseen.refusal) is not None:
        text = f"moves nothing: {refusal.reason}: {refusal.detail}"
        return f"{policy} {text}" + (f"\notherwise it would make {moves}:" if count or splits else "")
    if not count and not splits:
        return f"{policy} moves nothing"
    if (shown := _SHOWN_ONLY.get(foreseen.settings.mode)) is not None:
        return f"{policy} {shown.format(moves=moves)}: spec.mode is {foreseen.settings.mode}"
    if (restraint := foreseen.gate.restraint) is not None:
        return f"{policy} makes drains only, and proposes {moves}: {restraint.reason}: {restraint.detail}"
    return f"{policy} makes {moves}"


def _cpu_line(plan: Plan, load: ClusterLoad | None) -> str:
    now, then = cpu_range(plan, load), cpu_range(plan, load, after=True)
    if now is None or then is None:
        return "CPU of the brokers is unknown"
    after = "" if plan.empty else f", then {then[0]:.0f} % to {then[1]:.0f} %"
    return f"CPU of the brokers: {now[0]:.0f} % to {now[1]:.0f} %{after}"


def _brokers_grid(plan: Plan) -> Grid:
    rows: list[tuple[str | Text, ...]] = [
        (name, *(_change(plan.before[row, column], plan.after[row, column]) for column in _SHOWN.values()))
        for row, name in enumerate(plan.brokers)
    ]
    return Grid("Brokers", ("Broker", *_HEADINGS.values()), rows, _HEADINGS.values())


def _change(before: float, after: float) -> Text:
    if not math.isfinite(before):
        return Text("unknown", style="dim")
    if not math.isfinite(after) or abs(after - before) < _NOTICEABLE:
        return Text(f"{before:.1f} %")
    return Text(f"{before:.1f} -> {after:.1f} %", style="green" if after < before else "yellow")


def _moves_grid(plan: Plan, names: Mapping[str, str]) -> Grid:
    rows = [
        (
            names[move.bundle],
            f"{move.source or '(no owner)'} -> {move.destination}",
            f"{move.load:.1f} %" if math.isfinite(move.load) else "unknown",
            str(move.reason),
        )
        for move in plan.moves
    ]
    return Grid("Moves", ("Bundle", "Source -> destination", "CPU", "Reason"), rows, ("CPU",))


def _splits_grid(plan: Plan, names: Mapping[str, str]) -> Grid:
    rows = [
        (
            names[split.bundle],
            str(len(split.boundaries) + 1),
            ", ".join(split.destinations) or f"{split.source} keeps all",
            str(split.reason),
        )
        for split in plan.splits
    ]
    return Grid("Splits", ("Bundle", "Children", "Owners", "Reason"), rows)


def _held_grid(plan: Plan, names: Mapping[str, str]) -> Grid:
    rows = [
        (str(held.reason), names.get(held.subject, held.subject) or "the cluster", held.detail)
        for held in plan.held_back
    ]
    return Grid("Held back", ("Reason", "Of", "Why"), rows)
