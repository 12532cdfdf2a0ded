"""Runs the demo from start to verdict, and decides whether the cluster is level."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from trimtab_operator.cli.common import NO_SPARK
from trimtab_pipeline.spark.java import require_java
from trimtab_strategies.model import counted
from trimtab_testbed.demo.cluster import DemoCluster
from trimtab_testbed.demo.snapshot import ClusterObserver, DemoSnapshot
from trimtab_testbed.demo.summary import Result, as_lines
from trimtab_testbed.demo.view import show_on
from trimtab_testbed.programs import find
from trimtab_testbed.servers.processes import ServerFailedError
from trimtab_testbed.simulated.scenarios import ClusterScenario, Solved


@dataclass
class Settling:
    """Decides whether the cluster has settled. since: the time (seconds) since which nothing is `missing`."""

    solved: Solved
    since: float | None = None

    def settled(self, snapshot: DemoSnapshot) -> bool:
        """Whether the cluster has been level and at rest for long enough."""
        if self.missing(snapshot):
            self.since = None
            return False
        if self.since is None:
            self.since = snapshot.at
        return snapshot.at - self.since >= self.solved.seconds

    def missing(self, snapshot: DemoSnapshot) -> str:
        """Why the cluster does not count as level now; empty when it does."""
        if not snapshot.cycles:
            return "the operator has not finished a cycle yet"
        if snapshot.cpu_range is None:
            return "not all brokers are measured"
        if snapshot.cpu_range >= self.solved.cpu_range:
            return f"the CPU range is {snapshot.cpu_range:.1f} points, must be below {self.solved.cpu_range:g}"
        if snapshot.unconfirmed:
            return f"not confirmed by a broker yet: {counted(snapshot.unconfirmed, 'bundle')}"
        if snapshot.cycles[-1].moved:
            return "the last cycle still moved something"
        return ""


_LOOK_EVERY = 0.7  # seconds between snapshots; several fall into each cycle

_MEASURED = 45.0  # seconds within which all brokers must be measured

_CLOSE = 4.0  # percentage points by which measured CPU may differ from the scenario's, once rates have ramped up


def run(scenario: ClusterScenario, console: Console, *, timeout: float, keep: bool, spark: str) -> Result:
    """Run `scenario` and show it on `console` until it is solved, or `timeout` seconds after the policy was created.

    keep: leave everything running afterwards until Ctrl-C. spark: as in ``trimtab run --spark``. Before this function
    returns or raises, it stops everything. Logs are kept only if the run failed or did not settle. Raises
    `MissingToolError`, `JavaMissingError` or `ServerFailedError`.
    """
    if spark != NO_SPARK:
        require_java()
    find.ensure_kube()  # may take minutes or fail, so it comes before the work folder
    find.ensure_prometheus()
    work_dir = Path(tempfile.mkdtemp(prefix="trimtab-demo-"))
    say = _Voice(console)
    say(f"logs and data are in {work_dir}")
    try:
        with DemoCluster(scenario, work_dir, say, spark) as stage:
            result = _play(stage, console, timeout, say)
            for line in as_lines(result):
                say(line)
            if keep:
                _leave_running(stage, say)
    except KeyboardInterrupt:
        shutil.rmtree(work_dir)  # a user who ends the demo early does not need the logs
        raise
    if result.settled:
        shutil.rmtree(work_dir)
    else:
        say(f"logs are in {work_dir}; the operator's is {work_dir / 'operator.log'}")
    return result


class _Voice:
    def __init__(self, console: Console) -> None:
        self._console = console

    def __call__(self, text: str) -> None:
        self._console.print(text, highlight=False, markup=False, soft_wrap=True)


def _play(stage: DemoCluster, console: Console, timeout: float, say: _Voice) -> Result:
    say("starting the operator and measuring the first load")
    stage.start_operator()
    start = _first_measured(stage)
    stage.operator_ready()
    stage.create_policy()
    follower, settling = ClusterObserver(stage), Settling(stage.scenario.solved)
    show = show_on(console, f"trimtab demo {stage.scenario.name}")
    with show.running():
        while True:
            stage.operator.check()
            snapshot = follower.snapshot()
            show.update(snapshot)
            settled = settling.settled(snapshot)
            if settled or snapshot.at > timeout:
                missing = "" if settled else settling.missing(snapshot) or "it was not level for long enough"
                return Result(stage.scenario.name, settled, snapshot.at, start, snapshot, missing)
            time.sleep(_LOOK_EVERY)


def _first_measured(stage: DemoCluster) -> DemoSnapshot:
    """The cluster before the first move, once a full window of samples shows every broker."""
    follower, deadline = ClusterObserver(stage), time.monotonic() + _MEASURED
    expected = {broker.shape.name: broker.cpu for broker in stage.scenario.brokers}
    while True:
        stage.operator.check()
        snapshot = follower.snapshot(policy=False)
        off = unlike(snapshot, expected)
        if not off:
            return snapshot
        if time.monotonic() > deadline:
            raise ServerFailedError(f"after {_MEASURED:g} s CPU in Prometheus differs from the scenario: {off}")
        time.sleep(_LOOK_EVERY)


def unlike(snapshot: DemoSnapshot, expected: Mapping[str, float]) -> str:
    """The brokers whose CPU differs from `expected` (percent, by broker) by more than a few points; empty if none does.

    It is not enough to compare the CPU range (highest minus lowest): all rates ramp up together, so the range may be
    right while every broker is too low.
    """
    far = [row for row in snapshot.brokers if row.cpu is None or abs(row.cpu - expected[row.name]) > _CLOSE]
    return ", ".join(
        f"{row.name} {'unknown' if row.cpu is None else f'{row.cpu:.0f} %'} (not {expected[row.name]:.0f} %)"
        for row in far
    )


def looking_around(kubeconfig: Path, kubectl: Path) -> tuple[str, ...]:
    """Shell lines that give access to the demo. They put the built `kubectl` first on PATH."""
    return (
        f'export PATH="{kubectl.parent}:$PATH"',
        f"export KUBECONFIG={kubeconfig}",
        "kubectl get bpol,bkr,tns",
        "kubectl get bundles",
        "kubectl describe bpol balance",
        'kubectl patch bundle NAME --type merge -p \'{"spec":{"owner":"pulsar-broker-0"}}\'',
    )


def _leave_running(stage: DemoCluster, say: _Voice) -> None:
    say("")
    say("everything keeps running until Ctrl-C; in another terminal:")
    for line in looking_around(stage.kubeconfig, stage.control_plane.binaries.kubectl):
        say(f"  {line}")
    say(f"  Prometheus: {stage.prometheus.url}")
    try:
        while True:
            stage.operator.check()
            time.sleep(1)
    except KeyboardInterrupt:
        say("stopping")
