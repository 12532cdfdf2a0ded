"""The commands of the page on backtests are run, in order, in one folder, and show what the page says."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import pytest

from doc_blocks import blocks, spans
from trimtab_operator.cli.parser import PLUGINS, VERBS

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "how-to" / "backtest.md"

pytestmark = [pytest.mark.slow, pytest.mark.long]


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What each command printed."""
    folder = tmp_path_factory.mktemp("tutorial")
    (folder / "examples").symlink_to(ROOT / "examples")
    env = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "COLUMNS": "110"}
    found: dict[str, str] = {}
    for block in blocks(PAGE):
        for command in block.commands if block.run else ():
            done = subprocess.run(
                ["bash", "-o", "pipefail", "-c", command],
                cwd=folder, env=env, check=False, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            )  # fmt: skip
            assert done.returncode == 0, f"line {block.line}: {command}\n{done.stdout}"
            assert done.stdout.strip(), f"line {block.line}: {command} printed nothing"
            found[" ".join(command.split())] = done.stdout
    assert (folder / "report.html").read_text().startswith("<!")
    assert (folder / "comment.md").read_text().startswith("### Trimtab backtest")
    return found


def row(text: str, name: str) -> list[str]:
    """The cells of a row of a table."""
    [found] = [line.split() for line in text.splitlines() if line.startswith(f" {name} ")]
    return found


def output(printed: dict[str, str], words: str) -> str:
    [found] = [text for command, text in printed.items() if words in command]
    return found


def test_the_table_of_the_page_is_what_its_command_prints(printed: dict[str, str]) -> None:
    [shown] = [block.text for block in blocks(PAGE) if block.language == "text"]
    real = output(printed, "--html report.html")

    assert [row(shown, name) for name in ("trim", "live")] == [row(real, name) for name in ("trim", "live")]
    assert shown.splitlines()[0] == real.splitlines()[0]


def test_the_replay_makes_the_real_moves(printed: dict[str, str]) -> None:
    share = re.search(r"replayed: (\d+)% of the (\d+) real moves", output(printed, "--from 1h"))

    assert share is not None
    assert int(share[1]) >= 75
    assert int(share[2]) > 5


def test_the_gate_says_what_it_found(printed: dict[str, str]) -> None:
    assert "| policy | moves |" in output(printed, "--require")


def test_the_export_gives_the_same_figures(printed: dict[str, str]) -> None:
    assert row(output(printed, "load.tar --policy"), "trim") == row(output(printed, "--html report.html"), "trim")


def test_only_what_needs_a_cluster_or_a_week_of_load_is_not_run() -> None:
    left_out = [command for block in blocks(PAGE) if not block.run for command in block.commands]

    assert [
        command for command in left_out if not command.startswith("helm upgrade") and "--days 7" not in command
    ] == []


def test_a_command_inside_a_sentence_is_one_that_exists() -> None:
    verbs = [span.split()[1] for span in spans(PAGE) if span.startswith("trimtab ")]

    assert verbs
    assert set(verbs) <= {*VERBS, *entry_points(group=PLUGINS).names}
