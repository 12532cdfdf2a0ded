"""The command ``trimtab demo``."""

from __future__ import annotations

import argparse
import json
import signal
import sys
from typing import Any, NoReturn

from rich.console import Console

from trimtab_operator.cli.common import EMBEDDED, FINDING, FINE, CommandError, add_verb, require
from trimtab_pipeline.spark.java import JavaMissingError
from trimtab_testbed.demo.run import run as run_demo
from trimtab_testbed.demo.summary import as_json
from trimtab_testbed.programs.build import MissingToolError
from trimtab_testbed.servers.processes import ServerFailedError
from trimtab_testbed.simulated.scenarios import SCENARIOS, UnknownScenarioError, scenario

_DESCRIPTION = """\
Watch the operator balance a cluster on this machine. etcd, kube-apiserver and Prometheus are real. Brokers are
simulated and serve real metrics. The demo ends by itself after about one minute. Exit code 0: the cluster is balanced;
1: it is not. Missing programs are built or downloaded first (Kubernetes: about 9 minutes, once).

scenarios:
{scenarios}

examples:
  trimtab demo
  trimtab demo --json | jq '.moves | length'
  trimtab demo --mixed       one machine is twice as strong; the operator learns that from the load
  trimtab demo --keep        then use kubectl in another terminal with the KUBECONFIG that is printed
"""


def register(subparsers: Any) -> None:
    """Add the command to the parser."""
    listed = "\n".join(f"  {name:<12} {known.summary}" for name, known in SCENARIOS.items())
    parser = add_verb(subparsers, "demo", _DESCRIPTION.format(scenarios=listed), run)
    parser.add_argument("--scenario", default="skewed-96", metavar="NAME", help="scenario to run (%(default)s)")
    parser.add_argument(
        "--mixed",
        action="store_const",
        dest="scenario",
        const="mixed-48",
        help="the same as --scenario mixed-48",
    )
    parser.add_argument("--spark", default=EMBEDDED, help="as for `trimtab run`; none: without Java (%(default)s)")
    parser.add_argument("--json", action="store_true", help="print one JSON object on stdout, all else on stderr")
    parser.add_argument("--keep", action="store_true", help="leave everything running until Ctrl-C")
    parser.add_argument(
        "--timeout", type=_seconds, default=180.0, metavar="SECONDS", help="give up after this long (%(default)g)"
    )


def run(arguments: argparse.Namespace) -> int:
    """Run the command and return the exit code. Raises `CommandError`."""
    require("demo", "demo")
    signal.signal(signal.SIGTERM, _end)
    signal.signal(signal.SIGINT, _end)  # background jobs of a shell ignore it otherwise
    console = Console(stderr=arguments.json)
    try:
        chosen = scenario(arguments.scenario)
        result = run_demo(chosen, console, timeout=arguments.timeout, keep=arguments.keep, spark=arguments.spark)
    except (UnknownScenarioError, MissingToolError, JavaMissingError) as error:
        raise CommandError(f"demo: {error}") from error
    except ServerFailedError as error:
        print(f"trimtab demo: {error}", file=sys.stderr)
        return FINDING
    if arguments.json:
        print(json.dumps(as_json(result), indent=2))
    if not result.settled:
        print(f"trimtab demo: the cluster did not settle in {result.seconds:.0f} s: {result.missing}", file=sys.stderr)
    return FINE if result.settled else FINDING


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds") from None
    if not value > 0:
        raise argparse.ArgumentTypeError(f"{text} must be above 0 seconds")
    return value


def _end(*_: object) -> NoReturn:
    """End the demo on SIGTERM as on Ctrl-C, so that everything is stopped."""
    raise KeyboardInterrupt
