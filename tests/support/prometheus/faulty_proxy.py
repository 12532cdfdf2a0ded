"""A proxy in front of a real Prometheus that injects one fault at a time."""

from __future__ import annotations

import json
import threading
from enum import StrEnum
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.error import HTTPError
from urllib.request import Request, urlopen


class Fault(StrEnum):
    """What the proxy does instead of forwarding a request."""

    NONE = "none"
    DOWN = "down"  # closes the connection without an answer
    SLOW = "slow"  # answers later than any client waits
    UNAVAILABLE = "unavailable"  # 503
    TRUNCATED = "truncated"  # ends in the middle of the body
    PARTIAL = "partial"  # half of the series and a warning, as Thanos answers when a store is missing


class FaultyProxy:
    """Context manager. fault: may be set at any time from any thread. waiting: requests that the proxy holds now."""

    def __init__(self, target: str, slow: float = 30.0) -> None:
        self.fault = Fault.NONE
        self.waiting = 0
        self._released = threading.Event()
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                proxy._answer(self, target, slow)

            do_POST = do_GET  # noqa: N815  the name that the server looks for

            def log_message(self, *_: Any) -> None:
                """Log nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._released.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _answer(self, handler: BaseHTTPRequestHandler, target: str, slow: float) -> None:
        body = handler.rfile.read(int(handler.headers.get("Content-Length") or 0))
        fault = self.fault
        if fault is Fault.DOWN:
            handler.close_connection = True
            handler.connection.close()
            return
        if fault is Fault.SLOW:
            self.waiting += 1
            self._released.wait(slow)
            self.waiting -= 1
        if fault is Fault.UNAVAILABLE:
            _send(handler, 503, b"the store is not ready")
            return
        status, answer = _fetch(handler, target, body)
        if fault is Fault.TRUNCATED:
            _send(handler, status, answer[: len(answer) // 2], promised=len(answer))
            return
        _send(handler, status, _halved(answer) if fault is Fault.PARTIAL else answer)


def _fetch(handler: BaseHTTPRequestHandler, target: str, body: bytes) -> tuple[int, bytes]:
    kind = handler.headers.get("Content-Type")
    headers = {"Content-Type": kind} if kind else {}
    request = Request(target + handler.path, data=body or None, headers=headers, method=handler.command)
    try:
        with urlopen(request, timeout=30) as response:
            return response.status, response.read()
    except HTTPError as error:
        with error:
            return error.code, error.read()


def _halved(answer: bytes) -> bytes:
    parsed = json.loads(answer)
    series = parsed.get("data", {}).get("result", [])
    parsed["data"]["result"] = series[: len(series) // 2]
    parsed["warnings"] = ["1 of 2 stores did not answer"]
    return json.dumps(parsed).encode()


def _send(handler: BaseHTTPRequestHandler, status: int, body: bytes, promised: int | None = None) -> None:
    """Answer. promised: the announced length, if it differs from the body's."""
    try:
        handler.send_response(status)
        handler.send_header("Content-Type", "application/json")
        handler.send_header("Content-Length", str(len(body) if promised is None else promised))
        handler.end_headers()
        handler.wfile.write(body)
    except (BrokenPipeError, ConnectionResetError):
        handler.close_connection = True  # the client gave up waiting, which is the purpose of some faults
