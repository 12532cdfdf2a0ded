"""Each invariant is worth something: code with a seeded mistake violates it, and the explorer tells how."""

from __future__ import annotations

import pytest

from explorer import explore, replayed
from mutants import MUTANTS, Mutant
from worlds import moves

pytestmark = [pytest.mark.long, pytest.mark.slow]

MOST = 60_000


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: f"{mutant.short}: {mutant.mistake}")
def test_a_mutant_is_killed(mutant: Mutant) -> None:
    found = mutant.explored(MOST).found

    assert found is not None, "the mutant lives"
    assert mutant.violated in found.broken, str(found)
    with mutant.applied():
        again = "" if mutant.violated.startswith("no calm") else replayed(mutant.world(), found.story)
    assert mutant.violated in again or not again


def test_a_mutant_leaves_the_product_as_it_was() -> None:
    for mutant in MUTANTS:
        with mutant.applied():
            pass

    assert explore(moves(lag=False)(), 60_000).found is None


def test_each_invariant_has_a_mutant_that_violates_it() -> None:
    assert len(MUTANTS) >= 12
    assert len({mutant.violated for mutant in MUTANTS}) >= 8


def test_a_counter_example_is_told_line_by_line() -> None:
    mutant = next(mutant for mutant in MUTANTS if mutant.short == "kube.fence.Fence.check")
    told = str(mutant.explored(MOST).found)

    assert told.splitlines()[0] == "violated: a write of a deposed leader landed"
    assert "the second operator leads from now on, with epoch 2" in told
