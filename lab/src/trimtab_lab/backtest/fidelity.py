"""How well a backtest shows what happened: the policy that really ran, replayed, beside the real moves and usage."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from trimtab_lab.backtest.trace import Change, Trace

NEAR = 180.0
"""Seconds by which a real move and a replayed one may be apart: a real one is measured after it has landed."""


class Fidelity(NamedTuple):
    """How well a replay shows what happened.

    reproduced: ratio 0-1 of the real moves that it made, too; NaN if no bundle moved. moves: the real ones. Those that
    were seen in the first cycle were decided before it, and do not count.
    decided: the same ratio for the policy when it is asked in each cycle with the real owners; NaN if it was not asked.
    A replay goes on from its own moves, so one other choice changes what follows; this one does not drift away.
    error: points by which its distance between the brokers differs from the measured one, mean over time.
    """

    reproduced: float
    moves: int
    error: float
    decided: float = float("nan")

    def __str__(self) -> str:
        made = "no bundle really moved" if not self.moves else f"{self.reproduced:.0%} of the {self.moves} real moves"
        asked = "" if math.isnan(self.decided) else f"; asked in each cycle with the real owners: {self.decided:.0%}"
        return f"the recorded policy, replayed: {made}{asked}; range of the brokers off by {self.error:.1f} points"


def fidelity(replay: Trace, live: Trace, followed: Trace | None = None) -> Fidelity:
    """The fidelity of `replay`. followed: of the policy with the real owners. All must have the cycles of `live`."""
    off = np.abs(replay.ranges() - live.ranges())
    error = float(np.nanmean(off)) if np.isfinite(off).any() else float("nan")
    real = [change for change in live.changes if change.at > live.times[0]]
    decided = float("nan") if followed is None else _reproduced(followed.changes, real)
    return Fidelity(_reproduced(replay.changes, real), len(real), error, decided)


def _reproduced(replayed: Sequence[Change], real: Sequence[Change]) -> float:
    """Ratio of the `real` moves with a replayed one of the same bundle to the same broker at about the same time."""
    times: dict[tuple[str, str], list[float]] = {}
    for change in replayed:
        times.setdefault((change.bundle, change.destination), []).append(change.at)
    same = [
        any(abs(at - change.at) <= NEAR for at in times.get((change.bundle, change.destination), ())) for change in real
    ]
    return sum(same) / len(same) if same else float("nan")
