"""Detects other clients that move a policy's bundles.

A policy whose moves another balancer reverts stands down: it only shows its plans for a while.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from trimtab_operator.budget.admission import MoveRequest, admit
from trimtab_operator.budget.left import full_name
from trimtab_operator.kube.client import BUNDLES, POLICIES, Api, ApiError, ConflictError, NotFoundError
from trimtab_operator.kube.conditions import condition_of, set_condition
from trimtab_operator.resources.conditions import ConditionReason, PolicyCondition
from trimtab_operator.resources.policy_status import RELEASE_ANNOTATION
from trimtab_operator.state.cluster import ClusterState
from trimtab_operator.state.competing_balancer import (
    NO_COMPETITION,
    UNDOING,
    Competition,
    advises_until,
    owner_written,
    who_took_back,
)
from trimtab_operator.state.other_leaders import CLAIM_EVERY
from trimtab_operator.state.ownership_changes import ChangeKind, OwnershipChange
from trimtab_operator.state.settings import PolicyRun, Settings
from trimtab_operator.state.strategy_state import PolicyState
from trimtab_operator.status.publisher import StatusPublisher
from trimtab_strategies.model import Reason


async def take_release(api: Api, policy: Mapping[str, Any]) -> bool:
    """Whether a person has requested by an annotation that the policy acts again. Removes the annotation.

    policy: the object, which may be out of date. If another client edits it now, the annotation stays until the next
    round. Raises `ApiError`.
    """
    if not _released(policy):
        return False
    namespace, name, uid = (policy["metadata"][key] for key in ("namespace", "name", "uid"))
    try:
        now = await api.get(POLICIES, namespace, name)
        if now["metadata"]["uid"] != uid or not _released(now):
            return False
        meta = {"resourceVersion": now["metadata"]["resourceVersion"], "annotations": {RELEASE_ANNOTATION: None}}
        await api.patch(POLICIES, namespace, name, {"metadata": meta})
    except (ConflictError, NotFoundError):
        return False
    return True


def _released(policy: Mapping[str, Any]) -> bool:
    return (policy["metadata"].get("annotations") or {}).get(RELEASE_ANNOTATION) == "true"


AS_DESIRED = frozenset({ChangeKind.MOVED, ChangeKind.DESIRED, ChangeKind.OVERRULED})
"""Kinds of changes that the metric `trimtab_external_moves_total` does not count."""


@dataclass(slots=True)
class InterferenceController:
    """Detects interference with one policy, and reports each competition once.

    _resumed: whether a person requested that the policy acts again. The annotation of such a request is removed as soon
    as it is read. So `_resumed` is kept until the policy's state no longer has a competition. _claim: what an operator
    with another Lease wrote into the condition, and when that was first seen (clock seconds).
    """

    cluster: ClusterState
    policy: str
    publisher: StatusPublisher
    _reported: tuple[float, int] | None = None
    _resumed: bool = False
    _claim: tuple[str, float] = ("", 0.0)

    async def attend(self, run: PolicyRun, policy: Mapping[str, Any]) -> PolicyState:
        """The policy's state after the ownership changes since the last round. policy: the object as read.

        Store the state before `publish` reports it, because each change is taken only once. An `ApiError` is raised
        before any change is taken.
        """
        remembered, settings, now = run.state, run.settings, self.cluster.now()
        still = self._resumed and remembered.competition != NO_COMPETITION
        self._resumed = await take_release(self.cluster.api, policy) or still
        changes = self.cluster.ownership_changes.take(lambda bundle: self.cluster.cares(self.policy, bundle), now)
        if settings.paused:  # a paused policy makes no moves that another client could undo
            changes = [change for change in changes if change.kind is not ChangeKind.OVERWRITTEN]
        for kind, count in Counter(change.kind for change in changes if change.kind not in AS_DESIRED).items():
            self.cluster.metrics.external_moves.labels(self.policy, kind.value).inc(count)
        await self._pay(changes, settings)
        competition = (
            NO_COMPETITION if self._resumed else remembered.competition.after(changes, settings.max_undone_moves, now)
        )
        await self._publish_events(competition, remembered.competition, changes)
        return remembered if competition == remembered.competition else replace(remembered, competition=competition)

    async def _pay(self, changes: Sequence[OwnershipChange], settings: Settings) -> None:
        """Charge moves by people to the budgets. No budget holds them back, but less is left for the policy."""
        bundles, requests = self.cluster.stores.bundles.items, []
        for change in changes:
            if change.kind is ChangeKind.DESIRED and (record := bundles.get(change.bundle)) is not None:
                full = full_name(self.cluster, record)
                # A charge has the generation of the bundle before the write. `record` already has the one after it.
                # If this charge had that later generation, the policy's next charge for the bundle would replace it.
                before = replace(record, generation=record.generation - 1)
                requests.append(MoveRequest(before, full, change.left, change.taken, Reason.ADMIN))
        await admit(self.cluster, settings, requests)

    async def _publish_events(
        self, competition: Competition, before: Competition, changes: Sequence[OwnershipChange]
    ) -> None:
        if competition.retreats and competition.until != before.until:
            last = next((change for change in reversed(changes) if change.kind in UNDOING), None)
            reason, note = str(Reason.COMPETING_BALANCER), await self._competitor(last, competition)
            await self.publisher.event("Warning", reason, note)
        if before.retreating(self.cluster.now()) and not competition.retreats:
            text = "its moves are carried out again, as a person requested; earlier interference no longer counts"
            await self.publisher.event("Normal", "Released", text)

    async def _competitor(self, last: OwnershipChange | None, competition: Competition) -> str:
        """The competing balancer, as far as it is known, and what to do. last: its last change, None if unseen."""
        until = f"this policy {advises_until(competition)}"
        if last is None:
            return f"as many of its moves were undone as limits.maxUndoneMoves allows: {until}"
        if last.kind is ChangeKind.REVERTED:
            link = self.cluster.link
            off = link.own_balancer.text if link.linked and link.own_balancer.disabled else ""
            return f"its moves are undone, {who_took_back(last, off)}; {until}"
        try:
            found = await self.cluster.api.get(BUNDLES, self.cluster.namespace, last.bundle)
            writer = owner_written(found)[0] or "another client"
        except ApiError:
            writer = "another client"
        what = f"{writer} wrote {last.taken} over spec.owner of {last.bundle}"
        return f"its moves are undone, last when {what}: leave spec.owner out of what {writer} applies; {until}"

    async def publish(self, run: PolicyRun, policy: Mapping[str, Any]) -> None:
        """Write the condition, when it changed.

        Nothing is written for a policy without interference. policy: as read; its status may report interference that
        an earlier process saw. Raises `ApiError`.
        """
        competition, now = run.state.competition, self.cluster.now()
        generation, until = run.settings.generation, competition.until if competition.retreating(now) else 0.0
        if self._claimed(policy) and not until:
            self._reported = None
            return
        if self._reported is None and not (until or _reports_competition(policy)):
            return
        if (news := (until, generation)) != self._reported:
            await self.publisher.status(lambda previous: _status(previous, competition, now, generation))
            self._reported = news

    def _claimed(self, policy: Mapping[str, Any]) -> bool:
        """Whether an operator with another Lease stands down. It repeats that as long as it runs."""
        conditions, clock = (policy.get("status") or {}).get("conditions") or (), self.cluster.clock()
        _, reason, message, _ = condition_of(conditions, PolicyCondition.COMPETING_BALANCER)
        claim = message if reason == ConditionReason.OTHER_LEADER else ""
        if claim != self._claim[0]:
            self._claim = claim, clock
        return bool(claim) and clock - self._claim[1] < 3 * CLAIM_EVERY


def _reports_competition(policy: Mapping[str, Any]) -> bool:
    """Whether the status of a policy reports a competing balancer, even if that is over."""
    conditions = (policy.get("status") or {}).get("conditions") or ()
    return any(condition["type"] == PolicyCondition.COMPETING_BALANCER for condition in conditions)


def _status(previous: Mapping[str, Any], competition: Competition, now: float, generation: int) -> dict[str, Any]:
    values = ("False", str(ConditionReason.ALONE), "no other client reverts its moves")
    if competition.retreating(now):
        until = f"another client reverts the moves of this policy: it {advises_until(competition)}"
        values = ("True", str(Reason.COMPETING_BALANCER), until)
    kind = PolicyCondition.COMPETING_BALANCER
    return {"conditions": set_condition(previous.get("conditions") or [], kind, *values, generation, now)}
