"""`trimtab simulate`: the table, JSON, the picture, the catalogue, and errors that name what is wrong."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from trimtab_lab.simulation import catalogue
from trimtab_lab.simulation.compare import COLUMNS
from trimtab_operator.cli import main

ROOT = Path(__file__).parents[2]

Captured = pytest.CaptureFixture[str]

QUICK = ["--strategy", "AvgShedder/Pulsar", "--seeds", "1", "--jobs", "1"]
"""A run that takes a tenth of a second."""


@pytest.fixture(autouse=True)
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tables are as wide as in a pipe."""
    monkeypatch.delenv("COLUMNS", raising=False)


def rows(printed: str) -> list[list[str]]:
    """The words of each line of a table, the heading first, without intervals."""
    lines = [
        re.sub(r"\(.*?\)", "", line).split()
        for line in printed.splitlines()
        if line.startswith(" ") and "─" not in line
    ]
    return [words for words in lines if words]


def test_a_scenario_is_played_by_trim_and_by_another(capsys: Captured) -> None:
    assert main(["simulate", "two-brokers", "--against", "AvgShedder/Pulsar", "--seeds", "1", "--jobs", "1"]) == 0

    printed = capsys.readouterr().out
    heading, *found = rows(printed)
    assert printed.startswith("two-brokers: Two brokers, 1 seed")
    assert heading == ["strategy", "moves", "cut", "%", "balanced", "area", "left", "hot", "cost"]
    assert {row[0] for row in found} == {"Trim/Trimtab", "AvgShedder/Pulsar"}
    assert {len(row) for row in found} == {len(heading) - 1}


@pytest.mark.slow
def test_json_has_every_run_and_the_intervals(capsys: Captured) -> None:
    assert main(["simulate", "two-hot", "--seeds", "3", "--first-seed", "7", "--jobs", "1", "-o", "json"]) == 0

    [played] = json.loads(capsys.readouterr().out)
    assert (played["scenario"], played["strategy"]) == ("two-hot", "Trim/Trimtab")
    assert [run["seed"] for run in played["runs"]] == [7, 8, 9]
    assert all(run["moves"] > 0 and run["left"] < 10 for run in played["runs"])
    assert list(played["summary"]) == list(COLUMNS)
    moves = [run["moves"] for run in played["runs"]]
    low, median, high = np.percentile(moves, (5, 50, 95))
    assert played["summary"]["moves"] == pytest.approx({"median": median, "low": low, "high": high})


@pytest.mark.slow
def test_a_run_is_the_same_in_this_process_and_in_another(capsys: Captured) -> None:
    asked = ["simulate", "two-hot", "--strategy", "AvgShedder/Pulsar", "--seeds", "4", "-o", "json"]
    found = []
    for jobs in ("1", "2"):
        assert main([*asked, "--jobs", jobs]) == 0
        found.append(json.loads(capsys.readouterr().out))

    assert found[0] == found[1]


def test_the_catalogue_is_listed(capsys: Captured) -> None:
    assert main(["simulate", "--list"]) == 0

    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == list(catalogue())


def test_a_scenario_of_a_file_is_played_by_position_and_by_option(tmp_path: Path, capsys: Captured) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("title: Mine\ndescription: Two brokers.\nmachines:\n  - {count: 2, usage: [0.9, 0.1]}\nrounds: 5\n")

    for asked in ([str(file)], ["--scenario", str(file)]):
        assert main(["simulate", *asked, *QUICK]) == 0
        assert capsys.readouterr().out.startswith(f"{file}: Mine, 1 seed")


@pytest.mark.slow
def test_each_scenario_has_a_table_with_the_least_cost_first_and_a_line_in_words(capsys: Captured) -> None:
    asked = ["two-hot", "idle", "--strategy", "OverloadShedder/Pulsar", "--against", "AvgShedder/Pulsar", "--jobs", "1"]
    assert main(["simulate", *asked, "--seeds", "3"]) == 0

    hot, idle = capsys.readouterr().out.split("\n\nidle: ")
    assert [row[0] for row in rows(hot)] == ["strategy", "AvgShedder/Pulsar", "OverloadShedder/Pulsar"]
    assert float(rows(hot)[1][-1]) < float(rows(hot)[2][-1])
    words = hot.splitlines()[-1]
    assert re.fullmatch(
        r"OverloadShedder/Pulsar: \d+ moves?, \S+ % of clients cut, never balanced, cost \S+; "
        r"AvgShedder/Pulsar: \d+ moves, \S+ % of clients cut, balanced (at once|after \d+ minutes?), cost \S+\.",
        words,
    ), words
    assert "Every move is useless here. OverloadShedder/Pulsar: 0 moves" in idle


def test_the_table_has_the_columns_that_are_asked_for(capsys: Captured) -> None:
    for asked, headings in (("all", list(COLUMNS.values())), ("moves,p99, cut", ["moves", "p99 ms", "cut %"])):
        assert main(["simulate", "two-hot", *QUICK, "--columns", asked]) == 0
        assert rows(capsys.readouterr().out)[0] == ["strategy", *" ".join(headings).split()]


@pytest.mark.slow
def test_a_table_fits_into_120_columns(capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    assert main(["simulate", "skewed", *QUICK[:2], "--against", "ThresholdShedder/Pulsar", "--seeds", "3"]) == 0

    printed = capsys.readouterr().out
    assert "no room for" not in printed
    assert max(map(len, printed.splitlines())) <= 120


def on_a_terminal(*asked: str) -> str:
    """What the program prints on a terminal of 30 lines."""
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "100", "LINES": "30"}
    command = [sys.executable, "-m", "trimtab_operator", "simulate", *asked]
    with subprocess.Popen(command, stdout=theirs, stderr=subprocess.STDOUT, stdin=theirs, env=environment) as program:
        os.close(theirs)
        printed = bytearray()
        try:
            while part := os.read(ours, 65536):
                printed += part
        except OSError:  # how Linux says that the other end is closed
            pass
        os.close(ours)
    assert program.returncode == 0, printed.decode()
    return printed.decode()


def test_nothing_moves_in_a_pipe(capsys: Captured) -> None:
    assert main(["simulate", "two-hot", *QUICK]) == 0

    printed = capsys.readouterr()
    assert "█" not in printed.out + printed.err
    assert "\x1b" not in printed.out


def test_a_picture_is_drawn_beside_the_table(tmp_path: Path, capsys: Captured) -> None:
    file = tmp_path / "load.svg"
    assert main(["simulate", "two-hot", *QUICK, "--picture", str(file)]) == 0

    assert f"{file} shows the load of each broker over time" in capsys.readouterr().err
    assert file.read_text().startswith("<svg ")


def refused(capsys: Captured, *asked: Any) -> str:
    """The error that the command prints."""
    assert main(["simulate", *map(str, asked)]) == 2
    return capsys.readouterr().err


def test_the_command_says_why_a_file_can_t_be_read(tmp_path: Path, capsys: Captured) -> None:
    (tmp_path / "binary.yaml").write_bytes(b"title: \xff")

    assert "No such file or directory: give the path" in refused(capsys, tmp_path / "none.yaml")
    assert "is not UTF-8 text" in refused(capsys, tmp_path / "binary.yaml")


@pytest.mark.parametrize(
    ("asked", "fix"),
    [
        (["nowhere"], "`trimtab simulate --list` shows all"),
        (["skewed", "--strategy", "Unknown"], "use one of"),
        (["skewed", "--against", "Missing"], "use one of"),
    ],
)
def test_the_command_refuses_unknown_names(asked: list[str], fix: str, capsys: Captured) -> None:
    error = refused(capsys, *asked)
    assert f"{asked[-1]!r} is unknown: {fix}" in error


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        ([], "name a scenario"),
        (["skewed", "--seeds", "0"], "argument --seeds: 0 is below 1"),
        (["skewed", "--columns", "moves,speed"], "column 'speed' is unknown: use `all` or moves, cut, again,"),
        (["skewed", "--picture", "load.png"], "load.png does not end in .svg: the picture is an SVG, so name it"),
        (["skewed", "--picture", "nowhere/load.svg"], "there is no folder nowhere: create it first"),
    ],
)
def test_what_can_t_be_done_is_named(asked: list[str], words: str, capsys: Captured) -> None:
    assert words in refused(capsys, *asked)
