"""How many moves may be pending to a broker, by the publish gaps that were measured there."""

from __future__ import annotations

from hypothesis import given, strategies as st

from trimtab_operator.state.budget_account import KEPT, MovePace

LIMIT = 8


def after(*gaps: float, broker: str = "x", limit: int = LIMIT) -> MovePace:
    pace = MovePace()
    for gap in gaps:
        pace = pace.measured(broker, gap, limit)
    return pace


def test_without_measurements_the_limit_holds() -> None:
    assert MovePace().allowed("x", LIMIT) == LIMIT
    assert after(0.2, 0.2).windows == {}


def test_a_gap_that_has_grown_halves_the_moves_to_its_broker_alone() -> None:
    pace = after(0.2, 0.2, 0.2, 0.9)

    assert pace.allowed("x", LIMIT) == LIMIT // 2
    assert pace.allowed("y", LIMIT) == LIMIT


def test_gaps_that_keep_growing_leave_one_move_at_a_time() -> None:
    assert after(0.2, 0.2, 0.2, 0.9, 2, 4, 8, 16, 32).allowed("x", LIMIT) == 1


def test_each_usual_gap_allows_one_more_up_to_the_limit() -> None:
    pace = after(0.2, 0.2, 0.2, 0.9)
    found = []
    for _ in range(5):
        pace = pace.measured("x", 0.2, LIMIT)
        found.append(pace.allowed("x", LIMIT))

    assert found == [5, 6, 7, 8, 8]
    assert pace.windows == {}


def test_a_few_milliseconds_more_are_no_growth() -> None:
    assert after(0.01, 0.01, 0.01, 0.03).allowed("x", LIMIT) == LIMIT


@given(st.lists(st.floats(0, 100), max_size=60), st.integers(1, 20))
def test_the_pace_stays_between_one_and_the_limit_and_remembers_little(gaps: list[float], limit: int) -> None:
    pace = after(*gaps, limit=limit)

    assert 1 <= pace.allowed("x", limit) <= limit
    assert len(pace.gaps.get("x", ())) <= KEPT
