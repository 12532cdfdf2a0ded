"""What the explorer found once: the last event of each of these stories can't happen any more."""

from __future__ import annotations

import pytest

from explorer import replayed
from move_world import HIGH, LOW
from worlds import moves

ME = "the first operator"
BEGUN = (
    f"{ME} attends to the proposal",
    f"{ME}: gets configmaps/trimtab-proposal-main",
    f"{ME}: gets balancingpolicies/main",
    f"{ME}: writes the spec of trimtab-proposal-main ()",
    (
        f"{ME}: writes the spec of main (annotations={{'trimtab.dev/approved-by': None, 'trimtab.dev/plan': None, "
        "'trimtab.dev/proposal': None, 'trimtab.dev/rebalance': None})"
    ),
)
FIRST = f"{ME}: writes the spec of {LOW} (owner=y, reason=Overloaded)"
SECOND = f"{ME}: writes the spec of {HIGH} (owner=z, reason=Overloaded)"

STORIES = {
    "a move whose answer was lost may be pending: the next one waits": (
        *BEGUN,
        f"{FIRST}, and the answer is lost",
        f"{ME} sees the change of main",
        f"{ME} attends to the proposal",
        SECOND,
    ),
    "a move that is stored as written, and that the store does not show yet, is pending": (
        *BEGUN,
        FIRST,
        f"{ME} sees the change of main",
        f"{ME} attends to the proposal",
        f"{ME}: writes the spec of trimtab-proposal-main (), and is sent a second time",
        f"{ME} attends to the proposal",
        f"{ME}: gets configmaps/trimtab-proposal-main",
        SECOND,
    ),
}


@pytest.mark.parametrize("story", STORIES.values(), ids=STORIES)
def test_the_last_event_of_a_former_counter_example_can_no_longer_happen(story: tuple[str, ...]) -> None:
    assert replayed(moves(faults=1)(), story[:-1]) == ""

    with pytest.raises(LookupError, match="can't happen here"):
        replayed(moves(faults=1)(), story)
