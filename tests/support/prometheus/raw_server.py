"""A server that answers every request with bytes of the test's choice."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Self

OK = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"


@dataclass
class RawServer:
    """Sends `pieces` to each client, one every `pause` seconds, until none is left or the client is gone.

    sent: bytes sent. asked: number of requests. Serves on a free port of 127.0.0.1 while entered.
    """

    pieces: Callable[[], Iterable[bytes]]
    pause: float = 0.0
    sent: int = 0
    asked: list[bytes] = field(default_factory=list)
    url: str = ""

    def __enter__(self) -> Self:
        self._over = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._threads = [threading.Thread(target=self._serve)]
        self._threads[0].start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in self._threads:
            thread.join()

    def _serve(self) -> None:
        while not self._over.is_set():
            try:
                connection, _ = self._listener.accept()
            except OSError:  # closed: the test is over
                return
            self._threads.append(threading.Thread(target=self._answer, args=(connection,)))
            self._threads[-1].start()

    def _answer(self, connection: socket.socket) -> None:
        with connection:
            self.asked.append(connection.recv(65536))
            for piece in self.pieces():
                if self._over.wait(self.pause) or not self._send(connection, piece):
                    return

    def _send(self, connection: socket.socket, piece: bytes) -> bool:
        """Send a piece; returns False if the client is gone."""
        connection.settimeout(5.0)
        try:
            connection.sendall(piece)
        except OSError:
            return False
        self.sent += len(piece)
        return True
