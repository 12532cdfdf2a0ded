"""How many moves of an approved proposal are pending: each that ends makes room for exactly one more."""

from __future__ import annotations

from hypothesis import given, strategies as st

from move_memory import proposal
from trimtab_operator.proposals.progress import Execution, Mark
from trimtab_strategies.model import HeldBack, Reason

ROWS = 6
ACTS = st.lists(st.tuples(st.sampled_from(["write", "land", "fail"]), st.integers(0, ROWS - 1)), max_size=30)


@given(ACTS)
def test_each_move_that_ends_makes_room_for_one(acts: list[tuple[str, int]]) -> None:
    execution = Execution(proposal(tuple((f"b{row}", f"t/n/{row}", "x", "y") for row in range(ROWS))), 0.0)
    for act, row in acts:
        before, mark = execution.in_flight, execution.marks[row]
        if act == "write" and mark is Mark.WAITING:
            execution.wrote(row, "1")
            assert execution.in_flight == before + 1
        elif act == "land" and mark is Mark.WRITTEN:
            execution.land(row)
            assert execution.in_flight == before - 1
        elif act == "fail" and mark in {Mark.WRITTEN, Mark.WAITING}:
            execution.fail(row, HeldBack("b", Reason.CONFLICT))
            assert execution.in_flight == before - (mark is Mark.WRITTEN)
        assert execution.in_flight == execution.marks.count(Mark.WRITTEN)
