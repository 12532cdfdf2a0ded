"""The controller of target weights: stable or not, with dead time, on few consumers and on many; and its corners."""

from __future__ import annotations

from collections import deque

import numpy as np
import pytest

from trimtab_strategies.params import Compatibility
from trimtab_strategies.shedding.weighted import target_weights
from trimtab_strategies.shedding.weighted.nodes import NodeLoad
from trimtab_strategies.shedding.weighted.target_weights import AverageScore, Law, TargetRule

CYCLE, WINDOW, DEAD_TIME = 30_000, 900_000, 600_000
MEAN_CPU = 0.35
TOTAL = 1000.0

ORIGINAL = TargetRule(Law.SCORING, window=WINDOW)
CORRECTED = TargetRule(Law.SCORING, window=WINDOW, compatibility=Compatibility.CORRECTED)


def utilisation_spread(count: int, rule: TargetRule, hours: int = 10) -> float:
    """Coefficient of variation of cpu, averaged over the last hour of a closed loop.

    Every second machine needs 1.4 times as much cpu for the same work. Targets are obeyed exactly, after the dead time.
    """
    names = [f"c{k:02d}" for k in range(count)]
    cost = np.where(np.arange(count) % 2, 1.4, 1.0)
    pending = deque([np.full(count, TOTAL / count)] * (DEAD_TIME // CYCLE))
    memory: dict[str, AverageScore] = {}
    spread = []
    for now in range(0, hours * 3_600_000, CYCLE):
        carried = pending.popleft()
        cpu = np.minimum(cost * carried / (cost * carried).mean() * MEAN_CPU, 1.0)
        loads = {name: NodeLoad(float(c), {"g.t$s": float(w)}) for name, c, w in zip(names, cpu, carried, strict=True)}
        books = dict(zip(names, carried.tolist(), strict=True))
        found = target_weights.update(books, loads, memory, now, rule)
        memory = dict(found.memory)
        pending.append(np.array([found.weights[name] for name in names]))
        spread.append(cpu.std() / cpu.mean())
    return float(np.mean(spread[-3_600_000 // CYCLE :]))


@pytest.mark.parametrize("count", [5, 16, 64])
def test_corrected_controller_evens_out_any_number_of_consumers(count: int) -> None:
    assert utilisation_spread(count, CORRECTED) < 0.01


def test_original_controller_settles_while_gain_times_cpu_times_count_is_below_two() -> None:
    assert utilisation_spread(5, ORIGINAL) < 0.02  # 1 x 0.35 x 5
    assert utilisation_spread(16, TargetRule(Law.SCORING, gain=0.1, window=WINDOW)) < 0.02


@pytest.mark.parametrize("count", [16, 64])
def test_original_controller_never_settles_above_that(count: int) -> None:
    assert utilisation_spread(count, ORIGINAL) > 0.2


def test_new_leader_s_first_targets_are_what_is_carried() -> None:
    books = {"a": 60.0, "b": 40.0}
    loads = {"a": NodeLoad(0.9), "b": NodeLoad(0.1)}

    found = target_weights.update(books, loads, {}, 0, CORRECTED)

    assert found.weights == pytest.approx(books)
    assert found.memory == {"a": AverageScore(0.6, 0), "b": AverageScore(0.4, 0)}
    assert found.errors == {"a": pytest.approx(-0.4), "b": pytest.approx(0.4)}


def test_targets_move_from_the_busy_to_the_idle() -> None:
    books = {"a": 50.0, "b": 50.0}
    loads = {"a": NodeLoad(0.9), "b": NodeLoad(0.3)}
    first = target_weights.update(books, loads, {}, 0, CORRECTED)

    second = target_weights.update(books, loads, first.memory, WINDOW, CORRECTED)

    alpha = 1 - np.exp(-1)
    assert second.memory["a"].average == pytest.approx(0.5 * (1 - alpha) + 0.5 * (1 - 0.3 / 0.6) * alpha)
    assert second.weights["a"] < 50 < second.weights["b"]
    assert sum(second.weights.values()) == pytest.approx(100)


def test_consumer_that_carries_nothing_starts_from_the_fair_share() -> None:
    books = {"a": 60.0, "b": 40.0, "new": 0.0}
    loads = {"a": NodeLoad(0.6), "b": NodeLoad(0.4), "new": NodeLoad(0.01)}

    found = target_weights.update(books, loads, {}, 0, CORRECTED)

    assert found.shares["new"] == pytest.approx(1 / 3)
    assert found.weights["new"] == pytest.approx(25)


def test_floor_is_relative_to_the_fair_share() -> None:
    """150 consumers of very different weight at equal cpu: nothing should change, and all but the tiny ones keep it."""
    books = {f"k{k:03d}": 1.0 + k for k in range(150)}
    loads = dict.fromkeys(books, NodeLoad(0.5))

    found = target_weights.update(books, loads, {}, 0, CORRECTED)

    assert found.weights["k100"] == pytest.approx(101, rel=0.01)
    assert found.weights["k000"] == pytest.approx(0.1 * 11_325 / 150, rel=0.01)


@pytest.mark.parametrize("cpu", [float("nan"), float("inf"), -0.5, -1.0])
def test_consumer_without_a_believable_load_gets_the_plain_average(cpu: float) -> None:
    books = {"a": 30.0, "b": 20.0, "c": 10.0}
    loads = {"a": NodeLoad(0.5), "b": NodeLoad(0.5), "c": NodeLoad(cpu)}

    found = target_weights.update(books, loads, {}, 0, CORRECTED)

    assert found.weights == pytest.approx({"a": 24.0, "b": 16.0, "c": 20.0})
    assert set(found.scores) == {"a", "b"}


def test_fixed_weight_is_the_target_and_the_others_share_the_rest() -> None:
    books = {"a": 50.0, "b": 50.0, "c": 20.0}

    for law, compatibility in ((Law.AVERAGE, Compatibility.JAVA), (Law.SCORING, Compatibility.CORRECTED)):
        rule = TargetRule(law, compatibility=compatibility, fixed={"a": 0.5, "gone": 5.0})
        loads = {"a": NodeLoad(0.5), "b": NodeLoad(0.5), "c": NodeLoad(0.5)}
        found = target_weights.update(books, loads, {}, 0, rule)

        assert list(found.weights) == ["a", "b", "c"]
        assert found.weights["a"] == 24  # half of what the others carry on average
        assert found.weights["b"] + found.weights["c"] == pytest.approx(96)
        assert found.weights["b"] >= found.weights["c"]


def test_fixed_weights_of_all_are_relative_to_each_other() -> None:
    books, loads = {"a": 50.0, "b": 50.0}, {"a": NodeLoad(0.9), "b": NodeLoad(0.1)}

    found = target_weights.update(books, loads, {}, 0, TargetRule(Law.SCORING, fixed={"a": 6.0, "b": 2.0}))
    emptied = target_weights.update(books, loads, {}, 0, TargetRule(Law.SCORING, fixed={"a": 0.0, "b": 0.0}))

    assert found.weights == {"a": 75, "b": 25}
    assert emptied.weights == {"a": 0, "b": 0}


def test_no_broker_left_gives_no_target() -> None:
    for rule in (ORIGINAL, CORRECTED, TargetRule()):
        assert target_weights.update({}, {}, {"gone": AverageScore(0.5, 0)}, 0, rule).memory == {}


def test_idle_cluster_has_targets_of_zero() -> None:
    books, loads = {"a": 0.0, "b": 0.0}, {"a": NodeLoad(0.0), "b": NodeLoad(0.0)}

    for rule in (ORIGINAL, CORRECTED, TargetRule()):
        assert target_weights.update(books, loads, {}, 0, rule).weights == {"a": 0.0, "b": 0.0}
