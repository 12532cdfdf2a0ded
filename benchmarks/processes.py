"""What memory and processor time a program, its JVM and the JVM's Python workers take, from Linux' /proc."""

from __future__ import annotations

import os
import re
import time
from collections import defaultdict
from contextlib import suppress
from pathlib import Path

_MEGA = 1024  # kB in a MB, as /proc counts


def memory(jvm: int | None = None) -> dict[str, int]:
    """MB: resident size of this process and of the JVM, proportional size of what runs below the JVM.

    jvm: process id; None for the first child of this process that is one.
    """
    children = _children()
    jvm = jvm or _own_jvm(children)
    below = _below(jvm, children)
    workers = [_size(pid, "smaps_rollup", "Pss") for pid in below]
    return {
        "driver": _size(os.getpid(), "status", "VmRSS") // _MEGA,
        "jvm": _size(jvm, "status", "VmRSS") // _MEGA,
        "workers": sum(workers) // _MEGA,
    }


def processor_time(jvm: int | None = None) -> float:
    """Seconds of all cores that the same processes have used; those that have ended count with who waited for them."""
    children = _children()
    jvm = jvm or _own_jvm(children)
    return time.process_time() + sum(map(_used, (jvm, *_below(jvm, children))))


def _own_jvm(children: dict[int, list[int]]) -> int:
    return next(pid for pid in _below(os.getpid(), children) if _is_java(pid))


def _used(pid: int) -> float:
    with suppress(OSError):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
    return 0.0


def _children() -> dict[int, list[int]]:
    found: dict[int, list[int]] = defaultdict(list)
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has ended meanwhile
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            found[parent].append(int(folder.name))
    return found


def _below(pid: int, children: dict[int, list[int]]) -> list[int]:
    return [one for child in children.get(pid, ()) for one in (child, *_below(child, children))]


def _is_java(pid: int) -> bool:
    with suppress(OSError):
        return Path(f"/proc/{pid}/exe").readlink().name == "java"
    return False


def _size(pid: int, file: str, field: str) -> int:
    """Kilobytes; 0 of a process that has ended."""
    with suppress(OSError):
        found = re.search(rf"^{field}:\s+(\d+) kB", Path(f"/proc/{pid}/{file}").read_text(), re.MULTILINE)
        return int(found[1]) if found else 0
    return 0
