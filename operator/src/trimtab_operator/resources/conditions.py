"""The types of all status conditions, and the reasons that only conditions use.

All code that writes a condition takes its type and reason from here. ``docs/reference/reasons.md`` says what they mean.
A condition may also use a reason from `trimtab_strategies.model.Reason`, `Readiness` or `ProposalState`.
"""

from __future__ import annotations

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
    COMPETING_BALANCER = "CompetingBalancer"
    LINKED = "Linked"
    PULSAR_BALANCER_DISABLED = "PulsarBalancerDisabled"


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
    INVALID_SPEC = "InvalidSpec"
    TRUSTED = "Trusted"
    ACTING = "Acting"
    ELECTED = "Elected"
    TAKEN = "Taken"
    REFUSED = "Refused"
    RIGHT_SIZED = "RightSized"
    WRITTEN = "Written"
    NOT_WRITTEN = "NotWritten"
    ALONE = "Alone"
    OTHER_LEADER = "OtherLeader"
    LINKED = "Linked"
    NOT_ASKED = "NotAsked"
    PULSAR_BALANCER_DISABLED = "PulsarBalancerDisabled"
    NOT_VERIFIED = "NotVerified"
    SERVING = "Serving"
    DRAINING = "Draining"
    ACCEPTED = "Accepted"
    COMPLETED = "Completed"
