"""The demo's cluster for the commands of documentation pages, with a shell that runs them as a reader would."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pulsar_settings import defaults, settings_brokers
from small_cluster import until
from trimtab_operator.cli.common import NO_SPARK
from trimtab_testbed.demo.cluster import DemoCluster
from trimtab_testbed.servers.processes import ServerFailedError
from trimtab_testbed.simulated.cluster import landed
from trimtab_testbed.simulated.scenarios import ClusterScenario

ROOT = Path(__file__).parents[3]
SERVING = "serving /metrics"
"""Log line of an operator that has started."""


@dataclass(frozen=True)
class DocumentedCluster:
    """The demo's cluster and its shell.

    folder: the shell's folder, with everything of the repository in it. names: replacements in the pages' commands.
    """

    stage: DemoCluster
    folder: Path
    environment: Mapping[str, str]
    names: Mapping[str, str]

    def run(self, command: str, within: float = 900.0) -> subprocess.CompletedProcess[str]:
        """Run a command as a reader types it, with `names` replaced; `stdout` has all its output."""
        for told, real in self.names.items():
            command = command.replace(told, real)
        return subprocess.run(
            ["bash", "-eo", "pipefail", "-c", command],
            cwd=self.folder,
            env=self.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=within,
            check=False,
        )

    def serve(self, command: str) -> str:
        """Run a command that continues until it is stopped; returns its log."""
        for told, real in self.names.items():
            command = command.replace(told, real)
        log = self.folder / "served.log"
        with log.open("w") as out:
            process = subprocess.Popen(
                ["bash", "-c", f"exec {command}"], cwd=self.folder, env=self.environment, stdout=out, stderr=out
            )
            try:
                until(SERVING, lambda: SERVING in log.read_text() or process.poll() is not None, within=300)
            finally:
                process.send_signal(signal.SIGTERM)
                _ended(process)
        return log.read_text()

    def bundle(self, name: str) -> Any:
        """A Bundle object as it is now."""
        return self.stage.world.bundles()[name]

    def settled(self) -> bool:
        """Whether every bundle is served by its desired owner."""
        return all(landed(bundle) for bundle in self.stage.world.bundles().values())


def _ended(process: subprocess.Popen[bytes]) -> None:
    """Wait until the process exits."""
    try:
        process.wait(300)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        raise


@contextmanager
def documented_cluster(work_dir: Path, scenario: ClusterScenario) -> Iterator[DocumentedCluster]:
    """Start the demo's cluster, its operator and its policy; stop everything in the end."""
    world = DemoCluster(scenario, work_dir, lambda _: None, spark=NO_SPARK)
    with world as stage, settings_brokers(defaults()) as pulsar, _deployed(stage):
        stage.create_policy()
        yield DocumentedCluster(stage, _folder(work_dir), _environment(stage), _names(stage, pulsar.url))


@contextmanager
def _deployed(stage: DemoCluster) -> Iterator[None]:
    """Run the operator, and restart it whenever it exits, as a Deployment does.

    If other work takes the processor for seconds, the operator loses its Lease and exits.
    """
    over = threading.Event()

    def watch() -> None:
        while not over.wait(1):
            if not stage.operator.running:
                stage.start_operator()

    stage.start_operator()
    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        until("the operator is ready", lambda: _ready(stage), within=600)
        yield
    finally:
        over.set()
        watcher.join()


def _ready(stage: DemoCluster) -> bool:
    try:
        stage.operator_ready(within=5)
    except ServerFailedError:
        return False
    return True


def _folder(work_dir: Path) -> Path:
    """Create the folder: the repository as a reader sees it, and the operator's history."""
    folder = work_dir / "repository"
    folder.mkdir()
    for name in ("examples", "tests", "crds", "deploy"):
        (folder / name).symlink_to(ROOT / name)
    (folder / "trimtab-history").symlink_to(work_dir / "history")
    return folder


def _environment(stage: DemoCluster) -> dict[str, str]:
    programs = (Path(sys.executable).parent, stage.control_plane.binaries.kubectl.parent)
    path = os.pathsep.join([*map(str, programs), os.environ["PATH"]])
    return {**os.environ, "PATH": path, "KUBECONFIG": str(stage.kubeconfig), "PAGER": "cat"}


def _names(stage: DemoCluster, pulsar: str) -> dict[str, str]:
    """Replacements for names in the pages: every test has its own ports and names."""
    return {
        "http://localhost:9090": stage.prometheus.url,
        "http://localhost:8080": pulsar,
        "--namespace messaging": "--namespace demo",
        "-n messaging": "-n demo",
        "trimtab run ": "trimtab run --http-port 0 ",
        "kubectl wait ": "kubectl wait --timeout=300s ",  # a page's own --timeout comes later, so it wins
    }
