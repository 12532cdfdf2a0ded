"""The folder of temporary files is removed by whoever comes next, when its own process could not."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

from trimtab_pipeline.spark.session import PREFIX, Scratch

_VICTIM = """
import sys, time
from pathlib import Path
from trimtab_pipeline.spark.session import Scratch

scratch = Scratch(Path(sys.argv[1]))
print(scratch.folder, flush=True)
time.sleep(60)
"""


def test_the_folder_of_a_killed_process_is_removed_by_the_next_and_not_before(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", _VICTIM, str(tmp_path)], stdout=subprocess.PIPE, text=True) as victim:
        try:
            assert victim.stdout
            folder = Path(victim.stdout.readline().strip())
            Scratch(tmp_path).remove()
            assert folder.is_dir()
        finally:
            victim.send_signal(signal.SIGKILL)
    assert folder.is_dir()
    Scratch(tmp_path).remove()
    assert list(tmp_path.iterdir()) == []


def test_a_folder_in_use_is_left_alone_also_by_its_own_process(tmp_path: Path) -> None:
    mine, other = Scratch(tmp_path), Scratch(tmp_path)
    assert mine.folder.is_dir()
    other.remove()
    mine.remove()
    mine.remove()
    assert list(tmp_path.iterdir()) == []


def test_what_is_not_locked_by_us_is_not_ours_to_remove(tmp_path: Path) -> None:
    (tmp_path / f"{PREFIX}made-by-hand").mkdir()
    Scratch(tmp_path).remove()
    assert [path.name for path in tmp_path.iterdir()] == [f"{PREFIX}made-by-hand"]
