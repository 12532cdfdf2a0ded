"""`trimtab rebalance --from BROKER`: relieves one broker now."""

from __future__ import annotations

import argparse
import sys
from functools import partial

from trimtab_operator.cli.cluster import add_cluster_verb, asked, fetch
from trimtab_operator.cli.cluster_flags import add_dry_run_flag
from trimtab_operator.cli.commands.measured_policy import add_measuring_options
from trimtab_operator.cli.commands.moves_by_hand import HandMove, HandMoves, reports_grid
from trimtab_operator.cli.commands.plan_table import as_data, print_tables
from trimtab_operator.cli.commands.relief_plan import away_from, relief_plan
from trimtab_operator.cli.common import FINDING, FINE, CommandError, add_output_option, is_data, print_data
from trimtab_operator.cli.dry_run import wrote
from trimtab_operator.cli.tables import console, print_grid
from trimtab_operator.kube.client import BROKERS, Api
from trimtab_operator.loop.preview import Preview
from trimtab_strategies.model import Move, counted
from trimtab_strategies.planner.relief import BrokerRelief

_DESCRIPTION = """\
Relieve one broker now: measure the cluster, plan moves away from the broker until it carries the average, show them,
and make them once you confirm. The policy's placement chooses the destinations. Its limits, isolation, pins and
cool-downs apply, and a move must improve the balance. The moves are written like those of `trimtab move`, in every
mode of the policy.

At most limits.maxMovesInFlight moves are pending at a time. When one does not land within --timeout seconds, no further
move starts. After Ctrl-C no further move starts either, and the pending ones land. To empty a broker, use
`trimtab drain`.

Exit code 1: nothing can be moved, you said no, or a move did not land.

examples:
  trimtab rebalance --from pulsar-broker-3 -n messaging --dry-run
  trimtab rebalance --from pulsar-broker-3 -n messaging
  trimtab rebalance --from pulsar-broker-3 -n messaging --yes --prometheus http://localhost:9090
"""


def _register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = add_cluster_verb(subparsers, "rebalance", _DESCRIPTION, _run)
    parser.add_argument("--from", dest="broker", required=True, metavar="BROKER", help="name of the Broker to relieve")
    parser.add_argument("-y", "--yes", action="store_true", help="make the moves without asking")
    parser.add_argument(
        "--timeout", type=float, default=60.0, metavar="SECONDS", help="longest wait for one move (%(default)g)"
    )
    add_dry_run_flag(parser)
    add_measuring_options(parser, policy=True)
    add_output_option(parser)


def _run(arguments: argparse.Namespace) -> int:
    foreseen = asked(arguments, lambda api: _relieved(api, arguments))
    moves = list(away_from(foreseen.plan, arguments.broker))
    if not is_data(arguments.output):
        print_tables(console(arguments.color), foreseen.settings.name, foreseen, _headline(arguments.broker, moves))
    if not moves:
        if is_data(arguments.output):
            print_data({**as_data(foreseen.settings.name, foreseen), "made": []}, arguments.output)
        return FINDING
    if arguments.dry_run == "none" and not arguments.yes and not _confirmed(f"make {counted(len(moves), 'move')}?"):
        print("nothing was moved", file=sys.stderr)
        return FINDING
    records = foreseen.snapshot.records
    wanted = [HandMove(records[move.bundle].name, move.source, move.destination) for move in moves]
    pending = len(wanted) if arguments.dry_run != "none" else foreseen.settings.max_moves_in_flight
    making = HandMoves(arguments, wanted, pending)
    return wrote(arguments, making.start, partial(_tell, making, foreseen), making.refused)


async def _tell(making: HandMoves, foreseen: Preview, api: Api, _started: None) -> int:
    reports, arguments = await making.finish(api), making.arguments
    if is_data(arguments.output):
        made = [report.as_data() for report in reports]
        print_data({**as_data(foreseen.settings.name, foreseen), "made": made}, arguments.output)
    else:
        print_grid(console(arguments.color), reports_grid("Made", reports))
    return FINE if all(report.well for report in reports) else FINDING


def _headline(broker: str, moves: list[Move]) -> str:
    return f"{broker} gives away {counted(len(moves), 'bundle')}" if moves else f"{broker} can give nothing away"


def _confirmed(question: str) -> bool:
    """The answer on the terminal. Raises `CommandError` without a terminal."""
    if not sys.stdin.isatty():
        raise CommandError("standard input is no terminal, so you can't confirm: add --yes, or --dry-run to see moves")
    print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in {"y", "yes"}


async def _relieved(api: Api, arguments: argparse.Namespace) -> Preview:
    """The plan of the relief. Raises `CommandError`, `ApiError`."""
    await fetch(api, BROKERS, arguments.namespace, arguments.broker)
    return await relief_plan(api, arguments, BrokerRelief(arguments.broker))
