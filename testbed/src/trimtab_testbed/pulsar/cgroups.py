"""A control group for each broker, so that its own CPU usage shows only its own, as in a pod.

Without one, the brokers of a machine all read the machine's counters, and each believes itself as busy as all of them
together. Java finds its group's counters by ``/proc/self/cgroup``, so that neither a mount namespace nor a container is
needed; only the right to make groups, which root has. Both layouts of cgroups, old (v1) and unified (v2), are handled.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

ROOT = Path("/sys/fs/cgroup")
PERIOD = 100_000
"""Microseconds over which a limit of CPU is kept."""

_V1 = ("cpu", "cpuacct", "memory")
_JOIN = 'for group in $TRIMTAB_GROUPS; do echo $$ > "$group/cgroup.procs" || exit 1; done; exec "$@"'


class Box:
    """One group (in each hierarchy) of this name; nothing exists before `make`."""

    def __init__(self, name: str, root: Path = ROOT) -> None:
        self._unified = (root / "cgroup.controllers").is_file()
        parents = [root] if self._unified else [root / controller for controller in _V1]
        self._groups = [parent / name for parent in parents]

    def make(self) -> bool:
        """Whether it could be made: not without root, nor where groups are mounted read-only."""
        try:
            for group in self._groups:
                group.mkdir(exist_ok=True)
        except OSError:
            self.remove()
            return False
        return all((group / "cgroup.procs").exists() for group in self._groups)

    def limit(self, cores: float) -> None:
        """Let what is inside use at most so many CPU cores. Raises `OSError` where the kernel has no such limit."""
        quota = round(cores * PERIOD)
        if self._unified:
            (self._groups[0] / "cpu.max").write_text(f"{quota} {PERIOD}")
        else:
            (self._groups[0] / "cpu.cfs_period_us").write_text(str(PERIOD))
            (self._groups[0] / "cpu.cfs_quota_us").write_text(str(quota))

    def around(self, command: Sequence[str | Path]) -> list[str | Path]:
        """`command`, which joins the group before it becomes itself, so that no thread of it is left outside."""
        groups = f"TRIMTAB_GROUPS={' '.join(map(str, self._groups))}"
        return ["/usr/bin/env", groups, "/bin/sh", "-c", _JOIN, "sh", *command]

    def remove(self, within: float = 2.0) -> None:
        """Remove it once nothing is inside, which is waited for so many seconds; idempotent."""
        deadline = time.monotonic() + within
        for group in self._groups:
            while group.exists() and not _removed(group) and time.monotonic() < deadline:
                time.sleep(0.02)  # a process is just ending: the kernel removes nothing that is in use


def _removed(group: Path) -> bool:
    with suppress(OSError):
        group.rmdir()
    return not group.exists()
