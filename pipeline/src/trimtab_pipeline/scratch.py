"""The folder of Spark's temporary files. One that a killed program left behind is removed by the next that starts."""

from __future__ import annotations

import fcntl
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path

PREFIX = "trimtab-spark-"
_LOCK = "in-use"


class Scratch:
    """A folder below `parent` (default: the system's temporary folder), locked for as long as this process lives.

    Making one removes the others whose process has ended, however it ended: the kernel lets go of its lock.
    """

    def __init__(self, parent: Path | None = None) -> None:
        parent = parent or Path(tempfile.gettempdir())
        _remove_abandoned(parent)
        self.folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=parent))
        aside = self.folder / f"{_LOCK}.new"
        self._lock = aside.open("wb")
        fcntl.flock(self._lock, fcntl.LOCK_EX)
        aside.rename(self.folder / _LOCK)  # under this name it has never been unlocked

    def remove(self) -> None:
        """Remove the folder and what is in it. Idempotent."""
        shutil.rmtree(self.folder, ignore_errors=True)
        self._lock.close()


def _remove_abandoned(parent: Path) -> None:
    for lock in parent.glob(f"{PREFIX}*/{_LOCK}"):
        with suppress(OSError), lock.open("rb") as held:  # another user's, in use, or gone by now: none of ours
            fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(lock.parent, ignore_errors=True)
