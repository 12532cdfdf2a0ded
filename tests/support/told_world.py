"""The world that the pages' commands speak of: the demo's, with a shell that is where a reader would be."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pulsar_settings import defaults, settings_brokers
from stage import until
from trimtab_testbed.demo.stage import Stage
from trimtab_testbed.scenarios import SCENARIOS
from trimtab_testbed.world import landed

ROOT = Path(__file__).parents[2]
SERVING = "serving /metrics"
"""What an operator logs when it has begun."""


@dataclass(frozen=True)
class ToldWorld:
    """folder: where the shell is, with everything of the repository in it. names: what the pages call otherwise."""

    stage: Stage
    folder: Path
    environment: Mapping[str, str]
    names: Mapping[str, str]

    def run(self, command: str, within: float = 400.0) -> subprocess.CompletedProcess[str]:
        """Run a command as a reader types it, but for `names`; all that it printed is in `stdout`."""
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
        """Run a command that goes on until it is told to end; what it logged."""
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
                process.wait(60)
        return log.read_text()

    def settled(self) -> bool:
        """Whether every bundle is served by whom it is wished on."""
        return all(landed(bundle) for bundle in self.stage.world.bundles().values())


@contextmanager
def told_world(work_dir: Path) -> Iterator[ToldWorld]:
    """Start the demo's world, its operator and its policy; everything is stopped in the end."""
    with Stage(SCENARIOS["skewed-96"], work_dir, lambda _: None) as stage, settings_brokers(defaults()) as pulsar:
        stage.start_operator()
        stage.operator_ready(within=300)
        stage.create_policy()
        yield ToldWorld(stage, _folder(work_dir), _environment(stage), _names(stage, pulsar.url))


def _folder(work_dir: Path) -> Path:
    """What a reader sees in the repository, and the history that the operator writes."""
    folder = work_dir / "repository"
    folder.mkdir()
    for name in ("examples", "tests", "crds", "deploy"):
        (folder / name).symlink_to(ROOT / name)
    (folder / "trimtab-history").symlink_to(work_dir / "history")
    return folder


def _environment(stage: Stage) -> dict[str, str]:
    programs = (Path(sys.executable).parent, stage.control_plane.binaries.kubectl.parent)
    path = os.pathsep.join([*map(str, programs), os.environ["PATH"]])
    return {**os.environ, "PATH": path, "KUBECONFIG": str(stage.kubeconfig), "PAGER": "cat"}


def _names(stage: Stage, pulsar: str) -> dict[str, str]:
    """What is elsewhere than the pages say, as every test has ports and names of its own."""
    return {
        "http://localhost:9090": stage.prometheus.url,
        "http://localhost:8080": pulsar,
        "--namespace messaging": "--namespace demo",
        "-n messaging": "-n demo",
        "trimtab run ": "trimtab run --http-port 0 ",
    }
