"""`trimtab plan`: what the next cycle would do, from the live cluster."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from typing import Any

import yaml
from rich.console import Console
from rich.table import Table

from trimtab_operator.app import following, new_context
from trimtab_operator.cli.run import add_cluster_options
from trimtab_operator.cluster.api import Api, ApiError, NotFoundError
from trimtab_operator.control.foresee import Foreseen, foresee
from trimtab_operator.control.memory import ForeignMemoryError
from trimtab_operator.control.settings import InvalidPolicyError
from trimtab_operator.telemetry.metrics import Metrics
from trimtab_pipeline.source import SourceUnavailableError, spark_sources
from trimtab_strategies.model import CPU, Plan

_DESCRIPTION = """\
Show what the next cycle of a policy would do, and why it would do nothing else. Writes nothing, in any mode.

It measures the cluster as the operator does, with a history of its own (`--history`), so averages that need a past
begin afresh unless you point it at a copy of the operator's folder.

example:
  trimtab plan cluster-a --namespace messaging
  trimtab plan cluster-a --namespace messaging -o json | jq .moves
"""


def register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the verb."""
    parser = subparsers.add_parser(
        "plan",
        help="show what the next cycle would do",
        description=_DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("policy", help="name of the BalancingPolicy")
    add_cluster_options(parser)
    parser.add_argument("-o", "--output", choices=("table", "json", "yaml"), default="table", help="(%(default)s)")
    parser.add_argument("--json", dest="output", action="store_const", const="json", help="the same as -o json")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Carry out the verb; returns the exit code: 0 told, 2 could not be told."""
    try:
        foreseen = asyncio.run(_foresee(arguments))
    except NotFoundError:
        return _failed(f"there is no BalancingPolicy {arguments.policy} in namespace {arguments.namespace}")
    except (InvalidPolicyError, ForeignMemoryError, SourceUnavailableError, ApiError, TimeoutError) as error:
        return _failed(str(error) or "the API server did not list the cluster in time")
    _show(foreseen, arguments.output)
    return 0


def _failed(text: str) -> int:
    print(f"trimtab plan: {text}", file=sys.stderr)
    return 2


async def _foresee(arguments: argparse.Namespace) -> Foreseen:
    sources = spark_sources(arguments.history, master=arguments.spark)
    try:
        async with Api.connect(arguments.kubeconfig, arguments.context) as api:
            context = new_context(api, arguments.namespace, sources, Metrics())
            async with following(context):
                return await foresee(context, arguments.policy)
    finally:
        sources.close()


def as_data(plan: Plan) -> dict[str, Any]:
    """The plan as plain data: moves, what was held back, and CPU percent per broker before and after."""
    moves = [
        {"bundle": m.bundle, "source": m.source, "destination": m.destination, "reason": str(m.reason)}
        for m in plan.moves
    ]
    held = [{"subject": h.subject, "reason": str(h.reason), "detail": h.detail} for h in plan.held_back]
    brokers = [
        {"broker": name, "cpuBefore": _percent(plan.before[row, CPU]), "cpuAfter": _percent(plan.after[row, CPU])}
        for row, name in enumerate(plan.brokers)
    ]
    return {"moves": moves, "heldBack": held, "brokers": brokers}


def _percent(value: float) -> float | None:
    return round(float(value), 1) if value == value else None  # noqa: PLR0124  NaN is the one value unlike itself


def _show(foreseen: Foreseen, output: str) -> None:
    data = as_data(foreseen.plan)
    if output == "json":
        print(json.dumps(data, indent=2))
    elif output == "yaml":
        print(yaml.safe_dump(data, sort_keys=False), end="")
    else:
        console = Console()
        for title, key in (("Brokers", "brokers"), ("Moves", "moves"), ("Held back", "heldBack")):
            console.print(_table(title, data[key]))


def _table(title: str, rows: list[dict[str, Any]]) -> Table | str:
    if not rows:
        return f"{title}: none\n"
    table = Table(title=title, title_justify="left")
    for column in rows[0]:
        table.add_column(column)
    for row in rows:
        table.add_row(*("unknown" if value is None else str(value) for value in row.values()))
    return table
