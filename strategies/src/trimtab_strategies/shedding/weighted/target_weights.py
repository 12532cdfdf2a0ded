"""Target weights: how much each consumer should carry.

In Hermes' words, a broker is a *consumer*. `Average`: the same target for all. `Scoring`: a proportional controller
learns from cpu how much each consumer can carry. So all end up at the same utilisation although the machines differ.

Formula (scoring). T = mean cpu; e = T - cpu; score = smoothed raw score, at least a floor; target = S * score / sum of
scores. Consumers whose load is unknown get the plain average. S is the total weight less the targets of these consumers
and of those with a fixed weight.

    original:   raw = share + gain * e          share: part of all reported operations;  floor: 0.01
    corrected:  raw = share * (1 + gain * e/T)  share: part of all carried weight;       floor: a part of 1/n

Hermes' original adds a utilisation (gain * e) to a share, and a share is only about 1/n. So its loop gain is
gain * cpu * n, and above 2 the loop overcorrects. So the original is stable only with a few consumers, unless moves
take effect almost immediately. The corrected law has the loop gain `gain` for any n. With it, a consumer's average
starts at its share, not at a fully corrected score. So targets do not jump when the averages begin anew, for example
because a new leader finds no memory. A consumer without weight starts at the fair share, 1/n. With more than a hundred
consumers the original's floor can make all targets equal; the corrected floor can't.

The controller is only proportional, but it corrects the measured share in each cycle. So no lasting error remains as
long as the targets can be met.

Source. Hermes 2.21.0, the two calculators of target weights, with equal results to the last bit.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from trimtab_strategies.java_compat import compensated_sum, plain_sum
from trimtab_strategies.params import Compatibility
from trimtab_strategies.shedding.weighted.nodes import UNKNOWN_LOAD, InvalidWorkError, NodeLoad, blended, smoothing
from trimtab_strategies.shedding.weighted.orders import Iteration, Order, order_of

MIN_SCORE = 0.01
MAX_SCORE = 1.0


class Law(StrEnum):
    """The rule that sets target weights."""

    AVERAGE = "Average"
    SCORING = "Scoring"


@dataclass(frozen=True, slots=True)
class AverageScore:
    """A consumer's remembered score: the average of its raw scores, not clamped, and when it was updated (ms)."""

    average: float
    at: float


@dataclass(frozen=True, slots=True)
class TargetRule:
    """The rule for targets: the law, the controller's gain, the window of its averages (ms), and the compatibility.

    floor: ratio of the fair share 1/n below which no corrected score falls. fixed: the weights that a user set, by
    consumer. A fixed weight of 1 is the average target of the consumers without a fixed weight, which share the rest.
    """

    law: Law = Law.AVERAGE
    gain: float = 1.0
    window: float = 900_000
    compatibility: Compatibility = Compatibility.JAVA
    iteration: Iteration = Iteration.SORTED
    floor: float = 0.1
    fixed: Mapping[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.window > 0:
            raise InvalidWorkError(f"the window of scores is {self.window} ms: it must be above 0")
        for name, weight in self.fixed.items():
            if not 0 <= weight < math.inf:
                raise InvalidWorkError(f"the fixed weight of {name!r} is {weight}: it must be a number, 0 or more")


@dataclass(frozen=True, slots=True)
class Targets:
    """Each consumer's target weight (ops/s), and the score, share and error e (cpu ratio) of those with known load.

    memory: the scores for the next update.
    """

    weights: Mapping[str, float]
    scores: Mapping[str, float] = field(default_factory=dict)
    shares: Mapping[str, float] = field(default_factory=dict)
    errors: Mapping[str, float] = field(default_factory=dict)
    memory: Mapping[str, AverageScore] = field(default_factory=dict)


def update(
    books: Mapping[str, float],
    loads: Mapping[str, NodeLoad],
    memory: Mapping[str, AverageScore],
    now: float,
    rule: TargetRule,
    *,
    reported: Mapping[str, float] | None = None,
) -> Targets:
    """The targets at `now` (ms) of the consumers in `books`.

    books: the weight that each consumer carries (ops/s), in the order of summation. loads: the consumers' reports.
    memory: the memory after the last update, or empty. reported: the total operations/s of each report, if only these
    totals are known.
    """
    free = {name: book for name, book in books.items() if name not in rule.fixed}
    total = plain_sum(books.values())
    given = _given(total, {name: rule.fixed[name] for name in books if name in rule.fixed}, len(free))
    for weight in given.values():
        total = max(total - weight, 0.0)
    if rule.law is Law.AVERAGE:
        average = _mean(total, len(free))
        return Targets({name: given.get(name, average) for name in books})
    found = _controlled(free, loads, memory, now, rule, reported=reported)
    weights = {**_shared_out(total, free, found.scores, order_of(rule.iteration)), **given}
    return Targets({name: weights[name] for name in books}, found.scores, found.shares, found.errors, found.memory)


def _given(total: float, fixed: Mapping[str, float], others: int) -> dict[str, float]:
    """Target weights (ops/s) of the consumers with a fixed weight. others: number without one; each counts as 1."""
    together = math.fsum([*fixed.values(), others])
    return {name: total * (weight / together) if together else 0.0 for name, weight in fixed.items()}


def _mean(total: float, count: int) -> float:
    return total / count if count else 0.0


def _controlled(
    books: Mapping[str, float],
    loads: Mapping[str, NodeLoad],
    memory: Mapping[str, AverageScore],
    now: float,
    rule: TargetRule,
    *,
    reported: Mapping[str, float] | None,
) -> Targets:
    """Scores, shares and errors of the consumers with known load, and the memory of all consumers that still exist."""
    order = order_of(rule.iteration)
    corrected = rule.compatibility is Compatibility.CORRECTED
    known = [
        name for name in order.consumers(list(books)) if _known(loads.get(name, UNKNOWN_LOAD), corrected=corrected)
    ]
    target = compensated_sum(loads[name].cpu for name in known) / len(known) if known else 0.0
    errors = {name: target - loads[name].cpu for name in known}
    if corrected:
        shares = _carried_shares(books, known)
        raw = {name: _relative(shares[name], errors[name], target, rule.gain) for name in known}
    else:
        ops = reported or {name: compensated_sum(order.reported(loads[name].ops)) for name in known}
        shares = _reported_shares({name: ops[name] for name in known})
        raw = {name: shares[name] + rule.gain * errors[name] for name in known}
    start = shares if corrected else raw
    kept = {name: memory[name] for name in books if name in memory}
    updated = {name: _updated(kept.get(name), raw[name], start[name], now, rule.window) for name in known}
    lowest = rule.floor / max(1, len(known)) if corrected else MIN_SCORE
    scores = {name: max(min(updated[name].average, MAX_SCORE), lowest) for name in known}
    return Targets({}, scores, shares, errors, {**kept, **updated})


def _known(load: NodeLoad, *, corrected: bool) -> bool:
    """Whether the cpu of a report is known. Hermes treats every value except -1 as measured."""
    return (0 <= load.cpu < math.inf) if corrected else load.defined


def _carried_shares(books: Mapping[str, float], known: Iterable[str]) -> dict[str, float]:
    """Share of the weight that each consumer carries. A consumer that carries no weight gets the fair share, 1/n."""
    carried = {name: books[name] for name in known}
    total = compensated_sum(carried.values())
    return {name: book / total if total > 0 and book > 0 else 1 / len(carried) for name, book in carried.items()}


def _relative(share: float, error: float, target: float, gain: float) -> float:
    return share * max(0.0, 1 + gain * error / target) if target > 0 else share


def _reported_shares(ops: Mapping[str, float]) -> dict[str, float]:
    """Share of the operations that each consumer reports."""
    total = compensated_sum(ops.values())
    return {name: own / total if total > 0 else 0.0 for name, own in ops.items()}


def _updated(before: AverageScore | None, raw: float, start: float, now: float, window: float) -> AverageScore:
    if before is None:
        return AverageScore(start, now)
    return AverageScore(blended(before.average, raw, smoothing(now - before.at, window)), now)


def _shared_out(
    total: float, books: Mapping[str, float], scores: Mapping[str, float], order: Order
) -> dict[str, float]:
    """The total weight, shared out in proportion to the scores.

    First, each consumer without a score gets the plain average, and the total is reduced by that.
    """
    average = _mean(total, len(books))
    found = {}
    for name in books:
        if name not in scores:
            found[name] = average
            total = max(total - average, 0.0)
    together = compensated_sum(scores[name] for name in order.consumers(list(scores)))
    return found | {name: total * (score / together) for name, score in scores.items()}
