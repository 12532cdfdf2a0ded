"""Processes that start servers at the same time never choose the same port."""

from __future__ import annotations

import subprocess
import sys

import pytest

from trimtab_testbed.servers import processes
from trimtab_testbed.servers.processes import ServerFailedError, free_ports

HOLDER = """
import sys
from trimtab_testbed.servers import processes
processes._PORTS = range({first}, {first} + 4)
print(*processes.free_ports(2), flush=True)
sys.stdin.read()
"""


def test_a_port_that_another_process_waits_for_is_not_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    first = _four_in_a_row()
    monkeypatch.setattr(processes, "_PORTS", range(first, first + 4))
    command = [sys.executable, "-c", HOLDER.format(first=first)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        theirs = {int(port) for port in holder.stdout.readline().split()}
        ours = set(free_ports(2))
        assert ours | theirs == set(range(first, first + 4))
        with pytest.raises(ServerFailedError, match="1 free ports wanted"):
            free_ports(1)
        holder.communicate("")

    assert set(free_ports(2)) == theirs, "the end of a process gives back what it had"


@pytest.mark.parametrize("count", [3, 300], ids=["a few", "more than are kept claimed"])
def test_no_claim_is_left_open_at_the_end(count: int) -> None:
    script = f"from trimtab_testbed.servers.processes import free_ports; free_ports({count})"

    ended = subprocess.run(
        [sys.executable, "-W", "always::ResourceWarning", "-c", script], capture_output=True, text=True, check=True
    )

    assert ended.stderr == ""


def _four_in_a_row() -> int:
    """The first of four free ports outside the range of other processes."""
    return next(
        first for first in range(32010, 32700, 4) if all(processes._free(port) for port in range(first, first + 4))
    )
