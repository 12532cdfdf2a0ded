"""`DecisionRecord`: one decision as people may ask about it later, whether it moved something or not.

A record is plain data, camelCase in JSON like everything else that people read of Trimtab, and versioned. Percentages
are of a broker's limit, 0-100 and above; None is unknown. `decision_log.build` makes it, `decision_log.outcome` adds
what became of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

from pydantic import Field, ValidationError

from trimtab_operator.kube.config_map_store import UnreadableContentError, check_version
from trimtab_operator.resources.common import Status
from trimtab_strategies.model import Reason

RECORD_VERSION = 1
"""Of the form of a record; another one is not read."""

STEADY = 5.0
"""Percent points of usage up to which a broker counts as no different from before."""


class Held(Status):
    """Something that was not done, and why. subject: a broker or bundle, empty the whole cycle."""

    subject: str = ""
    reason: Reason
    detail: str = ""
    count: int = 1


class Why(Status):
    """A reason with its figures."""

    reason: Reason
    detail: str = ""


class BrokerView(Status):
    """How one broker looked, and what was made of that."""

    name: str
    usage: float | None = None
    """Weighted usage: of the resources that count the most used one, percent."""
    expected: float | None = None
    """The same once everything planned has landed."""
    resource: str = ""
    """The resource that this is."""
    resources: tuple[float | None, ...] = ()
    """Percent of each resource, in the order of `RESOURCES`."""
    trusted: bool = True
    missing: tuple[str, ...] = ()
    """Resources of which nothing is known."""
    averages: Mapping[str, float] = Field(default_factory=dict)
    """What the shedder remembers of it, by its own words."""
    target_weight: float | None = None
    carried: float | None = None
    bundles: int | None = None
    gives: Why
    """Why it gives bundles away, or keeps them."""
    takes: Why | None = None
    """Why it may be given none; None: it may."""


class Alternative(Status):
    """A broker that did not get a bundle. after: weighted usage (percent) with the bundle."""

    broker: str
    reason: Reason
    after: float | None = None


class MoveView(Status):
    """One planned move, why other brokers did not get the bundle, and what became of it."""

    bundle: str
    """In Pulsar's spelling."""
    name: str
    """Of the Bundle object."""
    source: str
    destination: str
    reason: Reason
    load: float | None = None
    """Percent points of its source's CPU."""
    before: float | None = None
    """Weighted usage (percent) of the source when it was this move's turn."""
    after: float | None = None
    """Weighted usage (percent) of the destination with the bundle."""
    rejected: tuple[Alternative, ...] = ()
    """The least used of the other brokers."""
    others: Mapping[Reason, tuple[str, ...]] = Field(default_factory=dict)
    """The rest of the brokers, by reason."""
    written: bool = False
    """Whether it was written by the cycle that planned it."""
    outcome: Reason | None = None
    """How it ended, or why it was not written; None while it is under way."""
    detail: str = ""
    ended: float | None = None
    """When that was first seen (epoch seconds)."""

    @property
    def begun(self) -> bool:
        """Whether it was carried out, or begun: by its own cycle, or once a person approved it."""
        return self.written or self.outcome is Reason.LANDED

    def against(self, broker: str) -> Reason | None:
        """Why a broker did not get the bundle; None when it did, or that was not noted down."""
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
    """A bundle that stays. load: percent points of its broker's CPU."""

    bundle: str
    name: str
    broker: str
    reason: Reason
    load: float | None = None
    detail: str = ""


class ManualMove(Status):
    """A move that a person, or Git, asked for. name: of the Bundle object. at: when it landed, epoch seconds."""

    name: str
    source: str
    destination: str
    at: float


class MeasuredOutcome(Status):
    """What was measured on a broker once all had landed, against what was expected; percent, error in points."""

    broker: str
    expected: float
    measured: float
    error: float
    disturbed: bool = False
    """Whether a later decision moved something from or to it before it was measured."""


class Threshold(Status):
    """The usage at which the shedder would relieve a broker."""

    value: float
    """Percent."""
    average: str = ""
    """Which remembered average it is compared with; empty: usage as measured."""
    text: str
    """How it comes about."""
    field: str
    """The policy's field that sets it."""


class MoveCaps(Status):
    """What the policy allows, and what is left of it."""

    per_cycle: int
    per_broker: int
    per_hour: int
    last_hour: int
    """Moves within the hour before the decision."""
    free_at: float | None = None
    """When the oldest of them no longer counts (epoch seconds), if the hour's moves are spent."""
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
    """Seconds over which rates are taken."""
    outcome: Reason
    refusal: Held | None = None
    """Why the whole cycle did nothing."""
    restraint: Held | None = None
    """Why its plan was only shown."""
    shedder: str
    placement: str
    parameters: Mapping[str, Any] = Field(default_factory=dict)
    """Of the shedder, as the policy has them."""
    line: Threshold | None = None
    caps: MoveCaps
    brokers: tuple[BrokerView, ...] = ()
    moves: tuple[MoveView, ...] = ()
    splits: tuple[SplitView, ...] = ()
    stays: tuple[StayView, ...] = ()
    held_back: tuple[Held, ...] = ()
    by_hand: tuple[ManualMove, ...] = ()
    """What people, or Git, moved since the decision before, oldest first."""
    results: tuple[MeasuredOutcome, ...] = ()
    measured_at: float | None = None
    """When `results` were measured (epoch seconds)."""

    def broker(self, name: str) -> BrokerView | None:
        """How that broker looked; None when the decision did not know it."""
        return next((view for view in self.brokers if view.name == name), None)

    def moves_of(self, broker: str) -> tuple[list[MoveView], list[MoveView]]:
        """The moves that leave a broker, and those that come to it."""
        leave = [move for move in self.moves if move.source == broker]
        return leave, [move for move in self.moves if move.destination == broker]

    def move_of(self, name: str) -> MoveView | None:
        """The move of the Bundle object `name`."""
        return next((move for move in self.moves if move.name == name), None)

    def by_hand_of(self, name: str) -> ManualMove | None:
        """The last move by hand of the Bundle object `name` before this decision, and after the one before."""
        return next((move for move in reversed(self.by_hand) if move.name == name), None)

    def split_of(self, name: str) -> SplitView | None:
        """The split of the Bundle object `name`."""
        return next((split for split in self.splits if split.name == name), None)

    def stay_of(self, name: str) -> StayView | None:
        """Why the Bundle object `name` stays; None when it moves, or was not among the largest."""
        return next((stay for stay in self.stays if stay.name == name), None)

    @property
    def verdicts(self) -> tuple[object, ...]:
        """All it says, without figures: two decisions that say the same are no news."""
        held = [found and (found.reason, found.detail) for found in (self.refusal, self.restraint)]
        brokers = [(v.name, v.trusted, v.gives.reason, v.takes and v.takes.reason) for v in self.brokers]
        stays = [(stay.name, stay.reason) for stay in self.stays if stay.reason in _OF_ITS_OWN]
        acts = [(move.name, move.reason) for move in self.moves] + [(split.name, split.reason) for split in self.splits]
        return self.generation, self.outcome, held, sorted(brokers, key=repr), sorted(stays), sorted(acts)

    def says_the_same(self, before: DecisionRecord) -> bool:
        """Whether it is no news after `before`: nothing moved, the same verdicts, and usage within `STEADY`."""
        if self.by_hand or any(move.written for move in self.moves) or self.verdicts != before.verdicts:
            return False
        usage = {view.name: view.usage or 0.0 for view in before.brokers}
        return all(abs((view.usage or 0.0) - usage.get(view.name, 0.0)) < STEADY for view in self.brokers)

    def to_json(self) -> str:
        """As stored; what is at its default is left out."""
        return self.model_dump_json(by_alias=True, exclude_defaults=True)

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """Read back; raises `UnreadableContentError`."""
        try:
            found = cls.model_validate_json(text)
        except ValidationError as error:
            raise UnreadableContentError(f"it is no record of a decision ({error!s:.200})") from error
        check_version("it", found.version, known=RECORD_VERSION)
        return found


_OF_ITS_OWN = frozenset({Reason.PINNED, Reason.QUARANTINED, Reason.EXCLUDED, Reason.NO_LOAD_DATA, Reason.SOLE_BUNDLE})
"""Reasons for which a bundle stays that last, and have nothing to do with how large the other bundles are."""
