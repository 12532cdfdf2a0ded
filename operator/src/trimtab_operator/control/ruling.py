"""What becomes of a plan: it is carried out, or only shown, and why. The one place where a mode matters."""

from __future__ import annotations

from dataclasses import dataclass

from trimtab_operator.actuators import Actuator
from trimtab_operator.actuators.declarative import DryRunActuator
from trimtab_operator.cluster.status import timestamp
from trimtab_operator.control.context import Context
from trimtab_operator.control.turn import Turn
from trimtab_operator.control.windows import opening
from trimtab_operator.resources.policy import Mode
from trimtab_strategies.model import HeldBack, Reason


@dataclass(frozen=True, slots=True)
class Ruling:
    """How a plan is acted upon: through `actuator`. restraint: why it is only shown, None when it is carried out."""

    actuator: Actuator
    restraint: HeldBack | None = None


def rule(context: Context, turn: Turn) -> Ruling:
    """What becomes of the plan of this turn."""
    if turn.settings.mode is Mode.AUTO:
        if (fight := turn.remembered.fight).retreating(context.now()):
            return shown(Reason.CONTESTED, f"others undo what it moves: it only advises until {timestamp(fight.until)}")
        if not (window := opening(turn.settings.windows, context.now())).open:
            when = f"acts again from {timestamp(window.until)}" if window.until else "no window opens within a week"
            return shown(Reason.OUTSIDE_WINDOW, f"spec.windows: {when}")
        return Ruling(turn.actuator)
    if turn.settings.mode is Mode.APPROVE:
        return shown(Reason.NOT_APPROVED, "spec.mode is Approve: proposals wait for a person")
    return shown(Reason.DRY_RUN, "spec.mode is DryRun")


def shown(reason: Reason, detail: str) -> Ruling:
    """The plan is shown and nothing is written, because of `reason`."""
    return Ruling(DryRunActuator(reason), HeldBack("", reason, detail))
