"""What a run is worth, in a few numbers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from trimtab_lab.simulation.run import Record
from trimtab_strategies.model.cluster_load import BoolArray

LEVEL = 20.0
"""Percent points of imbalance below which a cluster counts as balanced: most strategies leave 10 above the average."""

OVERLOADED = 0.85
"""Ratio of usage above which Pulsar calls a broker overloaded."""


@dataclass(frozen=True, slots=True)
class RunScore:
    """One run.

    balanced:  rounds after the last event until the imbalance is below `LEVEL` and stays there; None never.
    quiet:     rounds after the last event until nothing was moved any more; None while it still moved in the last one.
    moves:     bundles that were moved for balance.
    repeated:  how many of them had been moved before in the run.
    backward:  how many went to a broker that was more used than the one they left, see `Record`.
    imbalance: percent points at the end.
    overload:  broker-minutes above `OVERLOADED`.
    """

    balanced: int | None
    quiet: int | None
    moves: int
    repeated: int
    backward: int
    imbalance: float
    overload: int


def score(record: Record, event: int = 0) -> RunScore:
    """The score of a run whose last event (a broker came or went) happened in round `event`."""
    moving = np.flatnonzero(record.moves[event:])
    rounds = len(record.moves) - event
    quiet = int(moving[-1]) + 1 if len(moving) else 0
    return RunScore(
        balanced=_first_of_the_rest(record.imbalance[event:] < LEVEL),
        quiet=quiet if quiet < rounds else None,
        moves=int(record.moves.sum()),
        repeated=int(np.maximum(record.times - 1, 0).sum()),
        backward=record.backward,
        imbalance=float(record.imbalance[-1]),
        overload=int((record.pressure[1:] > OVERLOADED).sum()),
    )


def _first_of_the_rest(good: BoolArray) -> int | None:
    """The first place from which on all are good; None when the last is not."""
    bad = np.flatnonzero(~good)
    first = int(bad[-1]) + 1 if len(bad) else 0
    return first if first < len(good) else None
