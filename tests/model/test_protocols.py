"""The protocols of the operator, run by the product's own code in every order of events up to a bound."""

from __future__ import annotations

import sys
from collections.abc import Callable

import pytest

from explorer import Model, explore
from mutants import budgeted_moves, election, hourly_moves, moves, own_balancer, pulsar_splits, splits, unloads
from trimtab_operator.pulsar.client.api import LoadManager

pytestmark = pytest.mark.long

BOUNDED: dict[str, tuple[Callable[[], Model], int]] = {
    "moves": (moves(faults=2, takeovers=1, crashes=1, acts=1), 12_000),
    "moves with a budget": (budgeted_moves(faults=1, takeovers=1), 6_000),
    "moves with a budget per hour": (hourly_moves(faults=1, takeovers=1), 6_000),
    "splits": (splits(faults=2, takeovers=1, acts=1), 12_000),
    "splits by Pulsar": (pulsar_splits(faults=1, takeovers=1, acts=1), 8_000),
    "splits by Pulsar, modular": (pulsar_splits(faults=1, acts=1, manager=LoadManager.MODULAR), 4_000),
    "Pulsar's own balancer": (own_balancer(faults=1, takeovers=1, acts=2), 6_000),
    "unloads": (unloads(faults=1, takeovers=1, acts=1), 4_000),
    "unloads, extensible": (unloads(faults=1, takeovers=1, acts=1, manager=LoadManager.EXTENSIBLE), 4_000),
    "the election": (election(faults=2, acts=2), 12_000),
    "the election, once one leads": (election(faults=1, acts=1, begun=True), 12_000),
}
CLOSED: dict[str, Callable[[], Model]] = {
    "moves without faults": moves(lag=False),
    "moves with a budget per hour, without faults": hourly_moves(lag=False),
    "a split without faults": splits(lag=False),
    "a split by Pulsar without faults": pulsar_splits(lag=False),
    "a split by Pulsar without faults, modular": pulsar_splits(lag=False, manager=LoadManager.MODULAR),
    "Pulsar's own balancer without faults": own_balancer(acts=2),
    "unloads without faults": unloads(acts=1, lag=False),
    "unloads without faults, extensible": unloads(acts=1, lag=False, manager=LoadManager.EXTENSIBLE),
}


@pytest.mark.parametrize("name", BOUNDED)
def test_no_order_of_events_up_to_the_bound_violates_an_invariant(name: str) -> None:
    model, most = BOUNDED[name]
    done = explore(model(), most)

    sys.stdout.write(f"{done}\n")
    assert done.found is None, str(done.found)
    assert done.states >= most


def test_the_bounds_give_twenty_thousand_states() -> None:
    assert sum(most for _, most in BOUNDED.values()) >= 20_000


@pytest.mark.parametrize("name", CLOSED)
def test_without_faults_every_reachable_state_is_explored_and_leads_to_a_settled_one(name: str) -> None:
    done = explore(CLOSED[name](), 60_000)

    sys.stdout.write(f"{done}\n")
    assert done.found is None, str(done.found)
    assert done.closed
