"""The Prometheus server is a real one: it scrapes, follows changed targets, hangs when paused and comes back."""

from __future__ import annotations

import json
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from trimtab_testbed.servers.prometheus import PrometheusServer, Target

pytestmark = pytest.mark.prometheus

PAGE = b'messages{namespace="tenant/orders"} 7\nplain 5\n'


class _Page(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/plain; version=0.0.4")
        self.end_headers()
        self.wfile.write(PAGE)

    def log_message(self, *_: object) -> None:
        """Log nothing."""


@pytest.fixture
def page() -> Iterator[str]:
    """Address of a server with two metrics."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _Page) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def _query(prometheus: PrometheusServer, promql: str, timeout: float = 20) -> list[dict[str, str]]:
    url = f"{prometheus.url}/api/v1/query?" + urllib.parse.urlencode({"query": promql})
    with urllib.request.urlopen(url, timeout=timeout) as response:
        return [sample["metric"] for sample in json.load(response)["data"]["result"]]


def _wait_for(prometheus: PrometheusServer, promql: str) -> list[dict[str, str]]:
    deadline = time.monotonic() + 15
    while not (found := _query(prometheus, promql)):
        assert time.monotonic() < deadline, f"no sample of {promql}"
        time.sleep(0.1)
    return found


def test_labels_of_the_target_fill_in_what_the_page_leaves_open(
    prometheus_binary: Path, page: str, tmp_path: Path
) -> None:
    target = Target(page, {"namespace": "pulsar", "pod": "pulsar-broker-0"})
    with PrometheusServer(prometheus_binary, tmp_path, [target], scrape_interval=0.2) as prometheus:
        (plain,) = _wait_for(prometheus, "plain")
        (messages,) = _wait_for(prometheus, "messages")
    assert (plain["namespace"], plain["pod"]) == ("pulsar", "pulsar-broker-0")
    assert (messages["namespace"], messages["pod"]) == ("tenant/orders", "pulsar-broker-0")


def test_targets_change_while_it_runs(prometheus_binary: Path, page: str, tmp_path: Path) -> None:
    with PrometheusServer(prometheus_binary, tmp_path, scrape_interval=0.2) as prometheus:
        assert _query(prometheus, "plain") == []
        prometheus.set_targets([Target(page, {"pod": "new"})])
        assert [sample["pod"] for sample in _wait_for(prometheus, "plain")] == ["new"]


def test_a_paused_server_hangs_and_a_stopped_one_refuses(prometheus_binary: Path, tmp_path: Path) -> None:
    with PrometheusServer(prometheus_binary, tmp_path) as prometheus:
        url = prometheus.url
        prometheus.pause()
        with pytest.raises(TimeoutError):
            _query(prometheus, "up", timeout=0.3)
        prometheus.resume()
        assert _query(prometheus, "up") == []
        prometheus.stop()
        with pytest.raises(urllib.error.URLError, match="refused"):
            _query(prometheus, "up")
        prometheus.restart()
        assert prometheus.url == url
        assert _query(prometheus, "up") == []
