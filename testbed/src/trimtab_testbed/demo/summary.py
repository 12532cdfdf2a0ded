"""The demo's result, as text and (`--json`) as JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from trimtab_strategies.model import counted
from trimtab_testbed.demo.snapshot import DemoSnapshot, ObservedCycle, SeenMove


@dataclass(frozen=True, slots=True)
class Result:
    """How the demo ended. seconds: from the policy's creation until the cluster settled, or until the time-out.

    missing: why the cluster is not level; empty when `settled`.
    """

    scenario: str
    settled: bool
    seconds: float
    start: DemoSnapshot
    end: DemoSnapshot
    missing: str

    @property
    def moves(self) -> tuple[SeenMove, ...]:
        """All moves, in order."""
        return self.end.moves

    @property
    def moved_twice(self) -> list[str]:
        """Bundles that moved more than once."""
        return sorted(name for name, times in Counter(move.bundle for move in self.moves).items() if times > 1)


def as_json(result: Result) -> dict[str, Any]:
    """The object that `--json` prints."""
    return {
        "scenario": result.scenario,
        "settled": result.settled,
        "seconds": round(result.seconds, 1),
        "cpu_range_start": _points(result.start),
        "cpu_range_end": _points(result.end),
        "moves": [_move(move) for move in result.moves],
        "moved_twice": result.moved_twice,
        "unconfirmed": result.end.unconfirmed,
        "cycles": [_cycle(cycle) for cycle in result.end.cycles],
        "message": result.missing,
    }


def _points(snapshot: DemoSnapshot) -> float | None:
    return None if snapshot.cpu_range is None else round(snapshot.cpu_range, 1)


def _move(move: SeenMove) -> dict[str, Any]:
    return {
        "bundle": move.bundle,
        "source": move.source,
        "destination": move.destination,
        "reason": move.reason,
        "landed": move.landed,
    }


def _cycle(cycle: ObservedCycle) -> dict[str, Any]:
    return {
        "time": cycle.time,
        "outcome": cycle.outcome,
        "moved": cycle.moved,
        "seconds": {**cycle.seconds, "total": cycle.total},
    }


def as_lines(result: Result) -> Iterable[str]:
    """The summary as text."""
    verdict = "settled" if result.settled else "NOT settled"
    yield f"{result.scenario}: {verdict} after {result.seconds:.0f} s"
    if result.missing:
        yield f"  because {result.missing}"
    yield f"  CPU range      {_text(result.start)} -> {_text(result.end)}"
    yield f"  moves          {len(result.moves)}{_reasons(result.moves)}"
    yield f"  moved twice    {', '.join(result.moved_twice) or 'none'}"
    yield f"  not confirmed  {counted(result.end.unconfirmed, 'bundle') if result.end.unconfirmed else 'none'}"
    yield from _cycle_lines(result.end.cycles)
    if result.moves:
        yield "  moves, in order"
    for move in result.moves:
        yield f"    {move.bundle}: {move.source} -> {move.destination} ({move.reason})"


def _text(snapshot: DemoSnapshot) -> str:
    cpu = [row.cpu for row in snapshot.brokers if row.cpu is not None]
    if snapshot.cpu_range is None or not cpu:
        return "unknown"
    return f"{snapshot.cpu_range:.1f} points ({min(cpu):.0f}-{max(cpu):.0f} %)"


def _reasons(moves: Iterable[SeenMove]) -> str:
    counts = Counter(move.reason for move in moves)
    return f" ({', '.join(f'{reason} {count}' for reason, count in sorted(counts.items()))})" if counts else ""


def _cycle_lines(cycles: tuple[ObservedCycle, ...]) -> Iterable[str]:
    if not cycles:
        return
    totals = sorted(cycle.total for cycle in cycles)
    yield f"  cycles         {len(cycles)}, median {totals[len(totals) // 2]:.2f} s, longest {totals[-1]:.2f} s"
    phases = list(dict.fromkeys(phase for cycle in cycles for phase in cycle.seconds))
    for phase in phases:
        values = sorted(cycle.seconds.get(phase, 0.0) for cycle in cycles)
        yield f"    {phase:<12} median {values[len(values) // 2]:.3f} s, longest {values[-1]:.3f} s"
