"""RoundRobin: one broker after the other, whatever happens to the candidates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from strategy_testing.clusters import cluster
from trimtab_strategies.placement.round_robin import RoundRobin, RoundRobinParams, next_turn


def turns(*candidates: Sequence[str], count: int = 0) -> list[str]:
    """Who is chosen, call by call."""
    memory: dict[str, Any] = {"count": count}
    chosen = []
    for names in candidates:
        name, memory = next_turn(names, memory)
        chosen.append(name)
    return chosen


def test_everybody_has_a_turn() -> None:
    assert turns(*["abc"] * 4) == ["a", "b", "c", "a"]


def test_the_turn_goes_on_when_candidates_come_in_another_order() -> None:
    assert turns("abc", "cba", "bca") == ["a", "b", "c"]


def test_another_number_of_candidates_makes_a_new_list() -> None:
    assert turns("abc", "ab", "ab", "abc") == ["a", "b", "a", "a"]


def test_a_candidate_that_left_makes_a_new_list_when_its_turn_comes() -> None:
    assert turns("abc", "adc", "adc") == ["a", "d", "c"]
    assert turns("abc", "abe", "abe") == ["a", "b", "e"]


@pytest.mark.parametrize(("count", "expected"), [(2147483647, ["b", "a"]), (7, ["b", "c"])])
def test_the_counter_starts_again_where_java_s_does(count: int, expected: list[str]) -> None:
    assert turns("abc", "abc", count=count) == expected


def test_brokers_take_turns_by_name() -> None:
    drawn, placement = cluster(c=0.1, a=0.9, b=0.5), RoundRobin(RoundRobinParams())

    memory: Any = {}
    chosen = []
    for _ in range(4):
        choice = placement.best(drawn, 0, np.arange(3), memory)
        memory = choice.memory
        chosen += [drawn.brokers.names[row] for row in choice.brokers]

    assert chosen == ["a", "b", "c", "a"]
