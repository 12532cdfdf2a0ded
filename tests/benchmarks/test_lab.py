"""The benchmark of the lab: a file of cells that grows, keeps what it has, and continues where it ended."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from trimtab_lab.simulation import contender, named, played

Captured = pytest.CaptureFixture[str]


@pytest.fixture
def lab() -> Iterator[Any]:
    """The script."""
    folder = str(Path(__file__).parents[2] / "benchmarks")
    sys.path.append(folder)
    yield import_module("lab")
    sys.path.remove(folder)


def cells(file: Path) -> list[tuple[str, str, int]]:
    rows = json.loads(file.read_text())["cells"]
    return [(row["scenario"], row["strategy"], row["seeds"]) for row in rows]


def measure(lab: Any, file: Path, *scenarios: str, options: tuple[str, ...] = ("--seeds", "1")) -> None:
    named_ones = ["--scenarios", *scenarios, "--strategies", "AvgShedder", "OverloadShedder/Pulsar"]
    assert lab.main([*named_ones, "--file", str(file), *options]) == 0


def test_cells_are_kept_in_the_order_of_the_catalogue(lab: Any, tmp_path: Path) -> None:
    file = tmp_path / "figures.json"

    measure(lab, file, "idle")
    measure(lab, file, "two-hot")

    strategies = ("OverloadShedder/Pulsar", "AvgShedder/Trimtab")
    assert cells(file) == [(scenario, who, 1) for scenario in ("two-hot", "idle") for who in strategies]


def test_a_cell_that_has_its_seeds_is_measured_again_only_on_request(
    lab: Any, tmp_path: Path, capsys: Captured
) -> None:
    file = tmp_path / "figures.json"
    measure(lab, file, "idle")
    before = file.read_text()
    capsys.readouterr()

    measure(lab, file, "idle")
    assert capsys.readouterr().out == ""

    measure(lab, file, "idle", options=("--seeds", "1", "--again"))
    assert len(capsys.readouterr().out.splitlines()) == 2
    assert file.read_text() == before

    measure(lab, file, "idle", options=("--seeds", "2"))
    assert {seeds for *_, seeds in cells(file)} == {2}


def test_a_cell_has_the_figures_of_a_run(lab: Any, tmp_path: Path) -> None:
    file = tmp_path / "figures.json"
    measure(lab, file, "two-hot")

    scores = json.loads(file.read_text())["cells"][1]["scores"]
    score = played(named("two-hot"), contender("AvgShedder"), 1).score
    assert scores["moves"] == [score.moves] * 3
    assert scores["area"] == [round(score.area, 3)] * 3


@pytest.mark.slow
def test_renewing_the_golden_file_says_what_has_changed(lab: Any, tmp_path: Path, capsys: Captured) -> None:
    file = tmp_path / "golden.json"
    assert lab.renew(["two-hot"], file) == 0
    assert capsys.readouterr().out == ""
    golden = json.loads(file.read_text())
    moves = golden["two-hot"]["moves"]
    golden["two-hot"]["moves"] = [value + 20 for value in moves]
    golden["two-hot"]["left"] = [0.0 for _ in moves]
    golden["two-hot"]["area"] = [0.0 for _ in moves]
    file.write_text(json.dumps(golden))

    lab.renew(["two-hot"], file)

    told = capsys.readouterr().out
    assert "two-hot: area was 0 (0, 0, 0), is " in told
    assert f"two-hot: moves was {sorted(moves)[1] + 20:g} (" in told
    assert {line.rpartition("(")[2] for line in told.splitlines()} >= {"better)", "worse)"}
    assert json.loads(file.read_text())["two-hot"]["moves"] == moves
