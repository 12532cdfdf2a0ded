"""The budget gate of a cycle: which moves and splits of its plan the disruption budgets allow now."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from trimtab_operator.actuators import DryRunActuator, WriteResult
from trimtab_operator.budget.admission import MoveRequest, admit
from trimtab_operator.budget.left import rules_of, tally_of, why_withheld
from trimtab_operator.loop.gates import DrainsOnly, Gate
from trimtab_operator.observe.snapshot import Snapshot
from trimtab_operator.state.cluster import ClusterState
from trimtab_operator.state.settings import Settings
from trimtab_strategies.model import Decision, HeldBack, Move, Plan, Reason, Split, Staying
from trimtab_strategies.planner.drain import EVACUATIONS


@dataclass(frozen=True, slots=True)
class Admitted:
    """The part of a plan that may be made now.

    held: for each move of the whole plan, then for each split, why it waits; None if it may be made now. moved: number
    of moves of the whole plan.
    """

    plan: Plan
    held: Sequence[HeldBack | None]
    moved: int

    def moves(self, written: Sequence[WriteResult]) -> tuple[WriteResult, ...]:
        """The result of each move of the whole plan. written: results of the admitted moves."""
        return tuple(_results(self.held[: self.moved], written))

    def splits(self, asked: Sequence[WriteResult]) -> tuple[WriteResult, ...]:
        """The result of each split of the whole plan. asked: results of the admitted splits."""
        return tuple(_results(self.held[self.moved :], asked))


def _results(held: Sequence[HeldBack | None], made: Sequence[WriteResult]) -> Iterator[WriteResult]:
    rest = iter(made)
    for why in held:
        yield next(rest) if why is None else WriteResult(why.subject, why.reason, why.detail)


async def admitted_plan(
    cluster: ClusterState, settings: Settings, plan: Plan, snapshot: Snapshot, passed: Gate
) -> Admitted:
    """Charge `plan` to the budgets. Returns the moves and splits that may be made now.

    passed: through which actuator `plan` is applied. Moves and splits that this actuator only shows cost nothing, so
    they are not charged.
    """
    requests = [
        *(_of_move(move, snapshot) for move in plan.moves),
        *(_of_split(split, snapshot) for split in plan.splits),
    ]
    made = [row for row, request in enumerate(requests) if _is_made(request, passed)]
    held: list[HeldBack | None] = [None] * len(requests)
    for row, why in zip(made, await admit(cluster, settings, [requests[row] for row in made]), strict=True):
        held[row] = why
    count = len(plan.moves)
    moves = tuple(move for move, why in zip(plan.moves, held[:count], strict=True) if why is None)
    splits = tuple(split for split, why in zip(plan.splits, held[count:], strict=True) if why is None)
    return Admitted(replace(plan, moves=moves, splits=splits), held, count)


def _of_move(move: Move, snapshot: Snapshot) -> MoveRequest:
    return MoveRequest(snapshot.records[move.bundle], move.bundle, move.source, move.destination, move.reason)


def _of_split(split: Split, snapshot: Snapshot) -> MoveRequest:
    return MoveRequest(snapshot.records[split.bundle], split.bundle, split.source, split.source, split.reason)


def _is_made(request: MoveRequest, passed: Gate) -> bool:
    """Whether the gate's actuator writes the move or split, and does not only show it."""
    if isinstance(passed.actuator, DryRunActuator):
        return False
    return not isinstance(passed.actuator, DrainsOnly) or request.reason in EVACUATIONS


def with_budget_details(cluster: ClusterState, settings: Settings, decision: Decision, snapshot: Snapshot) -> Decision:
    """`decision` with details of the bundles that stay for lack of a budget: which budget, and until when."""
    considered = decision.plan.considered
    if not any(stays.reason is Reason.DISRUPTION_BUDGET for stays in considered.staying):
        return decision

    tally = tally_of(cluster, rules_of(cluster, settings))

    def told(stays: Staying) -> Staying:
        if stays.reason is not Reason.DISRUPTION_BUDGET:
            return stays
        name = snapshot.records[stays.bundle].name
        return replace(stays, detail=why_withheld(cluster, settings, tally, stays.bundle, name))

    staying = tuple(told(stays) for stays in considered.staying)
    return replace(decision, plan=replace(decision.plan, considered=replace(considered, staying=staying)))
