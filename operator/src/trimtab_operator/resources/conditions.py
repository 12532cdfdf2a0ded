"""All status conditions: their types, the reasons that only conditions use, and what both mean.

All code that writes a condition takes its type and reason from here. The reference page of reasons is generated from
`CONDITIONS` and `REASONS`. A condition may also use a reason from `trimtab_strategies.model.Reason`, `Readiness` or
`ProposalState`.
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
    SHADOW_BETTER = "ShadowBetter"


class BrokerCondition(StrEnum):
    """Types of a Broker's conditions."""

    READY = "Ready"
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
"""All condition types that Trimtab writes. Bundles have no conditions, because there may be 60,000 of them."""


class ConditionReason(StrEnum):
    """Reasons that only conditions use."""

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
    BETTER = "Better"
    NOT_BETTER = "NotBetter"
    TOO_EARLY = "TooEarly"
    SERVING = "Serving"
    DRAINING = "Draining"
    ACCEPTED = "Accepted"
    COMPLETED = "Completed"


_R = ConditionReason


REASONS: Mapping[ConditionReason, str] = {
    _R.CYCLED: "the last cycle ran",
    _R.VALID: "the spec is valid",
    _R.TRUSTED: "the metrics of all brokers are trusted",
    _R.ACTING: "plans are carried out, within limits",
    _R.ELECTED: "an operator is the leader; the message names it and its epoch",
    _R.TAKEN: "the command in the annotation was carried out",
    _R.REFUSED: "the command in the annotation was refused; the message says why",
    _R.RIGHT_SIZED: "the usage of the brokers is close to the target of `spec.advice`",
    _R.WRITTEN: "the last cycle was written to the history",
    _R.NOT_WRITTEN: "the last cycle could not be written to the history",
    _R.SETTLED: "no bundle is flapping",
    _R.ALONE: "no other client reverts the policy's moves",
    _R.LINKED: "the Pulsar cluster answers",
    _R.NOT_ASKED: "no request has been sent to the Pulsar cluster yet",
    _R.PULSAR_BALANCER_DISABLED: "Pulsar's own balancer is off on all brokers",
    _R.NOT_VERIFIED: "the configuration of a broker could not be read",
    _R.BETTER: "over at least seven whole days, the shadow cost less per day than the acting policy, beyond noise",
    _R.NOT_BETTER: "over at least seven whole days, the shadow cost as much, more, or not clearly less",
    _R.TOO_EARLY: "fewer than seven whole days were compared",
    _R.SERVING: "the broker can own bundles",
    _R.DRAINING: "the policy is moving the remaining bundles away",
    _R.ACCEPTED: "the split is possible, and has started",
    _R.COMPLETED: "the children have replaced the bundle",
}
"""What each reason means."""


@dataclass(frozen=True, slots=True)
class ConditionMeaning:
    """What one condition means while it is True and while it is False.

    reasons: the members of `ConditionReason` that it may have.
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
    _policy(_P.READY, "the last cycle ran", "the last cycle was refused; reason and message say why", _R.CYCLED),
    _policy(_P.VALID, "the spec is valid", "part of the spec is invalid; the policy makes no decisions", _R.VALID),
    _policy(
        _P.DATA_TRUSTED,
        "the metrics of all brokers are trusted",
        "the metrics of some brokers are not trusted; no bundle moves from or to these brokers",
        _R.TRUSTED,
    ),
    _policy(_P.BALANCED, "the shedder finds no broker to relieve", "a bundle should move, whether or not it can"),
    _policy(
        _P.ACTING,
        "plans are carried out",
        "plans are only shown, because of the mode, a pause, a window or a brake",
        _R.ACTING,
    ),
    _policy(_P.LED, "an operator is the leader; the message names it and its epoch", "-", _R.ELECTED),
    _policy(_P.PROPOSAL_READY, "mode `Approve`: a proposal waits for approval", "no proposal waits for approval"),
    _policy(_P.REBALANCING, "an approved proposal is being carried out", "no proposal is being carried out"),
    _policy(
        _P.COMMAND_TAKEN,
        "the last command in an annotation was carried out, less than an hour ago",
        "the last command was refused; the message says why",
        _R.TAKEN,
        _R.REFUSED,
    ),
    _policy(
        _P.RIGHT_SIZED,
        "the number of brokers fits the load",
        "more or fewer brokers would fit the load better",
        _R.RIGHT_SIZED,
    ),
    _policy(
        _P.HISTORY_WRITABLE,
        "the last cycle was written to the history",
        "the last cycle could not be written; averages continue in memory",
        _R.WRITTEN,
        _R.NOT_WRITTEN,
    ),
    _policy(
        _P.FLAPPING,
        "some bundles returned repeatedly after moves; they are quarantined",
        "no bundle is flapping",
        _R.SETTLED,
    ),
    _policy(
        _P.COMPETING_BALANCER,
        "another client reverts the policy's moves; the policy only shows plans",
        "no other client reverts its moves",
        _R.ALONE,
    ),
    _policy(
        _P.LINKED,
        "with `spec.pulsar`: the cluster answers",
        "the cluster does not answer; no bundle moves",
        _R.LINKED,
        _R.NOT_ASKED,
    ),
    _policy(
        _P.PULSAR_BALANCER_DISABLED,
        "with `spec.pulsar`: Pulsar's own shedding and automatic split are off",
        "one of the two is on. Unknown: a setting can't be read. In both cases plans are only shown, except for drains",
        _R.PULSAR_BALANCER_DISABLED,
        _R.NOT_VERIFIED,
    ),
    _policy(
        _P.SHADOW_BETTER,
        "mode `Shadow`: the policy would have been better than the acting one, beyond noise",
        "it would not, or not clearly. Unknown: too few days were compared, or there is no acting policy",
        _R.BETTER,
        _R.NOT_BETTER,
        _R.TOO_EARLY,
    ),
    ConditionMeaning(
        "Broker",
        BrokerCondition.READY,
        "its pod, if any, is ready and, with `spec.pulsar`, Pulsar lists the broker",
        "it serves no bundles; the message says what is missing",
        (_R.SERVING,),
    ),
    ConditionMeaning(
        "Broker",
        BrokerCondition.DRAINED,
        "the broker takes no bundles, and owns none",
        "the broker still owns bundles; the message says why",
        (_R.DRAINING,),
    ),
    ConditionMeaning(
        "BundleSplit",
        SplitCondition.ACCEPTED,
        "the split is possible",
        "the split is not possible, because of a mistake in the request or a limit",
        (_R.ACCEPTED,),
    ),
    ConditionMeaning(
        "BundleSplit",
        SplitCondition.COMPLETE,
        "the children have replaced the bundle",
        "the split failed; the bundle is unchanged",
        (_R.COMPLETED,),
    ),
    ConditionMeaning(
        "TopicNamespace",
        TopicNamespaceCondition.READY,
        "the bundles cover the hash ring; with `spec.pulsar`: Pulsar has the namespace",
        "the ring has a gap or an overlap, another TopicNamespace has the bundles, or Pulsar lacks the namespace",
    ),
    ConditionMeaning(
        "TopicNamespace",
        TopicNamespaceCondition.VALID,
        "isolation and zone can be applied",
        "isolation or zone can't be applied; the message says why",
        (_R.VALID,),
    ),
)
"""All conditions, by kind of object."""
