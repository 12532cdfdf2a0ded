"""How well a backtest shows what happened: the policy that really ran, replayed, beside the real moves and usage."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from trimtab_lab.backtest.trace import Change, Trace

NEAR = 180.0
"""Seconds by which a real move and a replayed one may be apart: a real one is measured after it has landed."""


class Fidelity(NamedTuple):
    """How well a replay shows what happened.

    reproduced: ratio 0-1 of the real moves that it made, too; NaN if no bundle moved. moves: the real ones.
    error: points by which its distance between the brokers differs from the measured one, mean over time.
    """

    reproduced: float
    moves: int
    error: float

    def __str__(self) -> str:
        made = "no bundle really moved" if not self.moves else f"{self.reproduced:.0%} of the {self.moves} real moves"
        return f"the recorded policy, replayed: {made}; range of the brokers off by {self.error:.1f} points"


def fidelity(replay: Trace, live: Trace) -> Fidelity:
    """The fidelity of `replay`, which must have the cycles of `live`."""
    off = np.abs(replay.ranges() - live.ranges())
    error = float(np.nanmean(off)) if np.isfinite(off).any() else float("nan")
    return Fidelity(_reproduced(replay.changes, live.changes), len(live.changes), error)


def _reproduced(replayed: Sequence[Change], real: Sequence[Change]) -> float:
    """Ratio of the `real` moves with a replayed one of the same bundle to the same broker at about the same time."""
    times: dict[tuple[str, str], list[float]] = {}
    for change in replayed:
        times.setdefault((change.bundle, change.destination), []).append(change.at)
    same = [
        any(abs(at - change.at) <= NEAR for at in times.get((change.bundle, change.destination), ())) for change in real
    ]
    return sum(same) / len(same) if same else float("nan")
