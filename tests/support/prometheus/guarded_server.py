"""A server with HTTP or HTTPS and fixed answers, which records requests and may require a client certificate."""

from __future__ import annotations

import json
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from local_server import LocalServer
from trimtab_pipeline.api import Credentials

EMPTY = '{"status":"success","data":{"resultType":"vector","result":[]}}'
TOKEN, TENANT = "tok-5f3a9c-bearer", "ten-88af1d-tenant"
"""Secrets that must not appear in any log, error or file."""

CREDENTIALS = Credentials(bearer_token=TOKEN, headers=(("X-Scope-OrgID", TENANT),))


def vector(**values: float) -> str:
    """An answer with one series per `pod`."""
    result = [{"metric": {"pod": pod}, "value": [1.0, str(value)]} for pod, value in values.items()]
    return json.dumps({"status": "success", "data": {"resultType": "vector", "result": result}}, separators=(",", ":"))


@dataclass(frozen=True)
class Asked:
    """One request: method, path, parameters (of the form and of the URL), headers, parameters of the URL alone."""

    method: str
    path: str
    parameters: Mapping[str, str]
    headers: Mapping[str, str]
    in_url: Mapping[str, str]


Answer = Callable[[Asked], tuple[int, str]]
"""Status and body for a request."""


@dataclass
class GuardedServer(LocalServer):
    """Serves on a free port of 127.0.0.1 while entered.

    tls: its certificate and key. clients: the authority of the certificates that its clients must show.
    """

    answer: Answer = lambda _: (200, EMPTY)
    tls: tuple[Path, Path] | None = None
    clients: Path | None = None
    asked: list[Asked] = field(default_factory=list)

    def make(self) -> ThreadingHTTPServer:
        """The server, with its certificate if it has one."""
        server = _Quiet(("127.0.0.1", 0), self._handler())
        if self.tls is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(*self.tls)
            if self.clients is not None:
                context.verify_mode = ssl.CERT_REQUIRED
                context.load_verify_locations(self.clients)
            server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
        return server

    @property
    def url(self) -> str:
        return f"{'https' if self.tls else 'http'}://{self.address}"

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        guarded = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            wbufsize = -1  # sends head and body together: otherwise the client's delayed acknowledgement costs 40 ms

            def do_GET(self) -> None:
                self._respond(urlsplit(self.path).query)

            def do_POST(self) -> None:
                self._respond(self.rfile.read(int(self.headers["Content-Length"])).decode())

            def _respond(self, form: str) -> None:
                url = urlsplit(self.path)
                sent, in_url = ({n: values[0] for n, values in parse_qs(text).items()} for text in (form, url.query))
                asked = Asked(self.command, url.path, {**sent, **in_url}, dict(self.headers), in_url)
                guarded.asked.append(asked)
                status, text = guarded.answer(asked)
                body = text.encode()
                self.send_response(status)
                if status in range(300, 400):
                    self.send_header("Location", text)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        return Handler


class _Quiet(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore errors: in some tests, client and server do not trust each other."""
