"""Keeps watch over who else moves a policy's bundles: quarantines those that flap, gives way to a rival, and tells."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from trimtab_operator.interference.detection import flapping, owner_changes, quarantined
from trimtab_operator.kube.client import BUNDLES, POLICIES, Api, ApiError, ConflictError, NotFoundError
from trimtab_operator.kube.conditions import set_condition, timestamp
from trimtab_operator.resources.bundle import RELEASE
from trimtab_operator.state.cluster import ClusterState
from trimtab_operator.state.competing_balancer import (
    NO_COMPETITION,
    UNDOING,
    Competition,
    advises_until,
    who_took_back,
    writer_of_owner,
)
from trimtab_operator.state.ownership_changes import ChangeKind, OwnershipChange
from trimtab_operator.state.settings import PolicyRun
from trimtab_operator.state.strategy_state import PolicyState
from trimtab_operator.status.publisher import StatusPublisher
from trimtab_strategies.model import Reason, counted, some


async def take_release(api: Api, policy: Mapping[str, Any]) -> bool:
    """Whether a person wants the retreat before a rival ended; the annotation that says so is taken off.

    policy: the object, perhaps as it was a moment ago. Where somebody edits it just now, it stays for the next look.
    Raises `ApiError`.
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
"""Quarantined bundles in the policy's status."""

AS_DESIRED = frozenset({ChangeKind.MOVED, ChangeKind.DESIRED, ChangeKind.OVERRULED})
"""Changes that are as somebody wished, or that nobody wished anything about."""


@dataclass(slots=True)
class InterferenceController:
    """Speaks up once for each bundle and each fight."""

    context: ClusterState
    policy: str
    publisher: StatusPublisher
    _told: tuple[Mapping[str, float], float, int] | None = None

    async def attend(self, run: PolicyRun, policy: Mapping[str, Any]) -> PolicyState:
        """What the policy remembers once it took note of what others did since the last turn. policy: as read.

        It is to be kept before `tell` tells it, as nothing is seen twice. Raises `ApiError` before anything was taken.
        """
        remembered, settings, now = run.state, run.settings, self.context.now()
        gone = await self._let_go(remembered.quarantine)
        released = await take_release(self.context.api, policy)
        changes = self.context.ownership_changes.take(lambda bundle: self.context.cares(self.policy, bundle), now)
        if settings.paused:  # a person is at work, and the policy moves nothing that could be contested
            changes = [change for change in changes if change.kind is not ChangeKind.OVERWRITTEN]
        for kind, count in Counter(change.kind for change in changes if change.kind not in AS_DESIRED).items():
            self.context.metrics.external_moves.labels(self.policy, kind.value).inc(count)
        flapped = self._flapped(changes, settings.limits.cool_down, remembered.quarantine)
        kept = quarantined(remembered.quarantine, flapped, now + settings.quarantine, now, gone)
        competition = (
            NO_COMPETITION if released else remembered.competition.after(changes, settings.max_undone_moves, now)
        )
        await self._tell_events(flapped, competition, remembered.competition, changes)
        same = kept == remembered.quarantine and competition == remembered.competition
        return remembered if same else replace(remembered, quarantine=kept, competition=competition)

    def _flapped(
        self, changes: Sequence[OwnershipChange], cool_down: float, known: Mapping[str, float]
    ) -> dict[str, str]:
        """What is wrong with each bundle that flaps now, by name; of those that are left alone already nothing."""
        histories = {
            name: self.context.ownership_changes.history(name) for name in owner_changes(changes) - known.keys()
        }
        found = {name: flapping(history, cool_down) for name, history in sorted(histories.items())}
        return {name: what for name, what in found.items() if what}

    async def _let_go(self, quarantine: Mapping[str, float]) -> list[str]:
        """The quarantined bundles that are gone, or that a person released; the annotation is taken off."""
        bundles = self.context.stores.bundles.items
        released = [name for name in quarantine if name in bundles and bundles[name].released]
        for name in released:
            body = {"metadata": {"annotations": {RELEASE: None}}}
            try:
                await self.context.api.patch(BUNDLES, self.context.namespace, name, body)
            except NotFoundError:
                continue
            self.context.ownership_changes.forget(name)
        return [*released, *(name for name in quarantine if name not in bundles)]

    async def _tell_events(
        self,
        flapped: Mapping[str, str],
        competition: Competition,
        before: Competition,
        changes: Sequence[OwnershipChange],
    ) -> None:
        if flapped:
            shown = some([f"{name} {what}" for name, what in flapped.items()], between="; ")
            await self.publisher.event("Warning", str(Reason.QUARANTINED), f"left alone from now on: {shown}")
        if competition.retreats and competition.until != before.until:
            last = next((change for change in reversed(changes) if change.kind in UNDOING), None)
            await self.publisher.event("Warning", str(Reason.COMPETING_BALANCER), await self._rival(last, competition))
        if before.retreating(self.context.now()) and not competition.retreats:
            text = "its moves are carried out again, as a person said; what undid them before is forgotten"
            await self.publisher.event("Normal", "Released", text)

    async def _rival(self, last: OwnershipChange | None, competition: Competition) -> str:
        """Who it is, as far as can be told, and what to do. last: what it did, None nothing since the last turn."""
        until = f"this policy {advises_until(competition)}"
        if last is None:
            return f"as many of its moves were undone as limits.maxUndoneMoves allows: {until}"
        if last.kind is ChangeKind.REVERTED:
            link = self.context.link
            off = link.hand.text if link.linked and link.hand.held else ""
            return f"its moves are undone, {who_took_back(last, off)}; {until}"
        try:
            found = await self.context.api.get(BUNDLES, self.context.namespace, last.bundle)
            writer = writer_of_owner(found) or "somebody"
        except ApiError:
            writer = "somebody"
        what = f"{writer} wrote {last.taken} over spec.owner of {last.bundle}"
        return f"its moves are undone, lastly {what}: leave spec.owner out of what {writer} applies; {until}"

    async def tell(self, run: PolicyRun, policy: Mapping[str, Any]) -> None:
        """Conditions and the list, when they changed. A policy that never had such trouble is not written to.

        policy: as read; its status may tell of trouble that an earlier process saw. Raises `ApiError`.
        """
        kept, competition, now = run.state.quarantine, run.state.competition, self.context.now()
        self.context.metrics.quarantined.labels(self.policy).set(len(kept))
        generation, until = run.settings.generation, competition.until if competition.retreating(now) else 0.0
        if self._told is None and not (kept or until or _told_of(policy)):
            return
        if (news := (kept, until, generation)) != self._told:
            await self.publisher.status(lambda previous: _status(previous, kept, competition, now, generation))
            self._told = news


def _told_of(policy: Mapping[str, Any]) -> bool:
    """Whether the status of a policy tells of such trouble, even if it is over."""
    conditions = (policy.get("status") or {}).get("conditions") or ()
    return any(condition["type"] in {"Flapping", "CompetingBalancer"} for condition in conditions)


def _status(
    previous: Mapping[str, Any], kept: Mapping[str, float], competition: Competition, now: float, generation: int
) -> dict[str, Any]:
    conditions = previous.get("conditions") or []
    text = f"{counted(len(kept), 'bundle')} came back again and again: left alone for a while"
    flap = ("True", str(Reason.QUARANTINED), text) if kept else ("False", "Settled", "no bundle comes back again")
    until = f"others undo what this policy moves: it {advises_until(competition)}"
    rival = (
        ("True", str(Reason.COMPETING_BALANCER), until)
        if competition.retreating(now)
        else ("False", "Alone", "nobody undoes it")
    )
    for kind, told in (("Flapping", flap), ("CompetingBalancer", rival)):
        conditions = set_condition(conditions, kind, *told, generation, now)
    shown = sorted(kept.items(), key=lambda item: (-item[1], item[0]))[:SHOWN]
    listed = [{"bundle": name, "until": timestamp(end)} for name, end in shown]
    return {"conditions": conditions, "quarantined": {"total": len(kept), "bundles": listed}}
