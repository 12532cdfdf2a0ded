"""Runs what `make image` built, as the chart would: as user 10001, with a root that is read-only.

Against a real API server and a real Prometheus: the operator becomes ready, observes with Spark, and moves bundles.
"""

from __future__ import annotations

import base64
import json
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import dockerfile
import rooms
from trimtab_testbed.demo.cluster import NAMESPACE, DemoCluster
from trimtab_testbed.servers.processes import HOST, Server, free_ports
from trimtab_testbed.simulated.scenarios import scenario

_POLICIES = 180.0  # seconds that a policy may take to move its first bundle; a cycle takes a second


class NotProvedError(RuntimeError):
    """The image did not do what it is for; says what."""


@contextmanager
def container(root: Path, stage: dockerfile.Stage, folder: Path) -> Iterator[list[str]]:
    """The command line in front of the words of a command; `folder` is seen as `/run/stage`, to be read."""
    binds = [rooms.Bind(folder, "/run/stage")]
    env = {**stage.environment, "HOME": "/tmp", "TMPDIR": "/tmp"}
    with rooms.stubs(root, binds):
        yield rooms.contained(root, [], env=env, binds=binds)


def words(prefix: list[str], *more: str) -> list[str]:
    """`prefix` is ``unshare ... sh -c SCRIPT``, and the script's last line takes more words."""
    return [*prefix[:-1], f"{prefix[-1]} {shlex.join(more)}"]


def prove(root: Path, file: Path) -> dict[str, object]:
    """What was seen and measured. Raises `NotProvedError` or `ServerFailedError`."""
    stage = dockerfile.stages(file)[-1]
    with tempfile.TemporaryDirectory(prefix="image-") as name:
        folder = Path(name)
        seen = folder / "seen"
        seen.mkdir()
        with container(root, stage, seen) as prefix:
            return {**_alone(prefix), **_in_a_cluster(prefix, folder)}


def write_readable(target: Path, kubeconfig: Path) -> None:
    """A copy that another user may read, and that holds the certificate it names."""
    content = json.loads(kubeconfig.read_text())
    for entry in content["clusters"]:
        authority = Path(entry["cluster"].pop("certificate-authority"))
        entry["cluster"]["certificate-authority-data"] = base64.b64encode(authority.read_bytes()).decode()
    target.write_text(json.dumps(content))
    target.chmod(0o644)


def _alone(prefix: list[str]) -> dict[str, object]:
    began = time.monotonic()
    version = _said(prefix, "trimtab", "--version")
    seconds = time.monotonic() - began
    user = _said(prefix, "id", "-un")
    if user != "trimtab":
        raise NotProvedError(f"it runs as {user!r}, not as trimtab")
    if subprocess.run(words(prefix, "touch", "/opt/trimtab/x"), capture_output=True, check=False).returncode == 0:
        raise NotProvedError("its root can be written to")
    return {"version": version, "user": user, "version_seconds": round(seconds, 2)}


def _said(prefix: list[str], *command: str) -> str:
    done = subprocess.run(words(prefix, *command), capture_output=True, text=True, check=False)
    if done.returncode:
        raise NotProvedError(f"{shlex.join(command)}: exit code {done.returncode}: {done.stderr.strip()}")
    return done.stdout.strip()


def _in_a_cluster(prefix: list[str], folder: Path) -> dict[str, object]:
    with DemoCluster(scenario("uneven-8"), folder / "stage", lambda _: None) as stage:
        write_readable(folder / "seen" / "kubeconfig", stage.kubeconfig)
        (port,) = free_ports(1)
        command = [
            *("trimtab", "run", "--kubeconfig", "/run/stage/kubeconfig", "--namespace", NAMESPACE),
            *("--history", "/tmp/history", "--http-port", str(port), "--allow-url", f"http://{HOST}:*"),
        ]
        operator = Server(words(prefix, *command), log=folder / "operator.log", name="the image's operator")
        began = time.monotonic()
        operator.start()
        try:
            operator.wait_ready(f"http://{HOST}:{port}/readyz", timeout=300)
            ready = time.monotonic() - began
            stage.create_policy()
            first = _moved(stage, operator)
        finally:
            operator.stop()
        return {"ready_seconds": round(ready, 1), **first}


def _moved(stage: DemoCluster, operator: Server) -> dict[str, object]:
    """What the policy says once a cycle of it has moved something and it has landed."""
    deadline = time.monotonic() + _POLICIES
    before = stage.world.serving()
    while time.monotonic() < deadline:
        operator.check()
        status = stage.policy().get("status", {})
        now = stage.world.serving()
        moved = sum(len(now[broker] - before[broker]) for broker in now)
        if moved and status.get("lastCycle"):
            return {"moved": moved, "cycle": status["lastCycle"]}
        time.sleep(0.5)
    raise NotProvedError(f"no bundle moved within {_POLICIES:.0f} s: {json.dumps(stage.policy().get('status'))}")


def main() -> int:
    """``prove.py ROOT``: exit code 0 when it works, with what was measured as JSON."""
    print(json.dumps(prove(Path(sys.argv[1]), Path(__file__).parents[1] / "Dockerfile"), indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
