"""Target weight, score and error of each broker, for its status, where the policy's shedder has them. Pure.

A weight is relative, in specs as in statuses: 1 is the target of an average broker without a fixed weight. So it does
not follow the load of the day, an idle cluster writes nothing, and a user can fix a learned weight by copying it to the
spec.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from trimtab_operator.kube.broker_records import BrokerRecord
from trimtab_strategies.model import BrokerTraits, Memory, Plan
from trimtab_strategies.protocols import recall

NOTICEABLE = 0.01
"""Ratio by which a weight must change before it is written, relative to the weight or, if larger, to the average."""


@dataclass(frozen=True, slots=True)
class BrokerWeight:
    """The weight of one broker.

    target: relative weight it should carry. score: ratio 0-1 of the cluster's capacity that it was found to have, NaN
    if its weight is fixed. error: ratio by which it carries more (above 0) or less than its target, NaN for a target
    of 0.
    """

    target: float
    score: float
    error: float


def broker_weights(plan: Plan, memory: Memory, traits: Mapping[str, BrokerTraits]) -> dict[str, BrokerWeight]:
    """The weights, by name, of the brokers that have a target in `plan`. memory: after the decision."""
    targets = plan.target_weights
    unit = _unit(targets, traits)
    if not unit > 0:
        return {}
    scores = np.clip(recall(memory.shedder, "score", list(targets)), 0, 1)
    return {
        name: BrokerWeight(target / unit, score, _error(plan.carried.get(name, np.nan), target))
        for (name, target), score in zip(targets.items(), scores.tolist(), strict=True)
    }


def _unit(targets: Mapping[str, float], traits: Mapping[str, BrokerTraits]) -> float:
    """The weight 1 (bytes/s or msg/s): the mean target of brokers without a fixed weight; of all if there are none.

    NaN when no broker has a target.
    """
    free = [target for name, target in targets.items() if name not in traits or np.isnan(traits[name].weight)]
    counted = free or list(targets.values())
    return sum(counted) / len(counted) if counted else np.nan


def _error(carried: float, target: float) -> float:
    return carried / target - 1 if target > 0 else np.nan


def changed_weights(
    record: BrokerRecord, weights: Mapping[str, BrokerWeight], brokers: Sequence[str]
) -> dict[str, float | None]:
    """Merge-patch of a broker's status with its weight; empty when nothing noticeable changed.

    weights: those of all `brokers` of the policy; empty when its shedder computes none. The patch then removes an old
    weight. If only this broker has none (its usage is unknown now), it keeps its old weight.
    """
    if not weights:
        return _none(record)
    if (weight := weights.get(record.name)) is None:
        return {}
    score, average = None if np.isnan(weight.score) else 100 * weight.score, 100 / len(brokers)
    if not (_differs(record.target_weight, weight.target, 1.0) or _differs(record.score, score, average)):
        return {}
    return {"targetWeight": round(weight.target, 3), "score": None if score is None else round(score, 3)}


def _none(record: BrokerRecord) -> dict[str, float | None]:
    shown = {"targetWeight": record.target_weight, "score": record.score}
    return {key: None for key, value in shown.items() if value is not None}


def _differs(shown: float | None, now: float | None, average: float) -> bool:
    """Whether `now` is noticeably away from what is `shown`; `average` is the value of an average broker."""
    if shown is None or now is None:
        return (shown is None) != (now is None)
    return abs(now - shown) >= NOTICEABLE * max(shown, average)
