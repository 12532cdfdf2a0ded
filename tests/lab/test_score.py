"""Scores: rounds from the last event, what was cut, and one figure for all."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from small_worlds import RNG, Script, small
from trimtab_lab.simulation import Goal, Record, run, score


def recorded(imbalance: list[float], moves: list[int]) -> Record:
    """A run with the imbalance before the first round and after each."""
    rounds = len(moves)
    return Record(
        imbalance=np.array(imbalance),
        pressure=np.array([[0.9, 0.1]] * (rounds + 1)),
        overshoot=np.array([0.0] * (rounds - 1) + [3.0]),
        moves=np.array(moves),
        splits=np.zeros(rounds, dtype=np.int64),
        cut=0.05,
        again=2,
        backward=2,
        wanted=200.0,
        unserved=1.0,
        latency=np.full((rounds, 2), 7.0),
        owned=0.0,
    )


def test_score_counts_rounds_from_the_last_event() -> None:
    settled = score(recorded([99, 50, 40, 30, 10, 5], [1, 1, 0, 2, 0]), event=1)

    assert (settled.balanced, settled.waited, settled.quiet) == (2, 2, 3)
    assert (settled.moves, settled.repeated, settled.backward) == (4, 2, 2)
    assert (settled.area, settled.left, settled.overload) == (27, 15, 5)


def test_a_cluster_that_falls_back_is_not_balanced() -> None:
    swinging = score(recorded([50, 10, 30, 10, 30], [1, 1, 1, 1]))

    assert swinging.balanced is None
    assert swinging.waited == 4
    assert swinging.quiet is None


def test_what_is_level_from_the_start_needs_no_round() -> None:
    assert score(recorded([1, 1, 1], [0, 0])).balanced == 0
    assert score(recorded([1, 1, 1], [0, 0])).quiet == 0


def test_the_total_cost_adds_imbalance_clients_and_what_was_not_served() -> None:
    got = score(recorded([10, 10, 10, 10], [2, 0, 0]))

    assert got.unserved == pytest.approx(0.5)
    assert got.cost == pytest.approx(10 + 0.5 * 10 + 5 + 0.5 * 3 + 0.2 * 3 + 20 * 0.5)


def test_where_nothing_should_move_only_moves_and_clients_cost() -> None:
    assert score(recorded([10, 10, 10, 10], [2, 0, 0]), goal=Goal.STILL).cost == pytest.approx(5 + 2)


def test_clients_of_a_bundle_that_moves_twice_are_cut_twice() -> None:
    made = small(0.8, 0.0)
    made = replace(made, sessions=np.array([10.0, 20.0, 30.0, 40.0]))

    record = run(made, Script({0: [(0, 1)], 3: [(0, 0)], 5: [(1, 1)]}), RNG(0))

    assert record.cut == pytest.approx(0.4)
    assert (record.again, record.backward) == (1, 1)


def test_a_move_to_a_busier_broker_is_uphill() -> None:
    record = run(small(0.8, 0.4), Script({0: [(4, 0)]}), RNG(0))

    assert record.backward == 1


def test_overshoot_is_how_far_a_receiver_ends_above_the_level() -> None:
    record = run(small(0.8, 0.0), Script({0: [(0, 1), (1, 1), (2, 1)]}), RNG(0))

    assert record.overshoot[0] == pytest.approx(20)
    assert record.overshoot[1:].tolist() == [0] * 59
    assert [abs(b - a) for a, b in pairwise(record.imbalance[:3].tolist())] == pytest.approx([40, 0])


def test_owners_for_bundles_without_one_are_not_moves() -> None:
    made = small(0.4, 0.4, events=[{"event": "leave", "brokers": [1], "round": 2}])

    record = run(made, Script({2: [(row, 0) for row in range(4, 8)]}), RNG(0))

    assert (record.moves.sum(), record.cut, record.owned) == (0, 0, 0.5)
    assert record.pressure[-1, 0] == pytest.approx(0.8)
