"""Scores of runs: moves, disconnected clients, the time until the cluster is level, and one figure for all."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from trimtab_lab.simulation.run import Record
from trimtab_lab.simulation.scenario import Goal
from trimtab_strategies.model.cluster_load import BoolArray

LEVEL = 20.0
"""Points of imbalance below which a cluster counts as balanced. Most strategies tolerate brokers 10 above the mean."""

OVERLOADED = 0.85
"""Ratio of usage above which Pulsar calls a broker overloaded."""

_LAST = 3


@dataclass(frozen=True, slots=True)
class RunScore:
    """The score of one run.

    balanced:  rounds after the last event until the imbalance stays below `LEVEL`; None for never.
    waited:    as `balanced`, but instead of None the number of rounds after the last event.
    quiet:     rounds after the last event until the last move; None if bundles still moved in the last round.
    moves:     bundles moved for balance. splits: bundles split.
    cut:       percent of the cluster's clients that lost their connection; those of a bundle moved twice count twice.
    repeated:  moves of bundles that had moved before in the run.
    backward:  moves to a broker with more usage than the source, see `Record`.
    area:      imbalance in percentage points, mean over all rounds. left: mean of the last three rounds.
    overshoot: most percentage points by which a broker was above its target after it received more than it gave.
    overload:  broker-minutes above `OVERLOADED`.
    unserved:  percent of the wanted traffic that was not served.
    latency:   milliseconds of a publish (99th percentile), the 95th percentile of all brokers and rounds.
    owned:     number of times that a bundle without an owner got one, divided by the number of all bundles.
    cost:      one figure for all, see `total_cost`.
    """

    balanced: int | None
    waited: int
    quiet: int | None
    moves: int
    splits: int
    cut: float
    repeated: int
    backward: int
    area: float
    left: float
    overshoot: float
    overload: int
    unserved: float
    latency: float
    owned: float
    cost: float


def score(record: Record, event: int = 0, goal: Goal = Goal.LEVEL) -> RunScore:
    """The score of a run whose last event was over in round `event`."""
    imbalance = record.imbalance[1:]
    moving = np.flatnonzero((record.moves + record.splits)[event:])
    rounds = len(record.moves) - event
    quiet = int(moving[-1]) + 1 if len(moving) else 0
    balanced = _first_of_the_rest(imbalance[event:] < LEVEL)
    area, left = float(imbalance.mean()), float(imbalance[-_LAST:].mean())
    overshoot = float(record.overshoot.max(initial=0.0))
    overload = int((record.pressure[1:] > OVERLOADED).sum())
    unserved = 100 * record.unserved / record.wanted if record.wanted else 0.0
    moves, cut = int(record.moves.sum()), 100 * record.cut
    away = total_cost(area=area, left=left, overshoot=overshoot, overload=overload, unserved=unserved)
    return RunScore(
        balanced=balanced,
        waited=rounds if balanced is None else balanced,
        quiet=quiet if quiet < rounds else None,
        moves=moves,
        splits=int(record.splits.sum()),
        cut=cut,
        repeated=record.again,
        backward=record.backward,
        area=area,
        left=left,
        overshoot=overshoot,
        overload=overload,
        unserved=unserved,
        latency=float(np.nanpercentile(record.latency, 95)),
        owned=record.owned,
        cost=cut + (away if goal is Goal.LEVEL else moves),
    )


def total_cost(*, area: float, left: float, overshoot: float, overload: float, unserved: float) -> float:
    """The cost of imbalance, in points: area + left / 2 + overshoot / 2 + overload / 5 + 20 x unserved.

    The cost of a run is this plus the percentage of disconnected clients. Where nothing should move, it is the number
    of moves plus that percentage.
    """
    return area + 0.5 * left + 0.5 * overshoot + 0.2 * overload + 20 * unserved


def _first_of_the_rest(good: BoolArray) -> int | None:
    """The first position from which on all are true; None if the last one is false."""
    bad = np.flatnonzero(~good)
    first = int(bad[-1]) + 1 if len(bad) else 0
    return first if first < len(good) else None
