"""What a policy remembers survives a restart unchanged, and nothing else is taken for it."""

from __future__ import annotations

import json

import pytest

from trimtab_operator.kube.config_map_store import UnreadableContentError
from trimtab_operator.state.strategy_state import PolicyState
from trimtab_strategies.model import Memory

MEBIBYTE = 2**20


def test_memory_comes_back_as_it_was_written() -> None:
    remembered = PolicyState(Memory({"brokers": {"ema": {"x": 0.1 + 0.2}}}, {"turn": 3}), ((1.5, 1), (2.5, 4)), epoch=4)

    assert PolicyState.from_json(remembered.to_json()) == remembered


def test_moves_of_more_than_an_hour_ago_no_longer_count() -> None:
    remembered = PolicyState(moves=((0.0, 5), (1000.0, 1), (3500.0, 1)))

    assert remembered.moved_last_hour(now=4000.0) == 2
    assert remembered.after(Memory(), 2, now=4000.0).moves == ((1000.0, 1), (3500.0, 1), (4000.0, 2))


def test_moves_that_no_one_had_time_to_note_count_when_bundles_tell_of_them() -> None:
    remembered = PolicyState(moves=((1000.5, 2), (2000.5, 2)))

    caught_up = remembered.caught_up([1000.0, 2000.0, 2001.0, 2060.0, 2061.0])

    assert caught_up.moves == ((1000.5, 2), (2000.5, 2), (2060.0, 1), (2061.0, 1))
    assert caught_up.caught_up([1000.0, 2000.0, 2001.0, 2060.0, 2061.0]) == caught_up, "each counts once"
    assert PolicyState().caught_up([7.0, 8.0]).moved_last_hour(now=9.0) == 2


def test_moves_that_were_noted_count_once() -> None:
    remembered = PolicyState(moves=((1000.5, 2), (2000.5, 2)))

    assert remembered.caught_up([1000.0, 1001.0, 2000.0, 2001.0]) == remembered
    assert remembered.caught_up([]) == remembered


def test_counts_too_large_to_be_true_take_no_time() -> None:
    remembered = PolicyState(moves=((1000.0, -1), (1000.5, 10**15)))

    assert remembered.caught_up([1000.0, 1001.0]) == remembered


def test_a_cycle_that_moves_nothing_leaves_no_trace() -> None:
    assert PolicyState(moves=((0.0, 5),)).after(Memory(), 0, now=4000.0) == PolicyState()


def test_after_a_clock_was_set_back_the_hour_still_ends() -> None:
    remembered = PolicyState(moves=((900_000.0, 7),)).after(Memory(), 0, now=0.0)

    assert remembered.moved_last_hour(now=3599.0) == 7
    assert remembered.moved_last_hour(now=3600.0) == 0


@pytest.mark.slow
def test_the_busiest_hour_a_policy_may_have_fits_a_config_map() -> None:
    remembered, memory = PolicyState(), Memory({"brokers": {"ema": {f"broker-{n}": 0.3 for n in range(100)}}})
    for second in range(3600):
        remembered = remembered.after(memory, 28, second)

    assert remembered.moved_last_hour(3600.0) > 100_000
    assert len(remembered.to_json()) < MEBIBYTE / 4


WRITTEN = {"version": 1, "shedder": {}, "placement": {}, "moves": [], "epoch": 1}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "null",
        "{}",
        '{"version": 2}',
        '{"version": 1, "shedder": {}}',
        json.dumps({**WRITTEN, "moves": ["yesterday"]}),
        json.dumps({**WRITTEN, "moves": [["yesterday", 1]]}),
        json.dumps({**WRITTEN, "shedder": 5}),
        json.dumps({**WRITTEN, "epoch": "first"}),
    ],
)
def test_what_trimtab_did_not_write_is_refused(text: str) -> None:
    with pytest.raises(UnreadableContentError):
        PolicyState.from_json(text)
