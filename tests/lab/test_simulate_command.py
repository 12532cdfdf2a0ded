"""`trimtab simulate`: the table, JSON, the catalogue, and errors that name what is wrong."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from trimtab_lab.simulation import catalogue
from trimtab_lab.simulation.compare import COLUMNS
from trimtab_operator.cli import main

Captured = pytest.CaptureFixture[str]


def test_a_scenario_is_played_by_trim_and_by_another(capsys: Captured) -> None:
    assert main(["simulate", "two-brokers", "--against", "AvgShedder/Pulsar", "--seeds", "1", "--jobs", "1"]) == 0

    heading, trim, average = capsys.readouterr().out.splitlines()
    assert heading.split()[:2] == ["scenario", "strategy"]
    assert trim.split()[:2] == ["two-brokers", "Trim/Trimtab"]
    assert average.split()[:2] == ["two-brokers", "AvgShedder/Pulsar"]
    assert len(trim.split()) == len(average.split()) == 2 + len(COLUMNS)


def test_json_has_every_run(capsys: Captured) -> None:
    assert main(["simulate", "two-hot", "--seeds", "2", "--first-seed", "7", "--jobs", "1", "-o", "json"]) == 0

    [played] = json.loads(capsys.readouterr().out)
    assert (played["scenario"], played["strategy"]) == ("two-hot", "Trim/Trimtab")
    assert [run["seed"] for run in played["runs"]] == [7, 8]
    assert all(run["moves"] > 0 and run["left"] < 10 for run in played["runs"])


def test_the_catalogue_is_listed(capsys: Captured) -> None:
    assert main(["simulate", "--list"]) == 0

    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == list(catalogue())


def test_a_scenario_of_a_file_is_played(tmp_path: Path, capsys: Captured) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("title: Mine\ndescription: Two brokers.\nmachines:\n  - {count: 2, usage: [0.9, 0.1]}\nrounds: 5\n")

    assert main(["simulate", str(file), "--seeds", "1", "--jobs", "1"]) == 0
    assert str(file) in capsys.readouterr().out


def test_the_command_prints_a_row_per_scenario_and_strategy(capsys: Captured) -> None:
    asked = ["two-hot", "idle", "--strategy", "AvgShedder", "--against", "AvgShedder/Pulsar", "--seeds", "1"]
    assert main(["simulate", *asked]) == 0

    head, *rows = capsys.readouterr().out.splitlines()
    assert all(title in head for title in COLUMNS.values())
    assert [row.split()[:2] for row in rows] == [
        ["two-hot", "AvgShedder/Trimtab"],
        ["two-hot", "AvgShedder/Pulsar"],
        ["idle", "AvgShedder/Trimtab"],
        ["idle", "AvgShedder/Pulsar"],
    ]


def test_the_command_says_why_a_file_can_t_be_read(tmp_path: Path, capsys: Captured) -> None:
    (tmp_path / "binary.yaml").write_bytes(b"title: \xff")

    for name, words in (
        ("none.yaml", "No such file or directory: give the path"),
        ("binary.yaml", "is not UTF-8 text"),
    ):
        assert main(["simulate", str(tmp_path / name)]) == 2
        assert words in capsys.readouterr().err


@pytest.mark.parametrize("asked", [["nowhere"], ["skewed", "--strategy", "Unknown"]])
def test_the_command_refuses_unknown_names(asked: list[str], capsys: Captured) -> None:
    assert main(["simulate", *asked]) == 2
    assert "is unknown: use one of" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "name a scenario"),
        (["no-such-scenario"], "no-such-scenario"),
        (["skewed", "--strategy", "CoinToss"], "strategy 'CoinToss' is unknown"),
    ],
)
def test_what_can_t_be_played_is_named(arguments: list[str], words: str, capsys: Captured) -> None:
    assert main(["simulate", *arguments]) != 0
    assert words in capsys.readouterr().err
