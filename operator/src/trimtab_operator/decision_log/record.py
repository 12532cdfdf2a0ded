"""`DecisionRecord`: one decision, whether it moved something or not, for `trimtab explain` and the history.

A record is plain, versioned data, camelCase in JSON. Percentages are of a broker's limit, and may exceed 100. None
means unknown. `decision_log.build` makes a record, and `decision_log.outcome` adds its outcome.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

from pydantic import AliasChoices, Field, ValidationError

from trimtab_operator.kube.config_map_store import UnreadableContentError, check_version
from trimtab_operator.resources.common import Status
from trimtab_operator.resources.policy_status import PredictionScore
from trimtab_strategies.model import Reason

RECORD_VERSION = 1
"""Version of the format of a record. Other versions are not read."""

STEADY = 5.0
"""Percentage points of usage. A broker whose usage differs by less counts as unchanged."""


RECEIVES_FEWER = frozenset({Reason.UNSCHEDULABLE, Reason.RAMPING_UP})
"""Reasons of the guard that limit which bundles a broker receives, not which it gives away."""


class Held(Status):
    """An action that was held back, and why. subject: a broker or bundle; empty for the whole cycle."""

    subject: str = ""
    reason: Reason
    detail: str = ""
    count: int = 1


class Why(Status):
    """A reason, with figures in its detail."""

    reason: Reason
    detail: str = ""


class BrokerView(Status):
    """One broker: its usage, and why it gives or takes bundles."""

    name: str
    usage: float | None = None
    """Weighted usage (percent): the usage of the most used resource."""
    expected: float | None = None
    """Weighted usage once all planned moves have landed."""
    resource: str = ""
    """The most used resource."""
    resources: tuple[float | None, ...] = ()
    """Percent of each resource, in the order of `RESOURCES`."""
    trusted: bool = True
    missing: tuple[str, ...] = ()
    """Resources that were not measured."""
    limits: Mapping[str, tuple[float, str]] = Field(default_factory=dict)
    """What counts as 100 % of a resource: cores or bytes, and the name of a `LimitOrigin`."""
    averages: Mapping[str, float] = Field(default_factory=dict)
    """The shedder's averages of the broker, by the names that the shedder gives them."""
    target_weight: float | None = None
    carried: float | None = None
    bundles: int | None = None
    gives: Why
    """Why it gives bundles away or keeps them."""
    takes: Why | None = None
    """Why it may take no bundles; None if it may."""


class Alternative(Status):
    """A broker that was not chosen for a bundle. after: weighted usage (percent) with the bundle."""

    broker: str
    reason: Reason
    after: float | None = None


class MoveView(Status):
    """One planned move, why other brokers were not chosen, and its outcome."""

    bundle: str
    """In Pulsar's spelling."""
    name: str
    """Name of the Bundle object."""
    source: str
    destination: str
    reason: Reason
    load: float | None = None
    """Percentage points of its source's CPU."""
    before: float | None = None
    """Weighted usage (percent) of the source before this move, but with the moves that precede it in the plan."""
    after: float | None = None
    """Weighted usage (percent) of the destination with the bundle."""
    rejected: tuple[Alternative, ...] = ()
    """Some brokers that were not chosen, the least used first."""
    others: Mapping[Reason, tuple[str, ...]] = Field(default_factory=dict)
    """The other brokers that were not chosen, by reason."""
    written: bool = False
    """Whether the cycle that planned the move also wrote it."""
    outcome: Reason | None = None
    """How it ended, or why it was not written; None while it is pending."""
    detail: str = ""
    ended: float | None = None
    """When its outcome was first observed (epoch seconds)."""

    @property
    def begun(self) -> bool:
        """Whether it was started, by its own cycle or after a person's approval."""
        return self.written or self.outcome is Reason.LANDED

    def against(self, broker: str) -> Reason | None:
        """Why a broker was not chosen; None if it was chosen, or if the reason was not recorded."""
        noted = {other.broker: other.reason for other in self.rejected}
        return noted.get(broker) or next((reason for reason, names in self.others.items() if broker in names), None)


class SplitView(Status):
    """One planned split."""

    bundle: str
    name: str
    source: str
    children: int
    reason: Reason
    outcome: Reason | None = None
    detail: str = ""


class StayView(Status):
    """A bundle that stays. load: percentage points of its broker's CPU."""

    bundle: str
    name: str
    broker: str
    reason: Reason
    load: float | None = None
    detail: str = ""


class ManualMove(Status):
    """A move that a person or Git requested. name: Bundle object. at: when it landed, epoch seconds."""

    name: str
    source: str
    destination: str
    at: float


class MeasuredOutcome(Status):
    """Expected and measured usage (percent) of a broker once all moves had landed. error: their difference (points)."""

    broker: str
    expected: float
    measured: float
    error: float
    disturbed: bool = False
    """Whether a later decision moved a bundle from or to the broker before the usage was measured."""


class Threshold(Status):
    """The usage from which the shedder relieves a broker."""

    value: float
    """Percent."""
    average: str = ""
    """The average that is compared with it; empty for usage as measured."""
    text: str
    """How it is computed."""
    field: str
    """The field of the policy that sets it."""


class CapUsage(Status):
    """Limits of the policy, and how much of them is used."""

    per_cycle: int
    per_broker: int
    per_hour: int
    last_hour: int
    """Moves within the hour before the decision."""
    free_at: float | None = None
    """When the oldest move of `last_hour` no longer counts (epoch seconds); None while `per_hour` allows more moves."""
    cool_down: float
    """Seconds."""


class DecisionRecord(Status):
    """One decision of one policy."""

    version: int = RECORD_VERSION
    at: float
    """Evaluation time of the samples, epoch seconds."""
    policy: str
    generation: int
    mode: str
    interval: float
    """Seconds from one decision to the next."""
    window: float
    """Seconds over which rates are computed."""
    outcome: Reason
    refusal: Held | None = None
    """Why the whole cycle did nothing."""
    restraint: Held | None = None
    """Why its plan was only shown and not carried out."""
    shedder: str
    placement: str
    parameters: Mapping[str, Any] = Field(default_factory=dict)
    """Parameters of the shedder, as in the policy."""
    line: Threshold | None = None
    caps: CapUsage
    brokers: tuple[BrokerView, ...] = ()
    moves: tuple[MoveView, ...] = ()
    splits: tuple[SplitView, ...] = ()
    stays: tuple[StayView, ...] = ()
    held_back: tuple[Held, ...] = ()
    cause: str = ""
    """Why the shedder moves bundles, with figures; empty if the reasons of the moves say it all."""
    predictions: PredictionScore | None = None
    """How good the shedder's last predictions were; None if it makes none."""
    manual_moves: tuple[ManualMove, ...] = Field((), validation_alias=AliasChoices("manualMoves", "byHand"))
    """Moves by people or Git since the previous decision, oldest first."""
    results: tuple[MeasuredOutcome, ...] = ()
    measured_at: float | None = None
    """When `results` were measured (epoch seconds)."""

    def broker(self, name: str) -> BrokerView | None:
        """The view of a broker; None when the decision did not include it."""
        return next((view for view in self.brokers if view.name == name), None)

    def moves_of(self, broker: str) -> tuple[list[MoveView], list[MoveView]]:
        """The moves from a broker, and the moves to it."""
        leave = [move for move in self.moves if move.source == broker]
        return leave, [move for move in self.moves if move.destination == broker]

    def move_of(self, name: str) -> MoveView | None:
        """The move of the Bundle object `name`."""
        return next((move for move in self.moves if move.name == name), None)

    def manual_move_of(self, name: str) -> ManualMove | None:
        """The last manual move of the Bundle object `name` between the previous decision and this one."""
        return next((move for move in reversed(self.manual_moves) if move.name == name), None)

    def split_of(self, name: str) -> SplitView | None:
        """The split of the Bundle object `name`."""
        return next((split for split in self.splits if split.name == name), None)

    def stay_of(self, name: str) -> StayView | None:
        """Why the Bundle object `name` stays; None when it moves, or was not recorded: only large bundles are."""
        return next((stay for stay in self.stays if stay.name == name), None)

    @property
    def verdicts(self) -> tuple[object, ...]:
        """Everything the decision says, without figures, to compare it with another one."""
        held = [found and (found.reason, found.detail) for found in (self.refusal, self.restraint)]
        brokers = [(v.name, v.trusted, v.gives.reason, v.takes and v.takes.reason) for v in self.brokers]
        stays = [(stay.name, stay.reason) for stay in self.stays if stay.reason in _OF_ITS_OWN]
        acts = [(move.name, move.reason) for move in self.moves] + [(split.name, split.reason) for split in self.splits]
        return self.generation, self.outcome, held, sorted(brokers, key=repr), sorted(stays), sorted(acts)

    def says_the_same(self, before: DecisionRecord) -> bool:
        """Whether this decision repeats `before`: nothing moved, the same verdicts, and usage within `STEADY`."""
        if self.manual_moves or any(move.written for move in self.moves) or self.verdicts != before.verdicts:
            return False
        if self.predictions != before.predictions:
            return False
        usage = {view.name: view.usage or 0.0 for view in before.brokers}
        return all(abs((view.usage or 0.0) - usage.get(view.name, 0.0)) < STEADY for view in self.brokers)

    def to_json(self) -> str:
        """The record as stored, without fields at their default."""
        return self.model_dump_json(by_alias=True, exclude_defaults=True)

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """The record that `to_json` wrote. Raises `UnreadableContentError`."""
        try:
            found = cls.model_validate_json(text)
        except ValidationError as error:
            raise UnreadableContentError(f"it is not a decision record ({error!s:.200})") from error
        check_version("it", found.version, known=RECORD_VERSION)
        return found


_OF_ITS_OWN = frozenset({Reason.PINNED, Reason.EXCLUDED, Reason.NO_LOAD_DATA, Reason.SOLE_BUNDLE})
"""Permanent reasons why a bundle stays. They don't depend on the size of other bundles."""
