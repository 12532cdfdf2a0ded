"""A real Prometheus server on 127.0.0.1 whose targets can be changed while it runs."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from trimtab_testbed.servers.processes import HOST, Server, Startable, on_free_ports

_JOBS = {"brokers": True, "pulsar": False}  # name of the job -> honor_labels


@dataclass(frozen=True, slots=True)
class Target:
    """An address to scrape (``host:port``) and the labels added to all its samples.

    honor_labels: whether labels of the target itself (Pulsar's ``namespace`` of a topic) override `labels`. If not, the
    target's own label becomes ``exported_namespace``. That is Prometheus' default.
    """

    address: str
    labels: Mapping[str, str] = field(default_factory=dict)
    path: str = "/metrics"
    honor_labels: bool = True


class PrometheusServer(Startable):
    """A Prometheus server; a context manager.

    Configuration, data and ``prometheus.log`` are in `work_dir`. Intervals are in seconds.

    replica:  value of the external label ``prometheus_replica`` on all forwarded samples; empty for none.
    forward:  base URL of another such server, made with ``receives=True``, that gets every sample by remote write.
    Raises `ServerFailedError` when it does not become ready.
    """

    def __init__(
        self,
        program: Path,
        work_dir: Path,
        targets: Iterable[Target] = (),
        *,
        scrape_interval: float = 1.0,
        replica: str = "",
        forward: str = "",
        receives: bool = False,
    ) -> None:
        self._program, self._dir = program, work_dir.resolve()
        self._interval = scrape_interval
        self._targets = tuple(targets)
        self._replica, self._forward, self._receives = replica, forward, receives
        self._server: Server | None = None
        self._port = 0

    def start(self) -> Self:
        """Write the configuration, start, and wait until it answers queries."""
        self._dir.mkdir(parents=True, exist_ok=True)
        self.set_targets(self._targets)
        (self._dir / "prometheus.json").write_text(json.dumps(self._configuration(), indent=2))  # JSON is YAML
        on_free_ports(self._start_on, 1)
        return self

    def stop(self) -> None:
        """Stop it; idempotent."""
        if self._server is not None:
            self._server.stop()

    @property
    def url(self) -> str:
        """Base URL; unchanged by `stop` and `restart`."""
        return f"http://{HOST}:{self._port}"

    @property
    def server(self) -> Server:
        """Its process."""
        assert self._server is not None, "start it first"
        return self._server

    def set_targets(self, targets: Iterable[Target]) -> None:
        """Scrape these targets from now on. Takes effect within about 5 seconds, without a restart."""
        self._targets = tuple(targets)
        for job, honor in _JOBS.items():
            groups = [_group(target) for target in self._targets if target.honor_labels is honor]
            partial = self._dir / f".{job}.json.partial"
            partial.write_text(json.dumps(groups))
            partial.replace(self._dir / f"{job}.json")

    def restart(self) -> None:
        """Start it again on its old port and data after `stop`."""
        self.stop()
        self._launch()

    def pause(self) -> None:
        """Let it hang: it accepts connections and answers nothing."""
        self.server.send(signal.SIGSTOP)

    def resume(self) -> None:
        """Continue after `pause`."""
        self.server.send(signal.SIGCONT)

    def _start_on(self, port: int) -> None:
        self._port = port
        self._launch()

    def _launch(self) -> None:
        flags = [
            f"--config.file={self._dir / 'prometheus.json'}",
            f"--storage.tsdb.path={self._dir / 'data'}",
            f"--web.listen-address={HOST}:{self._port}",
            "--query.lookback-delta=15s",  # a stopped target should look stopped soon, not after 5 minutes
            "--log.level=warn",
            *(["--web.enable-remote-write-receiver"] if self._receives else []),
        ]
        self._server = Server([self._program, *flags], log=self._dir / "prometheus.log")
        self._server.start()
        self._server.wait_ready(f"{self.url}/-/ready", timeout=30)

    def _configuration(self) -> dict[str, object]:
        interval = f"{round(self._interval * 1000)}ms"
        jobs = [
            {
                "job_name": job,
                "honor_labels": honor,
                "file_sd_configs": [{"files": [str(self._dir / f"{job}.json")], "refresh_interval": "1s"}],
            }
            for job, honor in _JOBS.items()
        ]
        labels = {"prometheus_replica": self._replica} if self._replica else {}
        common = {"scrape_interval": interval, "scrape_timeout": interval, "external_labels": labels}
        at_once = {"batch_send_deadline": "100ms", "min_shards": 1}
        remote = [{"url": f"{self._forward}/api/v1/write", "queue_config": at_once}] if self._forward else []
        return {"global": common, "scrape_configs": jobs, "remote_write": remote}


def _group(target: Target) -> dict[str, object]:
    return {"targets": [target.address], "labels": {**target.labels, "__metrics_path__": target.path}}
