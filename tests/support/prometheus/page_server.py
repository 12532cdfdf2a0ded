"""A ``/metrics`` page whose text a test writes, with a record of every text that was served."""

from __future__ import annotations

import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from local_server import LocalServer


class PageServer(LocalServer):
    """Serves what `page` returns. served: all texts so far."""

    def __init__(self, page: Callable[[], str]) -> None:
        self.page = page
        self.served: list[str] = []

    def make(self) -> ThreadingHTTPServer:
        """The server of the page."""
        pages = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                text = pages.page()
                pages.served.append(text)
                body = text.encode()
                self.send_response(200)
                self.send_header("Content-Type", "text/plain; version=0.0.4")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        return ThreadingHTTPServer(("127.0.0.1", 0), Handler)


def scraped(pages: PageServer, times: int) -> None:
    """Wait until the page was scraped `times` more times."""
    end, deadline = len(pages.served) + times, time.monotonic() + 40
    while len(pages.served) < end:
        assert time.monotonic() < deadline, f"{len(pages.served)} of {end} scrapes"
        time.sleep(0.05)
