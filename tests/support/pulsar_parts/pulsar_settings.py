"""Pulsar brokers that serve only their configuration, over real HTTP: for verbs that read and restore it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

from trimtab_strategies.params import pulsar_keys, quantity, seconds
from trimtab_strategies.registry import PLACEMENTS, SELECTIONS, SHEDDERS, SPLITTERS

_BASE = "org.apache.pulsar.broker.loadbalance"


_IN_PULSAR: Mapping[str, Callable[[Any], Any]] = {
    "": lambda value: value,
    "MiB/s": lambda value: quantity(value) / 2**20,
    "0-1": lambda value: value / 100,
    "seconds": seconds,
    "cycles before": lambda value: value - 1,
    "bytes/s": lambda value: int(quantity(value)),
}
"""How a value of Trimtab is written in a unit of Pulsar."""


def defaults(*, extensible: bool = False, **changed: str) -> dict[str, str]:
    """Configuration of a broker whose file does not mention balancing, with `changed` on top."""
    found = {}
    for table in (SHEDDERS, PLACEMENTS, SPLITTERS, SELECTIONS):
        for row in table.values():
            for key, ours in pulsar_keys(row.params).items():
                value = _IN_PULSAR[ours.unit](row.params.model_fields[ours.name].default)
                found[key] = str(value).lower() if isinstance(value, bool) else str(value)
    manager = "extensions.ExtensibleLoadManagerImpl" if extensible else "impl.ModularLoadManagerImpl"
    return {
        **found,
        "loadManagerClassName": f"{_BASE}.{manager}",
        "loadBalancerEnabled": "true",
        "loadBalancerSheddingEnabled": "true",
        "loadBalancerAutoBundleSplitEnabled": "true",
        "loadBalancerLoadSheddingStrategy": f"{_BASE}.impl.ThresholdShedder",
        "loadBalancerLoadPlacementStrategy": f"{_BASE}.impl.LeastLongTermMessageRate",
        "loadBalancerSheddingIntervalMinutes": "1",
        "loadBalancerSheddingGracePeriodMinutes": "30",
        "loadBalancerOverrideBrokerNicSpeedGbps": "Optional.empty",
        "loadBalancerSheddingExcludedNamespaces": "[]",
        **changed,
    }


@contextmanager
def settings_brokers(*files: Mapping[str, str], token: str = "") -> Iterator[SettingsBrokers]:
    """A broker for each file, with shared dynamic values. token: the token that requests must have."""
    brokers = SettingsBrokers(token)
    with ExitStack() as stack:
        for file in files:
            stack.enter_context(brokers.serving(dict(file)))
        yield brokers


class SettingsBrokers:
    """dynamic: values for all brokers. ids: those of the brokers, in the order of their files.

    asked: the header Authorization of each request.
    """

    def __init__(self, token: str) -> None:
        self.token, self.dynamic = token, dict[str, str]()
        self.ids: list[str] = []
        self.asked: list[str | None] = []

    @property
    def url(self) -> str:
        """Base URL of the first broker."""
        return f"http://{self.ids[0]}"

    @contextmanager
    def serving(self, file: dict[str, str]) -> Iterator[None]:
        """Serve one more broker."""
        brokers = self

        class Handler(BaseHTTPRequestHandler):
            def _answer(self, method: str) -> None:
                found: Any = "unauthorized"
                brokers.asked.append(self.headers["Authorization"])
                if brokers.token and self.headers["Authorization"] != f"Bearer {brokers.token}":
                    status = 401
                else:
                    status, found = brokers.answer(method, self.path, file)
                body = json.dumps(found).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def do_GET(self) -> None:
                self._answer("GET")

            def do_POST(self) -> None:
                self._answer("POST")

            def do_DELETE(self) -> None:
                self._answer("DELETE")

            def log_message(self, *_: Any) -> None:
                """Log nothing."""

        with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
            self.ids.append(f"127.0.0.1:{server.server_address[1]}")
            thread = Thread(target=server.serve_forever, daemon=True)
            thread.start()
            try:
                yield
            finally:
                server.shutdown()
                thread.join()

    def answer(self, method: str, path: str, file: dict[str, str]) -> tuple[int, Any]:
        """Status and body."""
        looks = {
            "brokers": self.ids,
            "brokers/leaderBroker": {"serviceUrl": self.url, "brokerId": self.ids[-1]},
            "brokers/configuration/runtime": {**file, **self.dynamic},
            "brokers/configuration/values": self.dynamic,
            "brokers/version": "4.0.8",
        }
        asked = path.removeprefix("/admin/v2/")
        match method, asked.removeprefix("brokers/configuration/").split("/"):
            case "GET", _ if asked in looks:
                return 200, looks[asked]
            case "POST", [name, value]:
                self.dynamic[name] = value
            case "DELETE", [name]:
                self.dynamic.pop(name, None)
            case _:
                return 404, {"reason": f"{method} {path}"}
        return 200, ""
