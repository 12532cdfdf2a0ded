"""What Trim's predictions are compared with, what the score says, and what it does to the next plans."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from trim_world import START, Play, World, spread
from trimtab_strategies.protocols import Predictions, ScoresPredictions
from trimtab_strategies.shedding.trim import scores
from trimtab_strategies.shedding.trim.plan import PlannedMove
from trimtab_strategies.shedding.trim.shedder import Trim, TrimParams


def skewed(top: float = 85, low: float = 40, n: int = 5, bundles: int = 30, **given: Any) -> World:
    return World.of(*([spread(low, bundles, seed) for seed in range(n - 1)] + [spread(top, bundles, n)]), **given)


def due(world: World, broker: int, percent: float) -> dict[str, Any]:
    """A memory with a prediction for `broker`, which has the bundles of the plan and is due now."""
    row = next(row for row in range(len(world.owner)) if world.owner[row] == broker)
    stays = [PlannedMove(row, broker, broker)]
    memory = scores.predicted({}, world.cluster(), stays, np.full(len(world.cores), percent))
    return {"predictions": [[0.0, *entry[1:]] for entry in memory["predictions"]]}


def scored(*errors: float, hours: float = 1.0) -> list[list[float]]:
    """Errors (points) that were found so many hours ago."""
    return [[START - 3600 * hours, points] for points in errors]


def score(play: Play) -> Predictions:
    return Trim(TrimParams()).predictions(play.memory)


def test_right_predictions_keep_the_plans_large() -> None:
    play = Play(skewed())
    play.minutes(20)

    assert isinstance(Trim(TrimParams()), ScoresPredictions)
    assert play.memory["predictions"] == []
    assert score(play).judged > 0
    assert score(play).right == score(play).step == 1.0
    assert score(play).off < 0.1


def test_before_the_first_prediction_is_due_nothing_is_known() -> None:
    found = score(Play(skewed()))

    assert (found.judged, found.step) == (0, 1.0)
    assert np.isnan([found.right, found.off]).all()


def test_wrong_predictions_halve_the_plans_and_right_ones_restore_them() -> None:
    play = Play(skewed())
    play.memory = {"scored": scored(*[-30.0] * 12), **due(play.world, 0, 99.0)}
    play.minutes(12)

    assert max(play.moves) <= 5  # half of ten from a broker
    assert score(play).step <= 0.5
    restored = Play(skewed(42))
    restored.memory = {"scored": scored(*[1.0] * 20), "step": 0.5, **due(restored.world, 0, 40.0)}
    restored.minute()
    assert score(restored).step == 1.0


def test_a_prediction_for_a_broker_that_left_changes_nothing() -> None:
    """Neither a full list of errors nor a short one is judged again without a new measurement."""
    for errors in (scored(*[-30.0] * 20), scored(*[-30.0] * 12)):
        play = Play(skewed(42))
        play.memory = {"scored": errors, "step": 0.5, "predictions": [[0.0, "gone", 99.0, 0]]}
        play.minute()

        assert score(play).step == 0.5
        assert play.memory["scored"] == errors
        assert play.memory["predictions"] == []


def test_an_error_is_the_measured_less_the_predicted_cpu_in_points() -> None:
    play = Play(skewed())
    play.memory = due(play.world, 4, 80.0)
    play.minute()

    assert play.memory["scored"] == [[START, pytest.approx(5.0, abs=0.01)]]
    assert (score(play).judged, score(play).right) == (1, 0.0)


def test_plans_that_are_only_shown_say_nothing_about_predictions() -> None:
    """Mode DryRun: the load falls without a move, which no plan predicted."""
    play, unloads = Play(skewed()), ()
    while not unloads:
        shedding = Trim(play.params).shed(play.seen(), np.ones(len(play.world.load), dtype=bool), play.memory)
        play.memory, unloads = json.loads(json.dumps(shedding.memory)), shedding.unloads
        play.world.now += 60
    play.world.load[play.world.owner == 4] *= 0.5
    play.minutes(6)

    assert sum(play.moves) == 0
    assert play.memory["predictions"] == []
    assert (score(play).judged, score(play).step) == (0, 1.0)


def test_a_broker_whose_bundles_changed_meanwhile_is_not_compared() -> None:
    play = Play(skewed())
    play.memory = due(play.world, 4, 80.0)
    play.world.owner[play.world.owner == 4] = [3, *[4] * 29]
    play.minute()

    assert play.memory["scored"] == play.memory["predictions"] == []


@pytest.mark.parametrize(("hours", "judged", "step"), [(23, 20, 0.125), (25, 0, 1.0)])
def test_errors_of_yesterday_neither_count_nor_make_plans_smaller(hours: float, judged: int, step: float) -> None:
    play = Play(skewed(42))
    play.memory = {"scored": scored(*[-30.0] * 20, hours=hours), "step": 0.125}
    play.minute()

    assert (score(play).judged, score(play).step) == (judged, step)


def test_too_few_errors_of_today_make_no_plan_smaller() -> None:
    play = Play(skewed(42))
    play.memory = {"scored": [*scored(*[-30.0] * 11, hours=25), *scored(*[-30.0] * 9)], "step": 0.5}
    play.minute()

    assert (score(play).judged, score(play).step) == (9, 1.0)
