"""What becomes of a plan: it is carried out, or only shown, and why. The one place where a mode matters."""

from __future__ import annotations

from dataclasses import dataclass

from trimtab_operator.actuators import Actuator, Written
from trimtab_operator.actuators.declarative import DryRunActuator
from trimtab_operator.cluster.bundles import BundleRecord
from trimtab_operator.cluster.status import timestamp
from trimtab_operator.control.context import Context
from trimtab_operator.control.rivals import advises_until
from trimtab_operator.control.turn import Turn
from trimtab_operator.control.windows import opening
from trimtab_operator.resources.policy import Mode
from trimtab_strategies.model import HeldBack, Reason, Split


@dataclass(frozen=True, slots=True)
class Ruling:
    """How a plan is acted upon: through `actuator`. restraint: why it is only shown, None when it is carried out."""

    actuator: Actuator
    restraint: HeldBack | None = None


EVACUATIONS = frozenset({Reason.DRAINED, Reason.ROLLING_OUT})
"""Why a bundle leaves a broker that a person wants empty, or restarts. That is no balancing: it waits for no window."""


@dataclass(frozen=True, slots=True)
class Evacuates:
    """Carries out evacuations through `acting`, and all else through `otherwise`."""

    acting: Actuator
    otherwise: Actuator

    async def wish(self, bundle: BundleRecord, owner: str, reason: Reason) -> Written:
        """Write `owner`, if it is because of an evacuation."""
        through = self.acting if reason in EVACUATIONS else self.otherwise
        return await through.wish(bundle, owner, reason)

    async def free(self, bundle: BundleRecord) -> Written:
        """As `otherwise` does."""
        return await self.otherwise.free(bundle)

    async def request_split(self, bundle: BundleRecord, split: Split) -> Written:
        """As `otherwise` does."""
        return await self.otherwise.request_split(bundle, split)


def rule(context: Context, turn: Turn) -> Ruling:
    """What becomes of the plan of this turn."""
    if turn.settings.mode is Mode.AUTO:
        ruling = _restrained(context, turn)
        if ruling.restraint is None:
            return ruling
        return Ruling(Evacuates(turn.actuator, ruling.actuator), ruling.restraint)
    if turn.settings.mode is Mode.APPROVE:
        return shown(Reason.NOT_APPROVED, "spec.mode is Approve: proposals wait for a person")
    return shown(Reason.DRY_RUN, "spec.mode is DryRun")


def _restrained(context: Context, turn: Turn) -> Ruling:
    """What becomes of a plan in mode Auto, but for what is evacuated."""
    if (fight := turn.remembered.fight).retreating(context.now()):
        return shown(Reason.CONTESTED, f"others undo what it moves: it {advises_until(fight)}")
    if context.link.linked and context.link.problem:
        return shown(Reason.SOURCE_UNAVAILABLE, f"Pulsar can't be asked: {context.link.problem}")
    if context.link.linked and not context.link.hand.held:
        return shown(Reason.TWO_HANDS, context.link.hand.text)
    if not (window := opening(turn.settings.windows, context.now())).open:
        when = f"acts again from {timestamp(window.until)}" if window.until else "no window opens within a week"
        return shown(Reason.OUTSIDE_WINDOW, f"spec.windows: {when}")
    return Ruling(turn.actuator)


def shown(reason: Reason, detail: str) -> Ruling:
    """The plan is shown and nothing is written, because of `reason`."""
    return Ruling(DryRunActuator(reason), HeldBack("", reason, detail))
