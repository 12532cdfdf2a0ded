"""`trimtab apply-plan`: makes or undoes the moves of a saved plan, after checking each against the current state."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from trimtab_operator.app import new_cluster
from trimtab_operator.cli.cluster import add_cluster_verb, asked, fetch
from trimtab_operator.cli.cluster_flags import add_dry_run_flag
from trimtab_operator.cli.commands.edit import object_name
from trimtab_operator.cli.commands.measured_policy import refusals_told
from trimtab_operator.cli.commands.moves_by_hand import HandMove, HandMoves, MoveReport, MoveState, reports_grid
from trimtab_operator.cli.commands.plan_file import KIND, MovePlan, SavedMove, read_plan
from trimtab_operator.cli.common import FINDING, FINE, CommandError, add_output_option, is_data, length, print_data
from trimtab_operator.cli.dry_run import wrote
from trimtab_operator.cli.flags import length as duration
from trimtab_operator.cli.tables import console, print_grid
from trimtab_operator.kube.client import POLICIES, Api
from trimtab_operator.loop.preview import obstacles
from trimtab_operator.state.cluster import ClusterState
from trimtab_operator.state.settings import Settings
from trimtab_operator.telemetry.metrics import Metrics
from trimtab_operator.watched_namespaces import following
from trimtab_pipeline.factory import direct_sources
from trimtab_strategies.model import Move, Reason, counted

_DESCRIPTION = """\
Make the moves of a plan that `trimtab plan --save` wrote and you may have edited. Each move is checked against the
current state, as for an approved proposal. The bundle must exist and still be on the source. It must not be pinned,
being split, or moving elsewhere. The destination must exist, be ready and take bundles. If a move is refused, nothing
is moved; with --skip-refused the others are. Bundles that are already at their destination are skipped.

A plan is refused when it is older than --max-age (by default approval.expiresAfter of the policy), because the load has
changed since. --reverse undoes the moves, the last one first. --save-rollback writes a plan that undoes the moves that
are about to be made. A plan that undoes moves has no age limit.

The moves are written like those of `trimtab move`, in every mode of the policy. At most limits.maxMovesInFlight are
pending at a time. When one does not land within --timeout seconds, no further move starts. After Ctrl-C no further move
starts either, and the pending ones land.

Exit code 1: a move was refused, or did not land.

examples:
  trimtab plan main -n messaging --save plan.yaml
  trimtab apply-plan plan.yaml --dry-run=server
  trimtab apply-plan plan.yaml --save-rollback rollback.yaml
  trimtab apply-plan rollback.yaml
  trimtab apply-plan plan.yaml --reverse
"""


def _register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = add_cluster_verb(subparsers, "apply-plan", _DESCRIPTION, _run)
    parser.add_argument("file", metavar="FILE", help="file of `trimtab plan --save`, or - for standard input")
    parser.add_argument("--reverse", action="store_true", help="undo the moves")
    parser.add_argument("--skip-refused", action="store_true", help="make the other moves when some are refused")
    parser.add_argument("--save-rollback", metavar="FILE", help="file for a plan that undoes the moves made now")
    parser.add_argument("--max-age", type=duration, metavar="TIME", help="oldest plan to accept, such as 1h")
    parser.add_argument(
        "--timeout", type=float, default=60.0, metavar="SECONDS", help="longest wait for one move (%(default)g)"
    )
    add_dry_run_flag(parser)
    add_output_option(parser)


@dataclass(frozen=True, slots=True)
class CheckedPlan:
    """The moves of a plan after a check.

    possible: moves to make. others: moves that have landed already, and refused ones. at_once: how many moves may be
    pending at a time.
    """

    possible: Sequence[HandMove]
    others: Sequence[MoveReport]
    at_once: int

    @property
    def refused(self) -> bool:
        """Whether a move is refused."""
        return any(not report.well for report in self.others)


def _run(arguments: argparse.Namespace) -> int:
    plan = read_plan(arguments.file)
    if arguments.namespace and arguments.namespace != plan.namespace:
        raise CommandError(
            f"the plan is for namespace {plan.namespace}, and -n names {arguments.namespace}: leave out -n"
        )
    arguments.namespace = plan.namespace
    if arguments.reverse:
        plan = plan.reversed
    moves = _moves(plan)
    checked = asked(arguments, lambda api: _checked(api, arguments, plan, moves))
    if not checked.possible or (checked.refused and not arguments.skip_refused):
        unmade = [MoveReport(move, MoveState.NOT_STARTED, "another move is refused") for move in checked.possible]
        return _show(arguments, [*checked.others, *unmade])
    if arguments.save_rollback and arguments.dry_run == "none":
        if Path(arguments.save_rollback).exists():
            raise CommandError(f"{arguments.save_rollback} exists: it may undo an earlier run; name another file")
        _rollback(plan, checked.possible).write(arguments.save_rollback)
    pending = len(checked.possible) if arguments.dry_run != "none" else checked.at_once
    making = HandMoves(arguments, checked.possible, pending)
    others = [report for report in checked.others if not report.well]
    return wrote(arguments, making.start, partial(_tell, making, checked), lambda: [*others, *making.refused()])


async def _tell(making: HandMoves, checked: CheckedPlan, api: Api, _started: None) -> int:
    return _show(making.arguments, [*checked.others, *await making.finish(api)])


def _show(arguments: argparse.Namespace, reports: Sequence[MoveReport]) -> int:
    """Print the outcome of each move, and return the exit code."""
    well = all(report.well for report in reports)
    if is_data(arguments.output):
        print_data({"plan": arguments.file, "moves": [report.as_data() for report in reports]}, arguments.output)
    elif not reports:
        print("the plan has no moves")
    else:
        there = sum(report.well for report in reports)
        title = f"{counted(there, 'bundle')} of {len(reports)} at the destination"
        print_grid(console(arguments.color), reports_grid(title, reports))
    return FINE if well else FINDING


def _moves(plan: MovePlan) -> dict[str, SavedMove]:
    """Name of a Bundle object -> its move. Raises `CommandError` for a move that makes no sense."""
    found: dict[str, SavedMove] = {}
    for k, move in enumerate(plan.moves):
        name = object_name(move.bundle)
        if name in found:
            raise CommandError(f"moves[{k}]: {move.bundle} is moved twice: leave one of the moves out")
        if move.source == move.destination:
            raise CommandError(f"moves[{k}]: {move.bundle} would stay on {move.source or 'no broker'}: leave it out")
        found[name] = move
    return found


def _rollback(plan: MovePlan, made: Sequence[HandMove]) -> MovePlan:
    """The plan that undoes the moves `made` of `plan`. Bundles that had no owner stay where they are."""
    ours = {move.name for move in made if move.source}
    return plan.model_copy(update={"moves": tuple(m for m in plan.moves if object_name(m.bundle) in ours)}).reversed


async def _checked(
    api: Api, arguments: argparse.Namespace, plan: MovePlan, moves: Mapping[str, SavedMove]
) -> CheckedPlan:
    """Check the plan's age and each move. Raises `CommandError` and `ApiError`."""
    policy = await fetch(api, POLICIES, plan.namespace, plan.policy)
    with refusals_told():
        settings = Settings.of(policy)
        _check_age(arguments, plan, settings)
        cluster = new_cluster(api, plan.namespace, direct_sources(""), Metrics())
        async with following(cluster):
            wanted = {name: Move(name, m.source, m.destination, Reason.ADMIN) for name, m in moves.items()}
            why = await obstacles(cluster, policy, wanted)
            others = list(_others(cluster, moves, {name: f"{w.reason}: {w.detail}" for name, w in why.items()}))
    aside = {report.move.name for report in others}
    possible = [_hand_move(name, move) for name, move in moves.items() if name not in aside]
    return CheckedPlan(possible, others, settings.max_moves_in_flight)


def _others(cluster: ClusterState, moves: Mapping[str, SavedMove], why: Mapping[str, str]) -> Iterator[MoveReport]:
    """The moves that are not made: those that have landed already, and those that are refused."""
    for name, move in moves.items():
        record = cluster.stores.bundles.items.get(name)
        here = record is not None and record.owner == move.destination
        if record is not None and here and record.status_owner == move.destination:
            yield MoveReport(_hand_move(name, move), MoveState.ALREADY_THERE)
        elif not move.destination:
            text = "it had no owner before: `trimtab move` gives it another one"
            yield MoveReport(_hand_move(name, move), MoveState.REFUSED, text)
        elif name in why and not here:  # a bundle that already moves there is only followed
            yield MoveReport(_hand_move(name, move), MoveState.REFUSED, why[name])


def _hand_move(name: str, move: SavedMove) -> HandMove:
    return HandMove(name, move.source, move.destination)


def _check_age(arguments: argparse.Namespace, plan: MovePlan, settings: Settings) -> None:
    """Raise `CommandError` for a plan whose load is too old."""
    if plan.made_at is None:
        return
    age, most = time.time() - plan.made_at.timestamp(), arguments.max_age
    if most is None:
        most = settings.approval_expires_after
    if age > most:
        limit = f"--max-age {length(most)}" if arguments.max_age is not None else "approval.expiresAfter of its policy"
        raise CommandError(
            f"the {KIND} was made {length(age)} ago, and may be at most {length(most)} old ({limit}): "
            f"save a new one with `trimtab plan {plan.policy} -n {plan.namespace} --save {arguments.file}`, "
            "or give a longer --max-age"
        )
