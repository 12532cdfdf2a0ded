"""The part of one broker's admin REST API for topic statistics. The test sets its content and faults."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from local_server import LocalServer

Topic = Mapping[str, Any]


def topic_statistics(rate: float) -> dict[str, Any]:
    """Statistics of a topic as in Pulsar 4.0.8, without some fields that our reader does not read.

    `rate` msg/s in, twice that out, 100 bytes each.
    """
    return {
        "publishers": [{"msgRateIn": rate, "producerName": "p-0"}],
        "replication": {},
        "subscriptions": {"s": {"consumers": [{"msgRateOut": rate}] * 2, "msgBacklog": 0}},
        "producerCount": 1,
        "msgRateIn": rate,
        "msgRateOut": 2 * rate,
        "msgThroughputIn": 100 * rate,
        "msgThroughputOut": 200 * rate,
    }


class AdminServer(LocalServer):
    """Serves ``/admin/v2/broker-stats/topics``.

    topics: statistics by full name. delay: seconds before each answer. status, location, body: of an answer that
    replaces the topics. answers: number of requests that it answers (None: all); later ones fail with 503.
    asked: headers of each request.
    """

    def __init__(self, topics: Mapping[str, Topic] | None = None) -> None:
        self.topics = dict(topics or {})
        self.delay = 0.0
        self.answers: int | None = None
        self.status, self.location, self.body = 200, "", ""
        self.asked: list[dict[str, str]] = []

    @property
    def url(self) -> str:
        return f"http://{self.address}"

    def answer(self) -> str:
        """The topics by namespace, bundle (which the reader ignores) and domain."""
        spaces: dict[str, Any] = {}
        for name, told in self.topics.items():
            domain, _, rest = name.partition("://")
            bundles = spaces.setdefault("/".join(rest.split("/")[:2]), {"0x00000000_0xffffffff": {}})
            bundles["0x00000000_0xffffffff"].setdefault(domain, {})[name] = told
        return json.dumps(spaces)

    def make(self) -> ThreadingHTTPServer:
        """The HTTP server."""
        admin = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                admin.asked.append(dict(self.headers) | {"path": self.path})
                time.sleep(admin.delay)
                body = (admin.body or admin.answer()).encode()
                over = admin.answers is not None and len(admin.asked) > admin.answers
                self.send_response(503 if over else admin.status)
                if admin.location:
                    self.send_header("Location", admin.location)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        return ThreadingHTTPServer(("127.0.0.1", 0), Handler)
