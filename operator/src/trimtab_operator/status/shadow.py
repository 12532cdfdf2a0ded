"""The status of a policy in mode Shadow: `status.shadow` and the condition `ShadowBetter`. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from trimtab_operator.kube.conditions import Condition, set_condition, timestamp
from trimtab_operator.resources.conditions import ConditionReason, PolicyCondition
from trimtab_operator.resources.shadow_status import ShadowComparison
from trimtab_operator.state.cycle_result import CycleResult
from trimtab_operator.state.shadow_state import ShadowReport
from trimtab_strategies.counterfactual.comparison import DAYS, Better, DailyVerdict
from trimtab_strategies.model import Reason, counted


def shadow_status(report: ShadowReport) -> dict[str, Any]:
    """`status.shadow` as JSON; null for what is not known, which a merge-patch removes."""
    compared = report.comparison
    shown = ShadowComparison.of(
        compared.total,
        compared.verdict(),
        policy=report.acting,
        since=timestamp(compared.since),
        begun=report.begun,
        displaced=report.displaced,
    )
    return shown.model_dump(by_alias=True, mode="json")


def with_verdict(conditions: Iterable[Mapping[str, Any]], result: CycleResult) -> list[Condition]:
    """`conditions` after a cycle: with `ShadowBetter` for a policy in mode Shadow, without it in any other mode.

    A cycle without a plan leaves the condition as it is. If there is no acting policy, the condition becomes `Unknown`.
    """
    alone = result.refusal is not None and result.refusal.reason is Reason.NO_ACTING_POLICY
    if alone and result.refusal is not None:
        found = ("Unknown", str(Reason.NO_ACTING_POLICY), result.refusal.detail)
    elif result.shadow is not None:
        found = _verdict(result.shadow)
    elif result.plan is None:
        return [dict(condition) for condition in conditions]
    else:
        return [dict(condition) for condition in conditions if condition["type"] != PolicyCondition.SHADOW_BETTER]
    return set_condition(conditions, PolicyCondition.SHADOW_BETTER, *found, result.generation, result.started)


def _verdict(report: ShadowReport) -> tuple[str, str, str]:
    compared = report.comparison
    verdict, since = compared.verdict(), timestamp(compared.since)
    if verdict.better is Better.UNKNOWN:
        text = f"{counted(verdict.days, 'whole day')} of {DAYS} compared with {report.acting} since {since}"
        return "Unknown", ConditionReason.TOO_EARLY, f"{text} ({report.begun})"
    text = f"{_saved(verdict)} than one of {report.acting}, over {counted(verdict.days, 'whole day')} since {since}"
    if verdict.better is Better.YES:
        return "True", ConditionReason.BETTER, text
    return "False", ConditionReason.NOT_BETTER, text


def _saved(verdict: DailyVerdict) -> str:
    """``a day of the shadow costs 3.1 points less (2.0 to 4.2)``."""
    ends = sorted((verdict.lowest, verdict.highest), key=abs)
    word, sign = ("less", 1) if verdict.saved >= 0 else ("more", -1)
    span = " to ".join(f"{sign * end:.1f}" for end in ends)
    return f"a day of the shadow costs {abs(verdict.saved):.1f} points {word} ({span})"
