"""Detects other clients that move a policy's bundles.

It quarantines flapping bundles. A policy whose moves another balancer reverts stands down: it only shows its plans for
a while.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from trimtab_operator.kube.client import BUNDLES, POLICIES, Api, ApiError, ConflictError, NotFoundError
from trimtab_operator.kube.conditions import set_condition, timestamp
from trimtab_operator.resources.bundle import RELEASE
from trimtab_operator.resources.conditions import ConditionReason, PolicyCondition
from trimtab_operator.state.admission import MoveRequest, admit
from trimtab_operator.state.budget_left import full_name
from trimtab_operator.state.cluster import ClusterState
from trimtab_operator.state.competing_balancer import (
    NO_COMPETITION,
    UNDOING,
    Competition,
    advises_until,
    owner_written,
    who_took_back,
)
from trimtab_operator.state.ownership_changes import ChangeKind, OwnershipChange
from trimtab_operator.state.settings import PolicyRun, Settings
from trimtab_operator.state.strategy_state import PolicyState
from trimtab_operator.status.publisher import StatusPublisher
from trimtab_strategies.model import Reason, counted, some

OFTEN = 3
"""Number of owner changes within the cool-down that make a bundle flapping, whichever brokers it moves to."""

MOST_QUARANTINED = 1000
"""Maximum number of quarantined bundles. If there are more, those whose quarantine ends first are dropped."""


def flapping(history: Sequence[OwnershipChange], cool_down: float) -> str:
    """Why a bundle with this history (oldest first) flaps; empty when it does not.

    cool_down: the policy's, in seconds. Within it the policy moves no bundle twice, so another client must have moved a
    bundle that flaps. Changes by people alone are not flapping.
    """
    if not history:
        return ""
    last = history[-1]
    recent = [change for change in history if last.at - change.at <= cool_down]
    if all(change.kind is ChangeKind.DESIRED for change in recent):
        return ""
    if back := next((change for change in recent[:-1] if change.left == last.taken), None):
        return f"came back to {last.taken} {last.at - back.at:.0f} s after it had left"
    return f"changed its owner {len(recent)} times in {last.at - recent[0].at:.0f} s" if len(recent) >= OFTEN else ""


def quarantined(
    before: Mapping[str, float], flapped: Iterable[str], until: float, now: float, gone: Iterable[str]
) -> dict[str, float]:
    """Ends of quarantines (epoch seconds) by bundle: those of `flapped`, and those in `before` that are not over.

    gone: bundles that a person released, or that were deleted. A quarantine in `before` that would last past `until`
    ends at `until`: the policy's quarantine is shorter now, or the clock was set back.
    """
    kept = {bundle: min(end, until) for bundle, end in before.items() if end > now}
    kept |= dict.fromkeys(flapped, until)
    for bundle in gone:
        kept.pop(bundle, None)
    return dict(sorted(kept.items(), key=lambda item: (item[1], item[0]))[-MOST_QUARANTINED:])


def owner_changes(changes: Iterable[OwnershipChange]) -> set[str]:
    """The bundles whose owner changed."""
    return {change.bundle for change in changes if change.kind not in {ChangeKind.OVERRULED, ChangeKind.OVERWRITTEN}}


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
        meta = {"resourceVersion": now["metadata"]["resourceVersion"], "annotations": {RELEASE: None}}
        await api.patch(POLICIES, namespace, name, {"metadata": meta})
    except (ConflictError, NotFoundError):
        return False
    return True


def _released(policy: Mapping[str, Any]) -> bool:
    return (policy["metadata"].get("annotations") or {}).get(RELEASE) == "true"


SHOWN = 20
"""Maximum number of quarantined bundles in the policy's status."""

AS_DESIRED = frozenset({ChangeKind.MOVED, ChangeKind.DESIRED, ChangeKind.OVERRULED})
"""Kinds of changes that the metric `trimtab_external_moves_total` does not count."""


@dataclass(slots=True)
class InterferenceController:
    """Detects interference with one policy, and reports each bundle and each competition once.

    _released: bundles that a person released. _resumed: whether a person requested that the policy acts again. The
    annotation of such a request is removed as soon as it is read. So `_released` is kept until the policy's state no
    longer has quarantines of these bundles, and `_resumed` until it no longer has a competition.
    """

    cluster: ClusterState
    policy: str
    publisher: StatusPublisher
    _reported: tuple[Mapping[str, float], float, int] | None = None
    _released: set[str] = field(default_factory=set)
    _resumed: bool = False

    async def attend(self, run: PolicyRun, policy: Mapping[str, Any]) -> PolicyState:
        """The policy's state after the ownership changes since the last round. policy: the object as read.

        Store the state before `publish` reports it, because each change is taken only once. An `ApiError` is raised
        before any change is taken.
        """
        remembered, settings, now = run.state, run.settings, self.cluster.now()
        gone = await self._released_bundles(remembered.quarantine)
        still = self._resumed and remembered.competition != NO_COMPETITION
        self._resumed = await take_release(self.cluster.api, policy) or still
        changes = self.cluster.ownership_changes.take(lambda bundle: self.cluster.cares(self.policy, bundle), now)
        if settings.paused:  # a paused policy makes no moves that another client could undo
            changes = [change for change in changes if change.kind is not ChangeKind.OVERWRITTEN]
        for kind, count in Counter(change.kind for change in changes if change.kind not in AS_DESIRED).items():
            self.cluster.metrics.external_moves.labels(self.policy, kind.value).inc(count)
        await self._pay(changes, settings)
        flapped = self._flapped(changes, settings.limits.cool_down, remembered.quarantine)
        kept = quarantined(remembered.quarantine, flapped, now + settings.quarantine, now, gone)
        competition = (
            NO_COMPETITION if self._resumed else remembered.competition.after(changes, settings.max_undone_moves, now)
        )
        await self._publish_events(flapped, competition, remembered.competition, changes)
        same = kept == remembered.quarantine and competition == remembered.competition
        return remembered if same else replace(remembered, quarantine=kept, competition=competition)

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

    def _flapped(
        self, changes: Sequence[OwnershipChange], cool_down: float, known: Mapping[str, float]
    ) -> dict[str, str]:
        """Why each bundle flaps now, by name; without those that are in quarantine already."""
        histories = {
            name: self.cluster.ownership_changes.history(name) for name in owner_changes(changes) - known.keys()
        }
        found = {name: flapping(history, cool_down) for name, history in sorted(histories.items())}
        return {name: what for name, what in found.items() if what}

    async def _released_bundles(self, quarantine: Mapping[str, float]) -> list[str]:
        """The quarantined bundles that are deleted, or that a person released. Removes the annotation of a release."""
        bundles = self.cluster.stores.bundles.items
        self._released &= quarantine.keys()
        for name in [name for name in quarantine if name in bundles and bundles[name].released]:
            body = {"metadata": {"annotations": {RELEASE: None}}}
            try:
                await self.cluster.api.patch(BUNDLES, self.cluster.namespace, name, body)
            except NotFoundError:
                continue
            self._released.add(name)
            self.cluster.ownership_changes.forget(name)
        return [*self._released, *(name for name in quarantine if name not in bundles)]

    async def _publish_events(
        self,
        flapped: Mapping[str, str],
        competition: Competition,
        before: Competition,
        changes: Sequence[OwnershipChange],
    ) -> None:
        if flapped:
            shown = some([f"{name} {what}" for name, what in flapped.items()], between="; ")
            await self.publisher.event("Warning", str(Reason.QUARANTINED), f"quarantined: {shown}")
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
        """Write the conditions and the list of quarantined bundles, when they changed.

        Nothing is written for a policy without interference. policy: as read; its status may report interference that
        an earlier process saw. Raises `ApiError`.
        """
        kept, competition, now = run.state.quarantine, run.state.competition, self.cluster.now()
        self.cluster.metrics.quarantined.labels(self.policy).set(len(kept))
        generation, until = run.settings.generation, competition.until if competition.retreating(now) else 0.0
        if self._reported is None and not (kept or until or _reports_interference(policy)):
            return
        if (news := (kept, until, generation)) != self._reported:
            await self.publisher.status(lambda previous: _status(previous, kept, competition, now, generation))
            self._reported = news


def _reports_interference(policy: Mapping[str, Any]) -> bool:
    """Whether the status of a policy reports interference, even if it is over."""
    conditions = (policy.get("status") or {}).get("conditions") or ()
    return any(
        condition["type"] in {PolicyCondition.FLAPPING, PolicyCondition.COMPETING_BALANCER} for condition in conditions
    )


def _status(
    previous: Mapping[str, Any], kept: Mapping[str, float], competition: Competition, now: float, generation: int
) -> dict[str, Any]:
    conditions = previous.get("conditions") or []
    text = f"{counted(len(kept), 'bundle')} returned repeatedly after moves, and cannot be moved for a while"
    flap = (
        ("True", str(Reason.QUARANTINED), text) if kept else ("False", ConditionReason.SETTLED, "no bundle is flapping")
    )
    until = f"another client reverts the moves of this policy: it {advises_until(competition)}"
    competing = (
        ("True", str(Reason.COMPETING_BALANCER), until)
        if competition.retreating(now)
        else ("False", ConditionReason.ALONE, "no other client reverts its moves")
    )
    for kind, values in ((PolicyCondition.FLAPPING, flap), (PolicyCondition.COMPETING_BALANCER, competing)):
        conditions = set_condition(conditions, kind, *values, generation, now)
    shown = sorted(kept.items(), key=lambda item: (-item[1], item[0]))[:SHOWN]
    listed = [{"bundle": name, "until": timestamp(end)} for name, end in shown]
    return {"conditions": conditions, "quarantined": {"total": len(kept), "bundles": listed}}
