"""Two operators that are killed, paused and cut off, and that are restarted as a Deployment restarts pods."""

from __future__ import annotations

import os
import re
import signal
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from replicas import Replica
from trimtab_testbed.servers.kube import ControlPlane
from trimtab_testbed.servers.processes import children, descendants

LEASE = {"--lease-duration": 9, "--renew-deadline": 7, "--retry-period": 0.5}
AGAIN = 1.0
"""Seconds until an operator that exited by itself is restarted."""

_ODD = re.compile(r"Traceback \(most recent call last\)|was never (awaited|retrieved)|Unclosed|Fatal Python error")
_LOST = "ending, to restart as a standby"


class ChaosReplica(Replica):
    """One operator process. It reads its load from the file `ground`, or measures it if there is none."""

    def __init__(self, plane: ControlPlane, folder: Path, name: str, ground: Path | None) -> None:
        options: dict[str, Any] = {**LEASE, **({"--spark": "local[1]"} if ground is None else {})}
        super().__init__(plane, folder, name, options, drawn=ground is not None)
        if ground is not None:
            self._program = [str(Path(__file__).with_name("chaos_replica.py")), str(ground)]
        self.asked_to_end = self.killed = False

    def complaint(self) -> str:
        """Problems of its exit code or its log, as text; empty if there are none."""
        if odd := _ODD.search(self.log):
            begun = self.log.rfind("\n", 0, odd.start()) + 1
            return f"{self.name} logged:\n{self.log[max(0, begun - 300) : begun + 2500]}"
        if self.killed or self._ended_well():
            return ""
        return f"{self.name} exited with code {self.server.returncode}:\n{self.log[-2000:]}"

    def _ended_well(self) -> bool:
        match self.server.returncode:
            case None:
                return True
            case 1:
                return _LOST in self.log
            case 0:
                return self.asked_to_end
            case code:  # exited before it could listen
                return self.asked_to_end and code == -signal.SIGTERM and "stands by" not in self.log


@dataclass
class Crew:
    """Both operators. One thread must call all methods, and must live as long as the operators."""

    plane: ControlPlane
    folder: Path
    ground: Path | None
    all: list[ChaosReplica] = field(default_factory=list)
    slots: list[ChaosReplica | None] = field(default_factory=lambda: [None, None])
    held: dict[int, float] = field(default_factory=dict)
    """Monotonic seconds at which the operator of a slot is started again."""
    broken: list[str] = field(default_factory=list)
    """Problems with the exit of operators."""

    def look_after(self) -> None:
        """Start operators that are due, and note those that exited by themselves."""
        now = time.monotonic()
        for slot, replica in enumerate(self.slots):
            if replica is not None and not replica.server.running:
                replica.__exit__()
                self.slots[slot] = None
                self.broken += [complaint] if (complaint := replica.complaint()) else []
                self.held.setdefault(slot, now + AGAIN)
            if self.slots[slot] is None and now >= self.held.get(slot, 0.0):
                self.held.pop(slot, None)
                self._begin(slot)

    def _begin(self, slot: int) -> None:
        replica = ChaosReplica(self.plane, self.folder, f"operator-{len(self.all)}", self.ground)
        self.all.append(replica)
        self.slots[slot] = replica.__enter__()

    @property
    def leading(self) -> int:
        """The slot of the latest leader that is still running; the first slot if there is none."""
        epochs = [0 if replica is None or not replica.server.running else replica.epoch() for replica in self.slots]
        return epochs.index(max(epochs))

    def kill(self, slot: int, seconds: float) -> None:
        """Kill an operator, as the kernel's OOM killer does; the next one starts `seconds` later."""
        if (replica := self.slots[slot]) is not None and replica.server.running:
            replica.killed = True
            replica.server.kill()
            self.held[slot] = time.monotonic() + seconds

    def end(self, slot: int, seconds: float) -> None:
        """Replace an operator, as a rolling update does."""
        if (replica := self.slots[slot]) is not None and replica.server.running:
            replica.asked_to_end = True
            replica.server.send(signal.SIGTERM)
            self.held[slot] = time.monotonic() + seconds

    def pause(self, slot: int) -> ChaosReplica | None:
        """Stop a process (SIGSTOP); returns its operator."""
        return self._signal(self.slots[slot], signal.SIGSTOP)

    def resume(self, replica: ChaosReplica | None) -> None:
        """Continue the process, if it still exists."""
        self._signal(replica, signal.SIGCONT)

    def _signal(self, replica: ChaosReplica | None, number: signal.Signals) -> ChaosReplica | None:
        if replica is not None and replica.server.running:
            replica.server.send(number)
        return replica

    def cut(self, slot: int) -> ChaosReplica | None:
        """Cut an operator off from the API server; returns it."""
        if (replica := self.slots[slot]) is not None:
            replica.gate.cut()
        return replica

    def mend(self, replica: ChaosReplica | None) -> None:
        """Connect the operator again; held requests are forwarded, too."""
        if replica is not None:
            replica.gate.proxy.hanging = False

    def kill_jvm(self, slot: int) -> None:
        """Kill only Spark's JVM; the operator continues."""
        if (replica := self.slots[slot]) is not None and replica.server.running:
            jvms = [pid for pid in descendants(replica.server.pid, children()) if _runs(pid, "java")]
            for pid in jvms:
                os.kill(pid, signal.SIGKILL)

    def stop(self) -> None:
        """Stop all operators."""
        for replica in self.slots:
            if replica is not None:
                replica.asked_to_end = True
                self.resume(replica)
                self.mend(replica)
                replica.__exit__()
        self.slots = [None, None]

    def complaints(self) -> list[str]:
        """Problems in logs and exit codes."""
        return [text for replica in self.all if (text := replica.complaint())]


def _runs(pid: int, program: str) -> bool:
    with suppress(OSError):  # it has just exited
        return Path(f"/proc/{pid}/comm").read_text().strip() == program
    return False
