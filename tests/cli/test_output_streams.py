"""Output that can't be written: a full disk, a closed stream. No verb answers with a traceback."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from trimtab_operator.cli.parser import VERBS

pytestmark = pytest.mark.slow  # it starts many processes

EXAMPLES = Path(__file__).parents[2] / "examples"
PRINTING = ["version --client", "crds", "simulate --list", "lint POLICY"]
FULL = "standard output can't be written: No space left on device"


def ran(words: str, streams: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """What a shell gets from `trimtab` with these words and redirections."""
    policy = min(EXAMPLES.glob("*.yaml"))
    command = f"exec {sys.executable} -m trimtab_operator {words.replace('POLICY', str(policy))} {streams}"
    environment = {**os.environ, "KUBECONFIG": str(folder / "none"), "HOME": str(folder)}
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=False, env=environment)
    assert "Traceback" not in done.stdout + done.stderr, done.stderr
    assert "Exception ignored" not in done.stderr
    return done


@pytest.mark.parametrize("words", PRINTING)
def test_a_full_disk_is_told_in_one_line(words: str, tmp_path: Path) -> None:
    done = ran(words, ">/dev/full", tmp_path)
    assert (done.returncode, done.stderr.splitlines()[-1]) == (2, f"trimtab: {FULL}")


EACH_VERB = """
import os, sys
from trimtab_operator.cli import main
for verb in sys.argv[1:]:
    if not (child := os.fork()):
        os.dup2(os.open("/dev/full", os.O_WRONLY), 1)
        sys.exit(main([verb, "--help"]))
    print(verb, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


def test_no_verb_takes_a_full_disk_for_success() -> None:
    done = subprocess.run([sys.executable, "-c", EACH_VERB, *VERBS], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [f"{verb} 2" for verb in VERBS]
    assert done.stderr.splitlines() == [f"trimtab: {FULL}"] * len(VERBS)


@pytest.mark.parametrize("words", ["version --client", "lint POLICY"])
def test_closed_streams_change_nothing_else(words: str, tmp_path: Path) -> None:
    usual = ran(words, "", tmp_path)
    for streams in (">&-", "2>&-", ">&- 2>&- <&-"):
        done = ran(words, streams, tmp_path)
        assert done.returncode == usual.returncode
        assert done.stdout == ("" if ">&-" in streams.replace("2>&-", "") else usual.stdout)


@pytest.mark.parametrize("words", ["status --nope", "status"])
def test_errors_that_nobody_can_read_keep_their_exit_code(words: str, tmp_path: Path) -> None:
    for streams in ("2>/dev/full", "2>&-"):
        assert ran(words, streams, tmp_path).returncode == 2


@pytest.mark.parametrize(
    ("words", "file"),
    [("crds --write DIR", "trimtab.dev_brokers.yaml"), ("rbac --write DIR", "rbac.yaml")],
)
def test_a_file_that_finds_no_room_is_named(words: str, file: str, tmp_path: Path) -> None:
    (tmp_path / file).symlink_to("/dev/full")
    done = ran(words.replace("DIR", str(tmp_path)), "", tmp_path)
    assert done.returncode == 2
    assert str(tmp_path) in done.stderr
    assert "No space left on device" in done.stderr
