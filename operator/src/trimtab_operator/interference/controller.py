"""Keeps watch over who else moves a policy's bundles: quarantines those that flap, gives way to a rival, and tells."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from trimtab_operator.cluster.api import BUNDLES, ApiError, NotFoundError
from trimtab_operator.cluster.status import set_condition, timestamp
from trimtab_operator.control.annotations import take_release
from trimtab_operator.control.context import Context
from trimtab_operator.control.flaps import flapping, owner_changes, quarantined
from trimtab_operator.control.memory import Remembered
from trimtab_operator.control.rivals import PEACE, UNDOING, Fight, advises_until, writer_of_owner
from trimtab_operator.control.telling import Teller
from trimtab_operator.control.turn import Turn
from trimtab_operator.control.turnovers import Change, Kind
from trimtab_operator.resources.bundle import RELEASE
from trimtab_strategies.model import Reason, counted, some

SHOWN = 20
"""Quarantined bundles in the policy's status."""
WISHED_FOR = frozenset({Kind.MOVED, Kind.WISHED})
"""Changes that are as somebody wished, or that nobody wished anything about."""


@dataclass(slots=True)
class Vigil:
    """Speaks up once for each bundle and each fight."""

    context: Context
    policy: str
    teller: Teller
    _told: tuple[Mapping[str, float], float, int] | None = None

    async def attend(self, turn: Turn, policy: Mapping[str, Any]) -> Remembered:
        """What the policy remembers once it took note of what others did since the last turn. policy: as read.

        It is to be kept before `tell` tells it, as nothing is seen twice. Raises `ApiError` before anything was taken.
        """
        remembered, settings, now = turn.remembered, turn.settings, self.context.now()
        gone = await self._let_go(remembered.quarantine)
        released = await take_release(self.context.api, policy)
        changes = self.context.turnovers.take(lambda bundle: self.context.cares(self.policy, bundle), now)
        for kind, count in Counter(change.kind for change in changes if change.kind not in WISHED_FOR).items():
            self.context.metrics.foreign_moves.labels(self.policy, kind.value).inc(count)
        flapped = self._flapped(changes, settings.limits.cool_down, remembered.quarantine)
        kept = quarantined(remembered.quarantine, flapped, now + settings.quarantine, now, gone)
        fight = PEACE if released else remembered.fight.after(changes, settings.max_undone_moves, now)
        await self._tell_events(flapped, fight, remembered.fight, changes)
        same = kept == remembered.quarantine and fight == remembered.fight
        return remembered if same else replace(remembered, quarantine=kept, fight=fight)

    def _flapped(self, changes: Sequence[Change], cool_down: float, known: Mapping[str, float]) -> dict[str, str]:
        """What is wrong with each bundle that flaps now, by name; of those that are left alone already nothing."""
        histories = {name: self.context.turnovers.history(name) for name in owner_changes(changes) - known.keys()}
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
            self.context.turnovers.forget(name)
        return [*released, *(name for name in quarantine if name not in bundles)]

    async def _tell_events(
        self, flapped: Mapping[str, str], fight: Fight, before: Fight, changes: Sequence[Change]
    ) -> None:
        if flapped:
            shown = some([f"{name} {what}" for name, what in flapped.items()], between="; ")
            await self.teller.event("Warning", str(Reason.QUARANTINED), f"left alone from now on: {shown}")
        if fight.retreats and fight.until != before.until:
            last = next((change for change in reversed(changes) if change.kind in UNDOING), None)
            await self.teller.event("Warning", str(Reason.CONTESTED), await self._rival(last, fight))
        if before.retreating(self.context.now()) and not fight.retreats:
            text = "its moves are carried out again, as a person said; what undid them before is forgotten"
            await self.teller.event("Normal", "Released", text)

    async def _rival(self, last: Change | None, fight: Fight) -> str:
        """Who it is, as far as can be told, and what to do. last: what it did, None nothing since the last turn."""
        until = f"this policy {advises_until(fight)}"
        if last is None:
            return f"as many of its moves were undone as limits.maxUndoneMoves allows: {until}"
        if last.kind is Kind.UNDONE:
            what = f"{last.bundle} went back to {last.taken}, which nobody wished"
            return f"its moves are undone, lastly {what}: switch off the brokers' own shedding; {until}"
        try:
            found = await self.context.api.get(BUNDLES, self.context.namespace, last.bundle)
            writer = writer_of_owner(found) or "somebody"
        except ApiError:
            writer = "somebody"
        what = f"{writer} wrote {last.taken} over spec.owner of {last.bundle}"
        return f"its moves are undone, lastly {what}: leave spec.owner out of what {writer} applies; {until}"

    async def tell(self, turn: Turn, policy: Mapping[str, Any]) -> None:
        """Conditions and the list, when they changed. A policy that never had such trouble is not written to.

        policy: as read; its status may tell of trouble that an earlier process saw. Raises `ApiError`.
        """
        kept, fight, now = turn.remembered.quarantine, turn.remembered.fight, self.context.now()
        self.context.metrics.quarantined.labels(self.policy).set(len(kept))
        generation, until = turn.settings.generation, fight.until if fight.retreating(now) else 0.0
        if self._told is None and not (kept or until or _told_of(policy)):
            return
        if (news := (kept, until, generation)) != self._told:
            await self.teller.status(lambda previous: _status(previous, kept, fight, now, generation))
            self._told = news


def _told_of(policy: Mapping[str, Any]) -> bool:
    """Whether the status of a policy tells of such trouble, even if it is over."""
    conditions = (policy.get("status") or {}).get("conditions") or ()
    return any(condition["type"] in {"Flapping", "Contested"} for condition in conditions)


def _status(
    previous: Mapping[str, Any], kept: Mapping[str, float], fight: Fight, now: float, generation: int
) -> dict[str, Any]:
    conditions = previous.get("conditions") or []
    text = f"{counted(len(kept), 'bundle')} came back again and again: left alone for a while"
    flap = ("True", str(Reason.QUARANTINED), text) if kept else ("False", "Settled", "no bundle comes back again")
    until = f"others undo what this policy moves: it {advises_until(fight)}"
    rival = ("True", str(Reason.CONTESTED), until) if fight.retreating(now) else ("False", "Alone", "nobody undoes it")
    for kind, told in (("Flapping", flap), ("Contested", rival)):
        conditions = set_condition(conditions, kind, *told, generation, now)
    shown = sorted(kept.items(), key=lambda item: (-item[1], item[0]))[:SHOWN]
    listed = [{"bundle": name, "until": timestamp(end)} for name, end in shown]
    return {"conditions": conditions, "quarantined": {"total": len(kept), "bundles": listed}}
