"""The comparison: who takes part, in which worlds, and the table of medians."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from small_worlds import RNG
from trimtab_lab.simulation import CUSTOMARY, UnderTrimtab, build, contender, contenders, named, played, shown
from trimtab_lab.simulation.compare import COLUMNS, main
from trimtab_lab.simulation.contenders import USUAL, UnknownContenderError
from trimtab_strategies import registry


def test_every_customary_placement_exists() -> None:
    assert {USUAL, *CUSTOMARY.values()} <= set(registry.PLACEMENTS)
    assert {who.placement for who in contenders()} <= set(registry.PLACEMENTS)


def test_each_baseline_takes_part_as_pulsar_runs_it_and_under_trimtab() -> None:
    names = [who.name for who in shown()]

    assert len(names) == len(set(names))
    assert {f"{name}/{run_by}" for name in CUSTOMARY for run_by in ("Pulsar", "Trimtab")} - {"Trim/Pulsar"} <= set(
        names
    )
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


def test_the_command_prints_a_row_per_scenario_and_strategy(capsys: pytest.CaptureFixture[str]) -> None:
    main(["--scenario", "two-hot,idle", "--strategy", "AvgShedder,AvgShedder/Pulsar", "--seeds", "1"])

    head, *rows = capsys.readouterr().out.splitlines()
    assert all(title in head for title in COLUMNS.values())
    assert [row.split()[:2] for row in rows] == [
        ["two-hot", "AvgShedder/Trimtab"],
        ["two-hot", "AvgShedder/Pulsar"],
        ["idle", "AvgShedder/Trimtab"],
        ["idle", "AvgShedder/Pulsar"],
    ]


def test_the_command_takes_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    mine = tmp_path / "mine.yaml"
    mine.write_text("title: T\ndescription: D\nrounds: 3\nmachines: [{count: 2, usage: [0.2, 0.8]}]\n")

    main(["--scenario", str(mine), "--strategy", "AvgShedder", "--seeds", "1"])

    assert str(mine) in capsys.readouterr().out


def test_the_command_says_why_a_file_can_t_be_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "binary.yaml").write_bytes(b"title: \xff")

    for name, words in (
        ("none.yaml", "No such file or directory: give the path"),
        ("binary.yaml", "is not UTF-8 text"),
    ):
        with pytest.raises(SystemExit):
            main(["--scenario", str(tmp_path / name)])
        assert words in capsys.readouterr().err


@pytest.mark.parametrize("asked", [["--scenario", "nowhere"], ["--strategy", "Unknown"]])
def test_the_command_refuses_unknown_names(asked: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(asked)

    assert "is unknown: use one of" in capsys.readouterr().err
