"""Reads the decisions for `explain` and `why-not` from a history, without a cluster."""

from __future__ import annotations

from collections.abc import Mapping

from trimtab_operator.cli.cluster import near
from trimtab_operator.cli.commands.edit import object_name
from trimtab_operator.cli.commands.history import only_history
from trimtab_operator.cli.common import CommandError, Moment, written
from trimtab_operator.cli.why.answers import Facts
from trimtab_operator.cli.why.records import RecordsFound
from trimtab_operator.decision_log.record import DecisionRecord
from trimtab_operator.kube.config_map_store import UnreadableContentError
from trimtab_operator.kube.naming import bundle_name, parse_pulsar_bundle
from trimtab_pipeline.api import ForeignFileError
from trimtab_pipeline.history.reader import HistoryReader, NoHistoryError


def recalled(folder: str, policy: str | None, kind: str, name: str, at: Moment | None) -> RecordsFound:
    """What the history below `folder` says about a bundle or broker at `at`, or at the newest decision.

    policy: whose history to read; None if there is only one. kind: ``bundle``, ``broker``, or empty for either. Raises
    `CommandError`.
    """
    try:
        past = only_history(folder, policy)
        records = _recalled(past, at)
        newest = records[-1]
        owners = {} if kind == "broker" else _owners(past, newest.at)
    except (NoHistoryError, ForeignFileError, UnreadableContentError) as error:
        raise CommandError(str(error)) from error
    namespace, _, of = past.policy.partition("/")
    facts = Facts(newest.at, namespace, of, cool_down=newest.caps.cool_down)
    brokers = [view.name for view in newest.brokers]
    if kind != "bundle" and name in brokers:
        return RecordsFound(name, name, facts, records, "")
    called = name if kind == "broker" else object_name(name)
    if called not in owners:
        known = brokers if kind == "broker" else [*owners, *([] if kind else brokers)]
        when = written(newest.at)
        raise CommandError(f"{name} is in no decision of {past.policy} up to {when} UTC; {near(called, known)}")
    return RecordsFound(called, owners[called], facts, records, "", of_bundle=True)


def _recalled(past: HistoryReader, at: Moment | None) -> tuple[DecisionRecord, ...]:
    """The decisions up to `at`, oldest first, never empty. Raises `CommandError`, `UnreadableContentError`."""
    newest = past.decisions(count=1)
    if not newest:
        raise CommandError(f"the history of {past.policy} has no decision; operators before version 0.1 recorded none")
    until = newest[0].of if at is None else at(newest[0].of)
    found = past.decisions(until)
    if not found:
        raise CommandError(f"the history of {past.policy} has no decision up to {written(until)} UTC")
    return tuple(DecisionRecord.from_json(entry.record) for entry in found)


def _owners(past: HistoryReader, at: float) -> Mapping[str, str]:
    """The owner of each bundle, by object name, in the newest cycle up to `at`; an empty string for no owner."""
    try:
        owners = past.owners(at)
    except NoHistoryError:
        return {}  # the decision had no load
    return {bundle_name(*parse_pulsar_bundle(full)): owner for full, owner in owners.items()}
