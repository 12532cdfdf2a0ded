"""Finds what an answer to *why* is made from in a history alone: no cluster is asked, and any moment can be chosen."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from trimtab_operator.cli.answers import Facts
from trimtab_operator.cli.asking import near
from trimtab_operator.cli.failure import CommandError
from trimtab_operator.cli.finding_records import Found
from trimtab_operator.cli.moments import Moment, written
from trimtab_operator.cli.move import object_name
from trimtab_operator.cluster.naming import bundle_name, parse_pulsar_bundle
from trimtab_operator.control.decisions import DecisionRecord, ForeignRecordError
from trimtab_pipeline.decisions import decisions
from trimtab_pipeline.past import DamagedError, NoHistoryError, Past, policies


def recalled(folder: Path, policy: str | None, kind: str, name: str, at: Moment | None) -> Found:
    """What the history below `folder` knows of a bundle or broker, as of `at`, or of the newest decision.

    policy: whose history, where there are several. kind: ``bundle``, ``broker``, or empty: whichever it is. Raises
    `CommandError`.
    """
    try:
        past = Past(folder, policy or _only(folder))
        records = _records(past, at)
        newest = records[-1]
        owners = {} if kind == "broker" else _owners(past, newest.at)
    except (NoHistoryError, DamagedError, ForeignRecordError) as error:
        raise CommandError(str(error)) from error
    namespace, _, of = past.policy.partition("/")
    facts = Facts(newest.at, namespace, of, cool_down=newest.caps.cool_down)
    brokers = [view.name for view in newest.brokers]
    if kind != "bundle" and name in brokers:
        return Found(name, name, facts, records, "")
    called = name if kind == "broker" else object_name(name)
    if called not in owners:
        known = brokers if kind == "broker" else [*owners, *([] if kind else brokers)]
        when = written(newest.at)
        raise CommandError(f"{name} is in no decision of {past.policy} up to {when} UTC; {near(called, known)}")
    return Found(called, owners[called], facts, records, "", of_bundle=True)


def _only(folder: Path) -> str:
    found = policies(folder)
    if len(found) > 1:
        raise CommandError(f"{folder} has the history of several policies; say --policy: {', '.join(found)}")
    return found[0]


def _records(past: Past, at: Moment | None) -> tuple[DecisionRecord, ...]:
    """Oldest first; never empty. Raises `CommandError`, `ForeignRecordError`."""
    newest = decisions(past.folder, count=1)
    if not newest:
        raise CommandError(f"the history of {past.policy} has no decision; the operator writes them since version 0.1")
    until = newest[0].of if at is None else at(newest[0].of)
    found = decisions(past.folder, until)
    if not found:
        raise CommandError(f"the history of {past.policy} has no decision up to {written(until)} UTC")
    return tuple(DecisionRecord.from_json(entry.record) for entry in found)


def _owners(past: Past, at: float) -> Mapping[str, str]:
    """The broker of each bundle (name of the object) in the newest cycle up to `at`, empty nobody."""
    try:
        load = past.load(at)
    except NoHistoryError:
        return {}  # the decision was to look at nothing
    names = [*load.brokers.names, ""]
    owners = load.bundles.owner.tolist()
    return {
        bundle_name(*parse_pulsar_bundle(full)): names[owner]
        for full, owner in zip(load.bundles.names, owners, strict=True)
    }
