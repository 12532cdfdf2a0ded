"""The best plan in hindsight: the moves that would have cost least, had the load been known in advance.

`trimtab tune` minimises the same `cost`. The solver proves a bound that no plan can beat. The plan that the solver
finds is then replayed like a policy, so its figures are comparable with those of the other replays in the table.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace

import numpy as np

from trimtab_lab.backtest.history import ReplayWindow
from trimtab_lab.backtest.optimum_program import NOWHERE, CostPrices, PlanProgram
from trimtab_lab.backtest.optimum_result import OptimumResult
from trimtab_lab.backtest.replay import recorded_cycles
from trimtab_lab.backtest.trace import Trace, cost
from trimtab_operator.cli.common import iso
from trimtab_pipeline.api import ForeignFileError
from trimtab_strategies.counterfactual.ownership import VirtualOwners
from trimtab_strategies.counterfactual.recorded_cycle import RecordedCycle
from trimtab_strategies.hash_ring import parse_bundle
from trimtab_strategies.model import ClusterLoad, Move

MOST_PLACES = 20_000
"""Maximum of brokers x bundles x cycles that is searched. A search through more would take hours."""


class NoOptimumError(Exception):
    """The best plan can't be searched for in this history. The message says why, and what to do."""


@dataclass(frozen=True)
class KnownLoad:
    """The load of the cycles in the window, known in advance. owners: the real owners in the first of its cycles."""

    cycles: Sequence[RecordedCycle]
    owners: VirtualOwners

    @classmethod
    def of(cls, window: ReplayWindow) -> KnownLoad:
        """The load of a window. Raises `NoOptimumError`."""
        recording, begin, end = window.recording, window.begin, window.end
        first = max(window.parts[0].read, recording.summary.begin)
        number = len(recording.times(begin, end))
        owners = VirtualOwners()
        found: list[RecordedCycle] = []
        try:
            for cycle in recorded_cycles(recording.cycles(first, end)):
                if not found:
                    owners.rows(cycle.load, real=True)
                if cycle.load.now >= begin:
                    require_small(cycle.load, number)
                    found.append(cycle)
        except ForeignFileError as error:
            raise NoOptimumError(f"the history can't be read: {error}") from error
        return cls(found, owners)

    def best(self, weight: float, seconds: float) -> OptimumResult:
        """Search for the best plan, for at most `seconds`. Raises `NoOptimumError`.

        weight: how much disconnected clients count in the cost.
        """
        prices = CostPrices.of(self.cycles, weight)
        if not np.isfinite(prices.area).all():
            raise NoOptimumError("fewer than two brokers were measured at a time, so no plan is better than another")
        plan = PlanProgram(prices)
        for cycle, begins in zip(self.cycles, self._begins(), strict=True):
            plan.add(cycle, begins)
        solution = plan.program.solve(seconds, plan.start)
        figures = None if solution.values is None else self._replayed(plan.moves(solution.values)).figures()
        found = math.inf if figures is None else cost(figures, weight)
        return OptimumResult(min(max(solution.bound, 0.0), found), weight, seconds, figures)

    def _begins(self) -> Iterator[dict[str, str]]:
        """For each cycle the first broker of each new bundle, by name. Raises `NoOptimumError` for a split."""
        owners = deepcopy(self.owners)
        before: set[str] = set()
        for number, cycle in enumerate(self.cycles):
            load = cycle.load
            if number:
                require_whole(before, load)
                brokers, then = (*load.brokers.names, NOWHERE), load.bundles.owner
            else:
                owners.rows(load)
                brokers, then = (*owners.brokers, NOWHERE), owners.ids
            yield {
                name: brokers[row]
                for name, row in zip(load.bundles.names, then.tolist(), strict=True)
                if name not in before
            }
            before = {*load.bundles.names}

    def _replayed(self, plan: Iterator[Sequence[Move]]) -> Trace:
        """The trace of the plan, replayed like a policy."""
        owners, trace = deepcopy(self.owners), Trace()
        for cycle, moves in zip(self.cycles, plan, strict=True):
            owner = owners.rows(cycle.load)
            bundles = replace(cycle.load.bundles, owner=owner)
            virtual = replace(cycle.load, brokers=cycle.brokers_with(owner), bundles=bundles)
            balancing = [(move.bundle, move.source, move.destination) for move in moves if move.source]
            trace.add(cycle, virtual, balancing, measured=cycle.measured_there(owner))
            owners.take(moves, virtual)
        return trace


def require_small(load: ClusterLoad, cycles: int) -> None:
    """Raise `NoOptimumError` if a cluster of this size has too many cycles to search."""
    each = len(load.brokers) * len(load.bundles)
    if each * cycles <= MOST_PLACES:
        return
    size = f"{len(load.brokers)} brokers x {len(load.bundles)} bundles x {cycles} cycles"
    fit = MOST_PLACES // max(each, 1)
    fix = f"replay at most {fit} cycles, with --from and --to" if fit > 1 else "--optimum is for smaller clusters"
    raise NoOptimumError(f"{size} are {each * cycles}, more than the {MOST_PLACES} that can be searched: {fix}")


def require_whole(before: set[str], load: ClusterLoad) -> None:
    """Raise `NoOptimumError` if one of the bundles `before` was split."""
    names = {*load.bundles.names}
    gone = [(name, parse_bundle(name)) for name in sorted(before - names)]
    for new in map(parse_bundle, sorted(names - before)):
        for name, (space, lower, upper) in gone:
            if space == new.namespace and lower < new.upper and new.lower < upper:
                fix = "choose a time without a split, with --from and --to"
                raise NoOptimumError(f"{name} was split before {iso(load.now)}, and plans have no splits: {fix}")
