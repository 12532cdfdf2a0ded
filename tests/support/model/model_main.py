"""``make model``: explore the small worlds whole, then the large ones up to a number of states, and print how much."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator

from explorer import explore
from worlds import CLOSED, CLOSED_WITH_FAULTS, LARGE, BudgetedWorld

WHOLE = 300_000
"""More states than any small world has. One that reaches it is no longer small, which is an error."""


def _planned(states: int) -> Iterator[tuple[BudgetedWorld, int]]:
    """Each world, and the most states of it to explore."""
    for world in (*CLOSED, *CLOSED_WITH_FAULTS):
        yield world, WHOLE
    for world, share in LARGE.items():
        yield world, round(states * share) + 1


def main() -> int:
    """Explore all worlds; returns 1 if an invariant is violated, or a small world was not explored whole."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--states", type=int, default=1_000_000, help="states of the large worlds, together")
    total, seconds = 0, 0.0
    for world, most in _planned(parser.parse_args().states):
        done = explore(world(), most)
        sys.stdout.write(f"{world.text:60} {done}\n")
        sys.stdout.flush()
        total, seconds = total + done.states, seconds + done.seconds
        if done.found is not None:
            sys.stdout.write(f"{done.found}\n")
            return 1
        if world not in LARGE and not done.closed:
            sys.stdout.write(f"it has more than {WHOLE:,} states: make its budgets smaller, or move it to LARGE\n")
            return 1
    sys.stdout.write(f"{'together':60} {total:>9,} states, {seconds:.0f} s of one processor\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
