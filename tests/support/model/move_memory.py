"""What an operator remembers of a proposal from one reconcile to the next, as a comparable value."""

from __future__ import annotations

import gzip
import json
import math
from base64 import b64encode
from collections import Counter
from functools import cache
from typing import Any, NamedTuple

from model_objects import NOW
from trimtab_operator.proposals.approver import Approver
from trimtab_operator.proposals.executor import Executor
from trimtab_operator.proposals.model import Cost, Proposal
from trimtab_operator.proposals.progress import Execution, Mark
from trimtab_operator.proposals.store import Standing
from trimtab_operator.resources.policy import Mode
from trimtab_operator.resources.policy_status import ProposalState
from trimtab_operator.state.cluster import ClusterState
from trimtab_operator.status.publisher import StatusPublisher
from trimtab_strategies.model import RESOURCES, HeldBack, Move, Reason


class Kept(NamedTuple):
    """The memory of an `Approver`: its standing, and the progress of its execution. proposal: id of the kept one."""

    proposal: str
    state: str
    message: str
    waits: bool
    version: str
    marks: str = ""
    open: tuple[tuple[int, str], ...] = ()
    failures: tuple[tuple[int, str, str], ...] = ()
    stopped: bool = False
    finished: bool = False
    failed: tuple[tuple[int, int], ...] = ()
    unsure: tuple[tuple[int, str], ...] = ()
    unanswered: tuple[int, ...] = ()
    unreported: bool = False


@cache
def proposal(moves: tuple[tuple[str, str, str, str], ...]) -> Proposal:
    """A proposal of `moves`: bundle object, bundle, source, destination."""
    made = tuple(Move(full, source, to, Reason.OVERLOADED, math.nan) for _, full, source, to in moves)
    names = tuple(name for name, *_ in moves)
    unknown = ((None,) * len(RESOURCES),) * 3
    return Proposal("12345678", 1, NOW, NOW + 900, made, (), names, ("x", "y", "z"), unknown, unknown, Cost(0, 0))


def stored(what: Proposal) -> dict[str, Any]:
    """The ConfigMap of a proposal that waits for approval."""
    owner = {"apiVersion": "trimtab.dev/v1alpha1", "kind": "BalancingPolicy", "name": "main", "uid": "policy"}
    meta = {"name": "trimtab-proposal-main", "uid": "c", "generation": 1, "namespace": "ns", "ownerReferences": [owner]}
    state = {"state": "ProposalReady", "message": "", "uid": "policy"}
    packed = b64encode(gzip.compress(what.to_json().encode(), mtime=0)).decode()
    binary = {"proposal.json.gz": packed}
    return {"kind": "ConfigMap", "metadata": meta, "data": {"state.json": json.dumps(state)}, "binaryData": binary}


_PROPOSALS: dict[str, Proposal] = {}


def approver_with(cluster: ClusterState, publisher: StatusPublisher, kept: Kept | None, mode: Mode) -> Approver:
    """An approver that remembers `kept`; with None, the approver of a process that has just started.

    mode: the policy's.
    """
    approver = Approver(cluster, "main", "policy", publisher)
    if kept is None:
        return approver
    what = _PROPOSALS[kept.proposal]
    execution = None
    if kept.marks:
        failures = {row: HeldBack(what.names[row], Reason(reason), text) for row, reason, text in kept.failures}
        marks = [Mark(mark) for mark in kept.marks]
        execution = Execution(what, NOW, marks, failures, kept.stopped, NOW if kept.finished else None)
        execution._open = dict(kept.open)
    approver._standing = Standing(ProposalState(kept.state), kept.message, what if kept.waits else None, execution)
    approver._store.stored, approver._store._version = approver._standing, kept.version
    approver._mode = mode
    approver._generation = approver._reported_generation = 1
    approver._unreported = kept.unreported
    if execution is not None and execution.finished is None:
        approver._executor = Executor(
            cluster, execution, Counter(dict(kept.failed)), dict(kept.unsure), set(kept.unanswered)
        )
    return approver


def kept_of(approver: Approver) -> Kept | None:
    """What `approver` remembers; None if it has not read its ConfigMap yet."""
    if (standing := approver._standing) is None or standing.kept is None:
        return None
    _PROPOSALS[standing.kept.id] = standing.kept
    waits = standing.proposal is not None
    basic = Kept(standing.kept.id, str(standing.state), standing.message, waits, approver._store._version)
    if (execution := standing.execution) is None:
        return basic
    failures = tuple((row, str(why.reason), why.detail) for row, why in sorted(execution.failures.items()))
    executor = approver._executor or Executor(approver.cluster, execution)
    return basic._replace(
        marks="".join(execution.marks),
        open=tuple(sorted(execution._open.items())),
        failures=failures,
        stopped=execution.stopped,
        finished=execution.finished is not None,
        failed=tuple(sorted(executor.failed.items())),
        unsure=tuple(sorted(executor.unsure.items())),
        unanswered=tuple(sorted(executor.unanswered)),
        unreported=approver._unreported,
    )
