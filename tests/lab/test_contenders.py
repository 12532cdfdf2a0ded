"""The comparison: who takes part, in which worlds, and the table of medians."""

from __future__ import annotations

import numpy as np
import pytest

from small_worlds import RNG
from trimtab_lab.simulation import USUAL_PLACEMENTS, UnderTrimtab, build, contender, named, played, shown
from trimtab_lab.simulation.contenders import UnknownContenderError
from trimtab_strategies import registry


def test_every_customary_placement_exists() -> None:
    assert set(USUAL_PLACEMENTS) == set(registry.SHEDDERS)
    assert {who.placement for who in shown()} <= set(registry.PLACEMENTS)


def test_each_baseline_takes_part_as_pulsar_runs_it_and_under_trimtab() -> None:
    names = [who.name for who in shown()]

    assert len(names) == len(set(names))
    both = {f"{name}/{run_by}" for name in USUAL_PLACEMENTS for run_by in ("Pulsar", "Trimtab")}
    assert both - {"Trim/Pulsar"} <= set(names)
    assert "Trim/Pulsar" not in names


def test_a_name_without_a_runner_means_trimtab() -> None:
    assert contender("AvgShedder") == contender("AvgShedder/Trimtab")


def test_an_unknown_strategy_is_refused_with_the_known_ones() -> None:
    with pytest.raises(UnknownContenderError, match=r"'Unknown' is unknown: use one of .*AvgShedder/Pulsar"):
        contender("Unknown")


def test_baselines_get_a_splitter_only_where_bundles_may_be_split() -> None:
    for name, there in (("skewed", False), ("hot-bundle", True)):
        decider = contender("AvgShedder").decider(build(named(name), RNG(0)))
        assert isinstance(decider, UnderTrimtab)
        assert (decider.pair.splitter is not None) is there


def test_all_contenders_meet_the_same_world() -> None:
    first, second = (
        played(named("new-broker"), contender(name), 7).record for name in ("AvgShedder", "OverloadShedder")
    )

    assert first.imbalance[0] == second.imbalance[0]
    assert first.pressure[0].tolist() == second.pressure[0].tolist()
    assert first.wanted == second.wanted


@pytest.mark.slow
@pytest.mark.parametrize(
    ("scenario", "who", "moves", "area", "left"),
    [
        ("skewed", "UniformLoadShedder/Pulsar", (20, 28), (17, 20), (13, 17)),
        ("two-brokers", "ThresholdShedder", (49, 62), (2, 3), (0, 0.6)),
        ("shared-machine", "WeightedBalancer", (14, 19), (27.5, 28.5), (16, 19)),
        ("five-join", "ThresholdShedder", (48, 60), (6, 11), (4, 10)),
    ],
)
def test_baselines_do_what_they_did_in_the_prototype(
    scenario: str, who: str, moves: tuple[float, float], area: tuple[float, float], left: tuple[float, float]
) -> None:
    scores = [played(named(scenario), contender(who), seed).score for seed in range(5)]

    for bounds, name in ((moves, "moves"), (area, "area"), (left, "left")):
        assert bounds[0] <= np.median([getattr(score, name) for score in scores]) <= bounds[1], name
