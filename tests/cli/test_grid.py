"""Tables on narrow terminals, and without a terminal."""

from __future__ import annotations

import fcntl
import io
import os
import struct
import subprocess
import sys
import termios
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console
from rich.text import Text

from explained_decisions import LEVEL_PAIR
from kept_histories import AT, keep
from recorded_decisions import decided
from trimtab_operator.cli.tables import Grid, Screen, console, print_grid
from trimtab_pipeline.api import DecisionEntry
from trimtab_pipeline.history.decisions import DecisionHistories

BUNDLE = "public/default/0x00000000_0x80000000"
NUMBERS = ("In", "Out", "Topics")
GRID = Grid("Hottest", ("Bundle", "Broker", *NUMBERS), [(BUNDLE, "broker-0", "1", "2", "3")], NUMBERS)


LOAD = Grid(
    "Brokers",
    ("Broker", "Trusted", "CPU", "Memory", "MB/s in", "Bundles"),
    [("pulsar-broker-with-a-long-name-0", "yes", "54.8 %", "30.0 %", "196.25", "1,104")],
    ("CPU", "Memory", "MB/s in", "Bundles"),
    ("Memory",),
)


@pytest.mark.parametrize("width", [24, 30, 40, 50, 60, 70, 80, 100])
def test_no_heading_and_no_number_is_cut_or_folded_however_narrow_the_terminal(width: int) -> None:
    lines = printed(width, LOAD)
    assert max(map(len, lines)) <= width
    folded = " ".join(" ".join(lines).split())
    left = (
        folded.partition("no room for: ")[2].removesuffix(" (-o json has all)").split(", ")
        if "no room" in folded
        else []
    )
    for heading, cell in zip(LOAD.headings[1:], LOAD.rows[0][1:], strict=True):
        assert (heading in left) or (heading in lines[1] and str(cell) in lines[3]), heading
    assert not left or left[0] == "Memory"


def test_a_long_line_continues_below_its_first_word() -> None:
    screen = Screen(file=io.StringIO(), width=30)
    screen.print(Text("first\n    Ready  True, and all of the brokers are measured"))
    assert isinstance(screen.file, io.StringIO)
    lines = screen.file.getvalue().splitlines()
    assert [line.rstrip() for line in lines] == ["first", "    Ready  True, and all of", "    the brokers are measured"]


@pytest.mark.slow
@pytest.mark.parametrize("words", ["--help", "status --help", "history export --help"])
def test_help_is_as_narrow_as_the_terminal(words: str) -> None:
    narrow, wide = (shown_on_terminal(width, words) for width in (60, 200))
    assert max(map(len, narrow.splitlines())) <= 60
    assert "".join(narrow.split()) == "".join(wide.split())


@pytest.mark.slow
def test_an_explanation_is_as_narrow_as_the_terminal_and_whole_in_a_pipe(tmp_path: Path) -> None:
    name = "public-a-0x00000000-0x80000000"
    keep(tmp_path, "messaging/main", [0], LEVEL_PAIR)
    record = decided(LEVEL_PAIR, at=AT)
    entry = DecisionEntry(record.at, str(record.outcome), 0, record.to_json())
    DecisionHistories(tmp_path).keep_decisions("messaging/main", record.at, [entry])
    words = f"explain bundle {name} --history {tmp_path}"
    piped = subprocess.run([*TRIMTAB, *words.split()], capture_output=True, text=True, check=True).stdout
    narrow = shown_on_terminal(60, words)
    assert max(map(len, piped.splitlines())) > 60 >= max(map(len, narrow.splitlines()))
    assert narrow.split() == piped.split()


TRIMTAB = (sys.executable, "-m", "trimtab_operator")


def shown_on_terminal(width: int, words: str) -> str:
    """What a terminal of that width shows."""
    ours, theirs = os.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, width, 0, 0))
    env = {name: value for name, value in os.environ.items() if name not in {"COLUMNS", "LINES"}} | {"TERM": "xterm"}
    shown = b""
    with subprocess.Popen([*TRIMTAB, *words.split()], stdin=theirs, stdout=theirs, stderr=theirs, env=env):
        os.close(theirs)
        with suppress(OSError):  # Linux ends the output of a terminal with EIO
            while more := os.read(ours, 65536):
                shown += more
    os.close(ours)
    return shown.decode()


def printed(width: int, grid: Grid) -> list[str]:
    screen = Console(file=io.StringIO(), width=width)
    print_grid(screen, grid)
    assert isinstance(screen.file, io.StringIO)
    return [line.rstrip() for line in screen.file.getvalue().splitlines() if line.strip()]


def test_with_room_every_column_is_shown_in_one_line() -> None:
    title, head, _, row = printed(90, replace(GRID, spare=("Topics", "Out")))
    assert title == "Hottest"
    assert head.split() == ["Bundle", "Broker", "In", "Out", "Topics"]
    assert row.split() == [BUNDLE, "broker-0", "1", "2", "3"]


def test_a_narrow_terminal_does_without_the_columns_that_may_be_spared_and_says_so() -> None:
    lines = printed(64, replace(GRID, spare=("Elsewhere", "Topics", "Out")))
    assert lines[1].split() == ["Bundle", "Broker", "In", "Out"]
    assert lines[3].split() == [BUNDLE, "broker-0", "1", "2"]
    assert lines[4] == "no room for: Topics (-o json has all)"


def test_names_are_folded_before_a_number_is_cut() -> None:
    lines = printed(46, GRID)
    assert lines[1].split() == ["Bundle", "Broker", "In", "Out", "Topics"]
    assert lines[3].split()[-3:] == ["1", "2", "3"]
    assert "".join(line.split()[0] for line in lines[3:]) == BUNDLE


def test_a_pipe_is_as_wide_as_its_content(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    grid = replace(GRID, rows=[("x" * 300, "broker-0", "1", "2", "3")], spare=("Out",))
    print_grid(console(), grid)
    assert capsys.readouterr().out.splitlines()[4].split() == ["x" * 300, "broker-0", "1", "2", "3"]


def test_a_column_without_anything_in_it_can_be_left_out() -> None:
    found = replace(GRID, rows=[(BUNDLE, "", "1", "2", "3")]).without_empty("Bundle", "Broker")
    assert (found.headings, found.rows) == (("Bundle", *NUMBERS), [(BUNDLE, "1", "2", "3")])
    filled = replace(GRID, rows=[(BUNDLE, "", "1", "2", "3"), (BUNDLE, "broker-0", "1", "2", "3")])
    assert filled.without_empty("Bundle", "Broker").headings == GRID.headings
