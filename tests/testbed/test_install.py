"""Errors of the set-up script before it creates anything."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

_SCRIPT = Path(__file__).parents[2] / "testbed" / "install.sh"


def _complaint(tmp_path: Path, **environment: str) -> list[str]:
    wanted = {**os.environ, "PYTHON": sys.executable, "VENV": str(tmp_path / "venv"), **environment}
    done = subprocess.run(
        ["bash", str(_SCRIPT), "environment"], env=wanted, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, (tmp_path / "venv").exists()) == (1, "", False)
    return done.stderr.splitlines()


def _python(folder: Path, text: str) -> str:
    program = folder / "python"
    program.write_text(f"#!/bin/sh\n{text}\n")
    program.chmod(0o755)
    return str(program)


def test_a_temporary_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    gone = str(tmp_path / "gone")
    assert _complaint(tmp_path, TMPDIR=gone) == [f"setup: TMPDIR={gone} is not a writable folder"]


def test_a_python_that_does_not_run_is_quoted_once(tmp_path: Path) -> None:
    python = _python(tmp_path, "printf 'pyenv: not found\\n\\nmore words\\n' >&2; exit 127")
    assert _complaint(tmp_path, PYTHON=python) == [f"setup: {python} does not run: pyenv: not found"]


def test_a_python_that_is_too_old_says_its_version(tmp_path: Path) -> None:
    python = _python(tmp_path, '[ "$1" = --version ] && echo Python 3.9.2 || exit 1')
    (line,) = _complaint(tmp_path, PYTHON=python)
    assert line.startswith(f"setup: {python} is Python 3.9.2; Trimtab needs Python 3.11 or newer")
