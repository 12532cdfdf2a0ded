"""`CycleResult`: what one cycle measured, decided and did."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from trimtab_operator.actuators import WriteResult
from trimtab_operator.resources.budget import BudgetStatus
from trimtab_operator.state.target_weights import BrokerWeight
from trimtab_strategies.model import (
    VERDICTS,
    ClusterLoad,
    HeldBack,
    Move,
    Plan,
    Reason,
    Split,
)
from trimtab_strategies.protocols import Predictions
from trimtab_strategies.sizing import Sizing


@dataclass(frozen=True, slots=True)
class CycleResult:
    """What one cycle measured, decided and did.

    started: epoch seconds. seconds: phase -> its duration. load, plan: None when there is none. namespace: Kubernetes
    namespace of the policy, set if there is a plan. refusal: why the whole cycle was refused, or None. restraint: why
    the plan was only shown, or None. written, split_requests: results of the plan's moves and of its splits, in the
    plan's order.
    """

    started: float
    seconds: Mapping[str, float]
    generation: int
    load: ClusterLoad | None = None
    plan: Plan | None = None
    namespace: str = ""
    refusal: HeldBack | None = None
    restraint: HeldBack | None = None
    written: Sequence[WriteResult] = ()
    split_requests: Sequence[WriteResult] = ()
    weights: Mapping[str, BrokerWeight] = field(default_factory=dict)
    """Target weight and score of each broker, by name; empty where the shedder has none."""
    proposal: Mapping[str, Any] | None = None
    """The plan as the status shows it (JSON); None: there is no plan."""
    names: Mapping[str, str] = field(default_factory=dict)
    """Object name of each bundle that the plan names: to move it, to split it, or to say why it stays."""
    sizing: Sizing | None = None
    """Advice on the number of brokers; None: no plan was made."""
    interval: float | None = None
    """Seconds from one cycle to the next; None: the policy could not be read."""
    hits: Mapping[str, float] = field(default_factory=dict)
    """Hit counts by kind: number of cycles in a row in which a threshold was exceeded."""
    predictions: Predictions | None = None
    """How good the shedder's last predictions were; None: it makes none, or no plan was made."""
    budget: BudgetStatus | None = None
    """What was spent of the policy's budget; None: it has none."""
    unwritten: str | None = None
    """Why the history could not be written; empty if it was written; None: there was nothing to write."""

    @property
    def moved(self) -> list[Move]:
        """The moves that were written."""
        moves = self.plan.moves if self.plan else ()
        return [move for move, written in zip(moves, self.written, strict=False) if written.reason is None]

    @property
    def split(self) -> list[Split]:
        """The splits that were requested."""
        splits = self.plan.splits if self.plan else ()
        return [split for split, asked in zip(splits, self.split_requests, strict=False) if asked.reason is None]

    @property
    def moves_made(self) -> int:
        """Number of moves as the caps count them: a split adds one for each child that leaves the parent's owner."""
        return len(self.moved) + sum(owner != split.source for split in self.split for owner in split.destinations)

    @property
    def held_back(self) -> Counter[str]:
        """How often each reason held something back."""
        planned = self.plan.held_back if self.plan else ()
        counts = Counter[str]()
        for held in planned:
            counts[str(held.reason)] += held.count
        answers = (*self.written, *self.split_requests)
        counts.update(str(written.reason) for written in answers if written.reason is not None)
        if self.refusal is not None:
            counts[str(self.refusal.reason)] += 1
        return counts

    @property
    def outcome(self) -> Reason:
        """The cycle in one word: why something moved or was proposed, else why nothing moves."""
        if self.refusal is not None:
            return self.refusal.reason
        if self.plan is None:
            return Reason.INTERNAL_ERROR
        if self.plan.moves:
            return self.plan.moves[0].reason
        if self.plan.splits:
            return self.plan.splits[0].reason
        return Reason.BALANCED if (held := self.obstacle) is None else held.reason

    @property
    def obstacle(self) -> HeldBack | None:
        """Why nothing moves: the shedder's verdict, else another verdict, else what was held back first, else None."""
        if self.plan is not None and self.plan.verdict is not None:
            return self.plan.verdict
        held_back = self.plan.held_back if self.plan else ()
        verdicts = (held for held in held_back if held.reason in VERDICTS)
        return next(verdicts, held_back[0] if held_back else None)
