"""Runs the demo from nothing to a verdict."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from rich.console import Console

from trimtab_testbed import binaries, prometheus_binary
from trimtab_testbed.demo.follow import Follower, Look
from trimtab_testbed.demo.settle import Settling
from trimtab_testbed.demo.show import show_on
from trimtab_testbed.demo.stage import Stage
from trimtab_testbed.demo.summary import Result, as_lines
from trimtab_testbed.processes import ServerFailedError
from trimtab_testbed.scenarios import Scenario
from trimtab_testbed.setup import check_java

_LOOK_EVERY = 0.7  # seconds; several looks fall into each cycle
_MEASURED = 45.0  # seconds until all brokers must have been measured
_CLOSE = 4.0  # percent points between the scenario's CPU and the measured one; rates that still ramp are further off


def run(scenario: Scenario, console: Console, *, timeout: float, keep: bool) -> Result:
    """Play `scenario`, showing it on `console`, until it is solved or `timeout` seconds after the policy was created.

    keep: afterwards leave everything running until Ctrl-C. Logs stay only when it failed or did not settle.
    Raises `MissingToolError` or `ServerFailedError`; everything is stopped in any case.
    """
    check_java()
    binaries.ensure()  # may take minutes, or fail: there is no folder to name yet
    prometheus_binary.ensure()
    work_dir = Path(tempfile.mkdtemp(prefix="trimtab-demo-"))
    say = _Voice(console)
    say(f"logs and data are in {work_dir}")
    try:
        with Stage(scenario, work_dir, say) as stage:
            result = _play(stage, console, timeout, say)
            for line in as_lines(result):
                say(line)
            if keep:
                _leave_running(stage, say)
    except KeyboardInterrupt:
        shutil.rmtree(work_dir)  # whoever ends it early does not come back for the logs
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


def _play(stage: Stage, console: Console, timeout: float, say: _Voice) -> Result:
    say("starting the operator, and measuring the cluster as it is")
    stage.start_operator()
    start = _first_measured(stage)
    stage.operator_ready()
    stage.create_policy()
    follower, settling = Follower(stage), Settling(stage.scenario.solved)
    show = show_on(console, f"trimtab demo {stage.scenario.name}")
    with show.running():
        while True:
            stage.operator.check()
            look = follower.look()
            show.update(look)
            settled = settling.settled(look)
            if settled or look.at > timeout:
                missing = "" if settled else settling.missing(look) or "it was not level for long enough"
                return Result(stage.scenario.name, settled, look.at, start, look, missing)
            time.sleep(_LOOK_EVERY)


def _first_measured(stage: Stage) -> Look:
    """The cluster before anyone acts, once a whole window of samples shows every broker."""
    follower, deadline = Follower(stage), time.monotonic() + _MEASURED
    expected = {broker.shape.name: broker.cpu for broker in stage.scenario.brokers}
    while True:
        stage.operator.check()
        look = follower.look(policy=False)
        off = unlike(look, expected)
        if not off:
            return look
        if time.monotonic() > deadline:
            raise ServerFailedError(f"after {_MEASURED:g} s Prometheus shows other CPU than wanted: {off}")
        time.sleep(_LOOK_EVERY)


def unlike(look: Look, expected: Mapping[str, float]) -> str:
    """The brokers whose CPU is not as `expected` (percent, by broker) within a few points, in words; empty if all are.

    The range alone does not tell: all rates ramp up together, so it may be right while every broker is too low.
    """
    far = [row for row in look.brokers if row.cpu is None or abs(row.cpu - expected[row.name]) > _CLOSE]
    return ", ".join(
        f"{row.name} {'unknown' if row.cpu is None else f'{row.cpu:.0f} %'} (not {expected[row.name]:.0f} %)"
        for row in far
    )


def _leave_running(stage: Stage, say: _Voice) -> None:
    kubectl = stage.control_plane.binaries.kubectl
    say("")
    say("everything keeps running until Ctrl-C; to look around:")
    say(f"  export KUBECONFIG={stage.kubeconfig}")
    for example in (
        "get bpol,bkr,tns",
        "get bundles",
        "describe bpol balance",
        'patch bundle NAME --type merge -p \'{"spec":{"owner":"pulsar-broker-0"}}\'',
    ):
        say(f"  {kubectl} {example}")
    say(f"  Prometheus: {stage.prometheus.url}")
    try:
        while True:
            stage.operator.check()
            time.sleep(1)
    except KeyboardInterrupt:
        say("stopping")
