"""A control group per broker, so that its CPU usage includes only its own processes, as in a pod.

Without one, all brokers of a machine read the machine's counters, and each reports the usage of all of them. Java finds
the counters of its group through ``/proc/self/cgroup``. So neither a mount namespace nor a container is needed, only
the right to create groups, which root has. Both layouts are supported: v1 and unified (v2).
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

ROOT = Path("/sys/fs/cgroup")
PERIOD = 100_000
"""Microseconds over which a CPU limit is enforced."""

_V1 = ("cpu", "cpuacct", "memory")
_JOIN = 'for group in $TRIMTAB_GROUPS; do echo $$ > "$group/cgroup.procs" || exit 1; done; exec "$@"'


class Box:
    """A control group with this name, in each hierarchy. It does not exist before `make`."""

    def __init__(self, name: str, root: Path = ROOT) -> None:
        self._unified = (root / "cgroup.controllers").is_file()
        parents = [root] if self._unified else [root / controller for controller in _V1]
        self._groups = [parent / name for parent in parents]

    def make(self) -> bool:
        """Create the group; returns whether that worked.

        That needs root, and a hierarchy that is not mounted read-only.
        """
        try:
            for group in self._groups:
                group.mkdir(exist_ok=True)
        except OSError:
            self.remove()
            return False
        return all((group / "cgroup.procs").exists() for group in self._groups)

    def limit(self, cores: float) -> None:
        """Limit the CPU of the group to `cores`. Raises `OSError` where the kernel has no such limit."""
        quota = round(cores * PERIOD)
        if self._unified:
            (self._groups[0] / "cpu.max").write_text(f"{quota} {PERIOD}")
        else:
            (self._groups[0] / "cpu.cfs_period_us").write_text(str(PERIOD))
            (self._groups[0] / "cpu.cfs_quota_us").write_text(str(quota))

    def around(self, command: Sequence[str | Path]) -> list[str | Path]:
        """`command` with a wrapper that joins the group first, so that no thread of it stays outside."""
        groups = f"TRIMTAB_GROUPS={' '.join(map(str, self._groups))}"
        return ["/usr/bin/env", groups, "/bin/sh", "-c", _JOIN, "sh", *command]

    def remove(self, within: float = 2.0) -> None:
        """Remove the group, after waiting at most `within` seconds until it is empty; idempotent."""
        deadline = time.monotonic() + within
        for group in self._groups:
            while group.exists() and not _removed(group) and time.monotonic() < deadline:
                time.sleep(0.02)  # a process is still exiting, and the kernel removes no group in use


def _removed(group: Path) -> bool:
    with suppress(OSError):
        group.rmdir()
    return not group.exists()
