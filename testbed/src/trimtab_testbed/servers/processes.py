"""Runs servers as child processes on free ports: starts, pauses and stops them. None outlives this process."""

from __future__ import annotations

import atexit
import os
import random
import signal
import socket
import ssl
import subprocess
import sys
import time
import urllib.request
from abc import ABC, abstractmethod
from collections import defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from http import HTTPStatus
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import Self

HOST = "127.0.0.1"

_PARENT_WATCH = Path(__file__).with_name("parent_watch.py")
# Below the range that Linux uses for outgoing connections, so that none takes the port while a server restarts.
_PORTS = range(20000, 32000)
_LOG_TAIL = 2000
_ATTEMPTS = 3
_KEPT = 256
_claims: deque[socket.socket] = deque()


class ServerFailedError(RuntimeError):
    """A server exited or did not become ready; the text has its name, the reason, and the end of its log."""


class PortTakenError(ServerFailedError):
    """Another process took the port before the server could listen on it; try again with another port."""


def children() -> dict[int, list[int]]:
    """Process id -> ids of its child processes, for each running process that has any."""
    found: dict[int, list[int]] = defaultdict(list)
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # it has exited meanwhile
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            found[parent].append(int(folder.name))
    return found


def descendants(pid: int, of: Mapping[int, list[int]]) -> list[int]:
    """Ids of all processes below `pid`. of: the `children` of each process."""
    return [one for child in of.get(pid, ()) for one in (child, *descendants(child, of))]


def processor_seconds(pid: int) -> float:
    """Processor seconds of a process and of its children that have exited; 0 if the process has exited."""
    with suppress(OSError):
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
    return 0.0


def free_ports(count: int) -> list[int]:
    """`count` different free TCP ports of 127.0.0.1.

    No other process gets them from this function until this process exits or has requested 256 more.
    """
    candidates = random.sample(_PORTS, len(_PORTS))
    found = list(islice((port for port in candidates if _free(port) and _claimed(port)), count))
    if len(found) < count:
        raise ServerFailedError(
            f"{count} free ports wanted between {_PORTS.start} and {_PORTS.stop}, found {len(found)}"
        )
    return found


def on_free_ports(start: Callable[..., None], count: int) -> None:
    """Call `start` with `count` free ports. If another process takes one of them, try again with others, twice."""
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            start(*free_ports(count))
        except PortTakenError:
            if attempt == _ATTEMPTS:
                raise
        else:
            return


def listens(port: int) -> bool:
    """Whether something listens on a port of 127.0.0.1."""
    try:
        socket.create_connection((HOST, port), timeout=1).close()
    except OSError:
        return False
    return True


def _free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
    return True


def _claimed(port: int) -> bool:
    """Claim the port with a socket name. Returns False if another process has claimed it.

    Only the claim protects the port while nothing listens on it yet: a JVM takes ten seconds to start. The kernel drops
    the name when the process that claimed the port exits.
    """
    claim = socket.socket(socket.AF_UNIX)
    try:
        claim.bind(f"\0trimtab-port-{port}")
    except OSError:
        claim.close()
        return False
    _claims.append(claim)
    _release(_KEPT)
    return True


@atexit.register
def _release(but: int = 0) -> None:
    """Close all claims except the newest `but`."""
    while len(_claims) > but:
        _claims.popleft().close()


class Startable(ABC):
    """A server or client that is started and stopped; a context manager. A failed start leaves nothing running."""

    @abstractmethod
    def start(self) -> Self:
        """Start, and wait until it is ready."""

    @abstractmethod
    def stop(self) -> None:
        """Stop; idempotent, also before a start and after a failed one."""

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.stop()
            raise

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.stop()


class Server:
    """One program in the background, whose output is written to `log`. It is killed when this process exits.

    Start it from a thread that lives as long as the server should: Linux treats the end of the starting thread as the
    death of the parent.
    """

    def __init__(
        self,
        command: Sequence[str | Path],
        *,
        log: Path,
        name: str = "",
        env: Mapping[str, str] | None = None,
    ) -> None:
        self.command = [str(part) for part in command]
        self.name = name or Path(self.command[0]).name
        self.log = log
        self._env = env
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def running(self) -> bool:
        """Whether it was started and has not exited."""
        return self._process is not None and self._process.poll() is None

    @property
    def pid(self) -> int:
        """Its process id. Raises `ServerFailedError` if it was never started."""
        return self._started().pid

    @property
    def returncode(self) -> int | None:
        """Its exit code; None while it runs, or if it was never started."""
        return self._process.poll() if self._process else None

    def start(self) -> None:
        """Start it in the folder of the log, and in its own process group, so that Ctrl-C does not reach it."""
        if self.running:
            raise ServerFailedError(f"{self.name} is already running as process {self.pid}")
        self.log.parent.mkdir(parents=True, exist_ok=True)
        tethered = [sys.executable, "-I", "-S", str(_PARENT_WATCH), str(os.getpid()), *self.command]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                tethered,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.log.parent,
                env=self._env,
                process_group=0,
            )

    def wait_ready(self, url: str, *, context: ssl.SSLContext | None = None, timeout: float = 60.0) -> None:
        """Wait at most `timeout` seconds until `url` answers 200.

        Raises `PortTakenError` or `ServerFailedError`.
        """
        deadline = time.monotonic() + timeout
        while not _answers(url, context):
            self.check()
            if time.monotonic() > deadline:
                raise ServerFailedError(f"{self.name} did not answer {url} within {timeout:g} s\n{self.log_tail()}")
            time.sleep(0.05)

    def check(self) -> None:
        """Raise `PortTakenError` or `ServerFailedError` if it has exited by itself."""
        code = self.returncode
        if code is None:
            return
        tail = self.log_tail()
        error = PortTakenError if "address already in use" in tail.lower() else ServerFailedError
        raise error(f"{self.name} exited with code {code}; the end of {self.log}:\n{tail}")

    def log_tail(self) -> str:
        """The last `_LOG_TAIL` characters of its log."""
        return self.log.read_text(errors="replace")[-_LOG_TAIL:] if self.log.exists() else ""

    def send(self, signal_number: signal.Signals) -> None:
        """Send it a signal. SIGSTOP makes it hang, and this method waits until it has stopped; SIGCONT continues it."""
        self._started().send_signal(signal_number)
        if signal_number is signal.SIGSTOP:
            self._await_stop(time.monotonic() + 5)

    def _await_stop(self, deadline: float) -> None:
        while self._state() not in "TZX" and time.monotonic() < deadline:
            time.sleep(0.005)

    def _state(self) -> str:
        """Its state letter in ``/proc``, which follows the name in brackets."""
        return Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[0]

    def stop(self, timeout: float = 10.0) -> None:
        """Stop it with SIGTERM, or with SIGKILL if it has not exited after `timeout` seconds. Idempotent."""
        process = self._process
        if process is None or process.poll() is not None:
            return
        process.send_signal(signal.SIGCONT)  # a paused process would not receive the SIGTERM
        process.terminate()
        try:
            process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.kill()

    def kill(self) -> None:
        """Kill it with SIGKILL, as in a crash."""
        process = self._started()
        process.kill()
        process.wait()

    def _started(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            raise ServerFailedError(f"{self.name} was not started")
        return self._process


def _answers(url: str, context: ssl.SSLContext | None) -> bool:
    try:
        with urllib.request.urlopen(url, context=context, timeout=2) as response:  # noqa: S310 - our own server
            return bool(response.status == HTTPStatus.OK)
    except OSError:
        return False
