"""``make model``: explore the models up to a number of states, and print how much was explored."""

from __future__ import annotations

import argparse
import sys

from explorer import explore
from mutants import budgeted_moves, election, hourly_moves, moves, own_balancer, pulsar_splits, splits, unloads
from trimtab_operator.pulsar.client.api import LoadManager

SHARES = (
    (moves(faults=2, takeovers=1, crashes=1, acts=1), 0.35),
    (hourly_moves(faults=1, takeovers=1), 0.05),
    (budgeted_moves(faults=1, takeovers=1), 0.05),
    (splits(faults=2, takeovers=1, acts=1), 0.2),
    (pulsar_splits(faults=1, takeovers=1, acts=1), 0.05),
    (pulsar_splits(acts=2, lag=False), 0.05),
    (pulsar_splits(faults=1, acts=1, manager=LoadManager.MODULAR), 0.05),
    (unloads(faults=1, takeovers=1, acts=2), 0.05),
    (election(faults=2, acts=2), 0.05),
    (election(faults=1, acts=1, begun=True), 0.05),
    (own_balancer(faults=1, takeovers=1, acts=2), 0.05),
)
"""The models, and the share of the states that each gets."""


def main() -> int:
    """Explore all models; returns 1 if an invariant is violated."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--states", type=int, default=1_000_000)
    states = parser.parse_args().states
    total, seconds = 0, 0.0
    for model, share in SHARES:
        done = explore(model(), round(states * share) + 1)
        sys.stdout.write(f"{done}\n")
        sys.stdout.flush()
        total, seconds = total + done.states, seconds + done.seconds
        if done.found is not None:
            sys.stdout.write(f"{done.found}\n")
            return 1
    sys.stdout.write(f"{'together':24} {total:>9,} states, {seconds:.0f} s of one processor\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
