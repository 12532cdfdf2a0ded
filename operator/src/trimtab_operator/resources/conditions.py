"""All conditions of all kinds: their types, the reasons that only they have, and what these mean.

Writers take types and reasons from here, and the reference of reasons shows `CONDITIONS` and `REASONS`. A condition may
also have a reason of the common vocabulary (`trimtab_strategies.model.Reason`), of `Readiness` or of `ProposalState`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum


class PolicyCondition(StrEnum):
    """Types of a BalancingPolicy's conditions."""

    READY = "Ready"
    VALID = "Valid"
    DATA_TRUSTED = "DataTrusted"
    BALANCED = "Balanced"
    ACTING = "Acting"
    LED = "Led"
    PROPOSAL_READY = "ProposalReady"
    REBALANCING = "Rebalancing"
    COMMAND_TAKEN = "CommandTaken"
    RIGHT_SIZED = "RightSized"
    HISTORY_WRITABLE = "HistoryWritable"
    FLAPPING = "Flapping"
    COMPETING_BALANCER = "CompetingBalancer"
    LINKED = "Linked"
    PULSAR_BALANCER_DISABLED = "PulsarBalancerDisabled"


class BrokerCondition(StrEnum):
    """Types of a Broker's conditions."""

    DRAINED = "Drained"


class SplitCondition(StrEnum):
    """Types of a BundleSplit's conditions."""

    ACCEPTED = "Accepted"
    COMPLETE = "Complete"


class TopicNamespaceCondition(StrEnum):
    """Types of a TopicNamespace's conditions."""

    READY = "Ready"
    VALID = "Valid"


ConditionType = PolicyCondition | BrokerCondition | SplitCondition | TopicNamespaceCondition
"""The only types that Trimtab writes. Bundles have none: there may be 60,000."""


class ConditionReason(StrEnum):
    """Reasons that only conditions have."""

    CYCLED = "Cycled"
    VALID = "Valid"
    TRUSTED = "Trusted"
    ACTING = "Acting"
    ELECTED = "Elected"
    TAKEN = "Taken"
    REFUSED = "Refused"
    RIGHT_SIZED = "RightSized"
    WRITTEN = "Written"
    NOT_WRITTEN = "NotWritten"
    SETTLED = "Settled"
    ALONE = "Alone"
    LINKED = "Linked"
    NOT_ASKED = "NotAsked"
    PULSAR_BALANCER_DISABLED = "PulsarBalancerDisabled"
    NOT_VERIFIED = "NotVerified"
    DRAINING = "Draining"
    ACCEPTED = "Accepted"
    COMPLETED = "Completed"


_R = ConditionReason


REASONS: Mapping[ConditionReason, str] = {
    _R.CYCLED: "the last cycle ran",
    _R.VALID: "the spec can be followed as written",
    _R.TRUSTED: "the metrics of all brokers are trusted",
    _R.ACTING: "plans are carried out, within limits",
    _R.ELECTED: "an operator leads; the message names it and its epoch",
    _R.TAKEN: "the command in the annotation was carried out",
    _R.REFUSED: "the command in the annotation was refused; the message says why",
    _R.RIGHT_SIZED: "the brokers are used about as much as `spec.advice` asks for",
    _R.WRITTEN: "the last cycle was written to the history",
    _R.NOT_WRITTEN: "the last cycle could not be written to the history",
    _R.SETTLED: "no bundle flaps",
    _R.ALONE: "no one undoes the policy's moves",
    _R.LINKED: "the Pulsar cluster answers",
    _R.NOT_ASKED: "no request was sent to the Pulsar cluster yet",
    _R.PULSAR_BALANCER_DISABLED: "Pulsar's own balancer is off on all brokers",
    _R.NOT_VERIFIED: "the configuration of a broker could not be read",
    _R.DRAINING: "the policy is moving the rest away",
    _R.ACCEPTED: "the split can be done, and has begun",
    _R.COMPLETED: "the children have taken the bundle's place",
}
"""What each reason means."""


@dataclass(frozen=True, slots=True)
class ConditionMeaning:
    """What one condition means while it is True and while it is False.

    reasons: those of `ConditionReason` that it may have.
    """

    kind: str
    type: ConditionType
    true: str
    false: str
    reasons: tuple[ConditionReason, ...] = ()


def _policy(type_: PolicyCondition, true: str, false: str, *reasons: ConditionReason) -> ConditionMeaning:
    return ConditionMeaning("BalancingPolicy", type_, true, false, reasons)


_P = PolicyCondition


CONDITIONS: tuple[ConditionMeaning, ...] = (
    _policy(_P.READY, "the last cycle could be run", "it was refused; reason and message say why", _R.CYCLED),
    _policy(
        _P.VALID,
        "it can be run as written",
        "something in it can't be kept to; nothing is decided",
        _R.VALID,
    ),
    _policy(
        _P.DATA_TRUSTED,
        "every broker's metrics are trusted",
        "some are not: those brokers neither give nor take",
        _R.TRUSTED,
    ),
    _policy(_P.BALANCED, "no broker is far enough from the others", "something should move, or can't"),
    _policy(_P.ACTING, "plans are carried out", "they are only shown: mode, pause, window, brake", _R.ACTING),
    _policy(_P.LED, "an operator leads; it names it and its epoch", "-", _R.ELECTED),
    _policy(_P.PROPOSAL_READY, "mode `Approve`: a proposal waits for a person", "none waits"),
    _policy(_P.REBALANCING, "an approved proposal is carried out", "none is under way"),
    _policy(
        _P.COMMAND_TAKEN,
        "the last annotation, within the hour, was obeyed",
        "it was refused; the message says why",
        _R.TAKEN,
        _R.REFUSED,
    ),
    _policy(
        _P.RIGHT_SIZED,
        "the number of brokers fits the load",
        "more or fewer would fit it better",
        _R.RIGHT_SIZED,
    ),
    _policy(
        _P.HISTORY_WRITABLE,
        "the last cycle is in the history",
        "it is not; averages go on in memory",
        _R.WRITTEN,
        _R.NOT_WRITTEN,
    ),
    _policy(_P.FLAPPING, "bundles that came back again and again are left alone", "none is", _R.SETTLED),
    _policy(
        _P.COMPETING_BALANCER,
        "another client undoes its moves: it only advises",
        "no one does",
        _R.ALONE,
    ),
    _policy(
        _P.LINKED,
        "actuator `Pulsar`: the cluster answers",
        "it does not; nothing is moved",
        _R.LINKED,
        _R.NOT_ASKED,
    ),
    _policy(
        _P.PULSAR_BALANCER_DISABLED,
        "actuator `Pulsar`: its own shedding and automatic split are off",
        "one is on, or could not be read; nothing is moved",
        _R.PULSAR_BALANCER_DISABLED,
        _R.NOT_VERIFIED,
    ),
    ConditionMeaning(
        "Broker",
        BrokerCondition.DRAINED,
        "closed, and owns nothing any more",
        "it still has bundles; the message says why",
        (_R.DRAINING,),
    ),
    ConditionMeaning(
        "BundleSplit",
        SplitCondition.ACCEPTED,
        "it can be done",
        "it can't: a person's mistake, or a cap",
        (_R.ACCEPTED,),
    ),
    ConditionMeaning(
        "BundleSplit",
        SplitCondition.COMPLETE,
        "its children have taken the bundle's place",
        "it failed; the bundle is whole",
        (_R.COMPLETED,),
    ),
    ConditionMeaning(
        "TopicNamespace",
        TopicNamespaceCondition.READY,
        "all of its bundles exist",
        "they do not, or Pulsar no longer has it",
    ),
    ConditionMeaning(
        "TopicNamespace",
        TopicNamespaceCondition.VALID,
        "its isolation can be kept to",
        "it can't, until it is mended",
        (_R.VALID,),
    ),
)
"""All conditions, by kind."""
