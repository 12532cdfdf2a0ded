"""The models with their budgets: what may go wrong in each world. Small ones are explored whole, large ones in part."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from election_world import Budgets, ElectionWorld
from explorer import Model
from kube_world import Left
from move_world import BUDGETED, HOURLY, PLANNED, MoveWorld
from own_balancer_world import OwnBalancerWorld
from pulsar_split_world import PulsarSplitWorld
from split_world import SplitWorld
from trimtab_operator.pulsar.client.api import LoadManager
from unload_world import UnloadWorld


@dataclass(frozen=True)
class BudgetedWorld:
    """A model and its budgets in words. Each call makes it anew, so that nothing is left of an earlier exploration."""

    text: str
    make: Callable[[], Model]

    def __call__(self) -> Model:
        """The model."""
        return self.make()


def _world(what: str, left: Left | Budgets, make: Callable[[], Model]) -> BudgetedWorld:
    counts = {"fault": left.faults, "act": left.acts}
    if isinstance(left, Left):
        counts |= {"takeover": left.takeovers, "crash": left.crashes}
    plural = {"crash": "crashes"}
    parts = [f"{n} {plural.get(name, f'{name}s') if n > 1 else name}" for name, n in counts.items() if n]
    if isinstance(left, Left) and left.lag:
        parts.append("late stores")
    return BudgetedWorld(f"{what}: {', '.join(parts) or 'no fault'}", make)


def splits(faults: int = 0, takeovers: int = 0, acts: int = 0, *, lag: bool = True) -> BudgetedWorld:
    """A declarative split."""
    left = Left(faults, takeovers, 0, acts, lag)
    return _world("split", left, lambda: SplitWorld(left))


def pulsar_splits(
    faults: int = 0,
    takeovers: int = 0,
    acts: int = 0,
    *,
    lag: bool = True,
    manager: LoadManager = LoadManager.EXTENSIBLE,
) -> BudgetedWorld:
    """A split by Pulsar with this load manager."""
    left = Left(faults, takeovers, 0, acts, lag)
    return _world(f"split by Pulsar ({manager.name.lower()})", left, lambda: PulsarSplitWorld(left, manager))


def moves(faults: int = 0, takeovers: int = 0, crashes: int = 0, acts: int = 0, *, lag: bool = True) -> BudgetedWorld:
    """An approved proposal of two moves, one at a time."""
    left = Left(faults, takeovers, crashes, acts, lag)
    return _world("moves", left, lambda: MoveWorld(left))


def budgeted_moves(faults: int = 0, takeovers: int = 0, *, lag: bool = True) -> BudgetedWorld:
    """Moves of which only a disruption budget keeps two from being pending at the same time."""
    left = Left(faults, takeovers, 0, 0, lag)
    return _world("moves in a budget", left, lambda: MoveWorld(left, BUDGETED))


def hourly_moves(faults: int = 0, takeovers: int = 0, *, lag: bool = True) -> BudgetedWorld:
    """Moves of which a disruption budget allows one an hour. No person acts."""
    left = Left(faults, takeovers, 0, 0, lag)
    return _world("moves in a budget per hour", left, lambda: MoveWorld(left, HOURLY))


def planned_moves(faults: int = 0, takeovers: int = 0, acts: int = 0, *, lag: bool = True) -> BudgetedWorld:
    """A saved plan of two moves, one at a time, in mode Auto."""
    left = Left(faults, takeovers, 0, acts, lag)
    return _world("moves of a plan", left, lambda: MoveWorld(left, PLANNED))


def own_balancer(faults: int = 0, takeovers: int = 0, acts: int = 0) -> BudgetedWorld:
    """Pulsar's own balancer."""
    left = Left(faults, takeovers, 0, acts)
    return _world("Pulsar's own balancer", left, lambda: OwnBalancerWorld(left))


def unloads(
    faults: int = 0,
    takeovers: int = 0,
    acts: int = 0,
    *,
    lag: bool = True,
    manager: LoadManager = LoadManager.MODULAR,
    person: bool = True,
) -> BudgetedWorld:
    """Unloads in a Pulsar cluster with this load manager. person: whether one acts, or only Pulsar."""
    left = Left(faults, takeovers, 0, acts, lag)
    what = f"unloads ({manager.name.lower()}{'' if person else ', no person'})"
    return _world(what, left, lambda: UnloadWorld(left, manager, person=person))


def election(faults: int = 0, acts: int = 0, *, begun: bool = False) -> BudgetedWorld:
    """The election. begun: whether one process leads at the start."""
    left = Budgets(faults, acts)
    return _world(f"election{' (begun)' * begun}", left, lambda: ElectionWorld(left, begun=begun))


CLOSED = (
    moves(lag=False),
    hourly_moves(lag=False),
    planned_moves(lag=False),
    splits(lag=False),
    pulsar_splits(lag=False),
    pulsar_splits(lag=False, manager=LoadManager.MODULAR),
    own_balancer(acts=2),
    unloads(acts=1, lag=False),
    unloads(acts=1, lag=False, manager=LoadManager.EXTENSIBLE),
)
"""Worlds that `make test` explores whole."""

CLOSED_WITH_FAULTS = (
    moves(faults=1, lag=False),
    moves(takeovers=1, lag=False),
    moves(crashes=1, lag=False),
    moves(acts=1, lag=False),
    budgeted_moves(faults=1, lag=False),
    hourly_moves(faults=1, lag=False),
    planned_moves(faults=1, lag=False),
    planned_moves(takeovers=1, lag=False),
    planned_moves(acts=1, lag=False),
    splits(faults=1, lag=False),
    unloads(acts=3, lag=False, person=False),
)
"""Worlds in which one thing goes wrong, at any moment. `make model` explores them whole: both moves of the proposal and
the whole split end inside the bound."""

LARGE: Mapping[BudgetedWorld, float] = {
    moves(faults=2, takeovers=1, crashes=1, acts=1): 0.35,
    hourly_moves(faults=1, takeovers=1): 0.05,
    budgeted_moves(faults=1, takeovers=1): 0.05,
    splits(faults=2, takeovers=1, acts=1): 0.2,
    pulsar_splits(faults=1, takeovers=1, acts=1): 0.05,
    pulsar_splits(acts=2, lag=False): 0.05,
    pulsar_splits(faults=1, acts=1, manager=LoadManager.MODULAR): 0.05,
    unloads(faults=1, takeovers=1, acts=2): 0.025,
    unloads(faults=1, takeovers=1, acts=1, manager=LoadManager.EXTENSIBLE): 0.025,
    election(faults=2, acts=2): 0.05,
    election(faults=1, acts=1, begun=True): 0.05,
    own_balancer(faults=1, takeovers=1, acts=2): 0.05,
}
"""Worlds in which several things go wrong, and the share of the states that each gets."""
