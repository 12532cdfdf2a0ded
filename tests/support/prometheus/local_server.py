"""An HTTP server for a test, on a free port of 127.0.0.1 while entered. It is also stopped when the test fails."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from http.server import ThreadingHTTPServer
from typing import Self


class LocalServer(ABC):
    """Base class of the test servers; `make` returns the server."""

    @abstractmethod
    def make(self) -> ThreadingHTTPServer:
        """The server, bound to a free port of 127.0.0.1."""

    def __enter__(self) -> Self:
        self._server = self.make()
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02})
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @property
    def address(self) -> str:
        """Host and port."""
        return f"127.0.0.1:{self._server.server_address[1]}"
