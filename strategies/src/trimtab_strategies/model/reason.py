"""Why something was done or not done: one closed vocabulary.

Log fields, metric labels, condition reasons and report columns all use these words. They are Pulsar's own words
(`UnloadDecision.Reason`) where Pulsar has one.
"""

from __future__ import annotations

from enum import StrEnum


class Reason(StrEnum):
    """One word per cause. Each member's comment explains it to an engineer on call."""

    # why a bundle moves
    OVERLOADED = "Overloaded"  # the source carries more than the strategy allows
    UNDERLOADED = "Underloaded"  # the destination carries much less than the others
    UNOWNED = "Unowned"  # the bundle has no owner: an assignment, not balancing
    BROKER_LOST = "BrokerLost"  # the owner is gone: an assignment, not balancing
    ADMIN = "Admin"  # a person or Git requested it
    APPROVED = "Approved"  # it is in a saved plan that a person approved
    ADOPTED = "Adopted"  # the owner changed without a request, and the desired owner follows it
    FAILED_OVER = "FailedOver"  # its broker was away, and another one took it: an assignment, not balancing
    FOUND = "Found"  # the owner when the bundle was first seen: nothing moved
    RESTORED = "Restored"  # a pinned bundle left its owner, and moves back
    DRAINED = "Drained"  # the source is being drained
    ROLLING_OUT = "RollingOut"  # the source restarts, or is about to; as a reason not to move: brokers are restarting

    # why a bundle is split
    TOPICS = "Topics"  # it has more topics than a bundle may have
    SESSIONS = "Sessions"  # it has more producers and consumers than a bundle may have
    MSG_RATE = "MsgRate"  # it carries more messages a second than a bundle may
    BANDWIDTH = "Bandwidth"  # it carries more bytes a second than a bundle may
    NO_ROOM = "NoRoom"  # no broker has room for the whole bundle

    # why nothing was split
    HOT_TOPIC = "HotTopic"  # a single topic causes the load: a split does not help, add partitions
    TOO_FEW_TOPICS = "TooFewTopics"  # too few topics for a split to help
    TOO_NARROW = "TooNarrow"  # its range is too narrow to be split again
    MAX_BUNDLES = "MaxBundles"  # the namespace has as many bundles as it may have
    SPLIT_CAP = "SplitCap"  # the policy's limit of splits per cycle is reached
    SPLIT_BUDGET = "SplitBudget"  # the namespace has used up its split budget for now

    # why a broker may not have a bundle
    ISOLATION = "Isolation"  # the namespace's isolation policy names other brokers
    ANTI_AFFINITY = "AntiAffinity"  # it has more of the namespace's group than another broker or failure domain
    TOPIC_LIMIT = "TopicLimit"  # it has as many topics as a broker may have
    VERSION = "Version"  # it runs an older version than another broker
    LOAD_MANAGER = "LoadManager"  # it runs another load manager
    UNEVEN = "Uneven"  # it has more bundles of the namespace than another broker
    ZONE = "Zone"  # it is outside the namespace's zone, and brokers in that zone have room

    # why nothing moved: the strategy
    BALANCED = "Balanced"  # no broker is far enough from the others
    HIT_COUNT = "HitCount"  # the reason to act has not lasted for enough cycles
    AVERAGING = "Averaging"  # brokers differ now, but not for long enough, or not yet in the strategy's average
    COOL_DOWN = "CoolDown"  # the bundle moved too recently to be moved again
    NO_BUNDLES = "NoBundles"  # the broker has no bundle that may leave it
    SOLE_BUNDLE = "SoleBundle"  # the broker is overloaded by a single bundle: split it or add partitions
    NO_BROKERS = "NoBrokers"  # fewer than two brokers can take part
    NO_CANDIDATE = "NoCandidate"  # no broker may receive the bundle
    NOT_CHOSEN = "NotChosen"  # the strategy chose another bundle, or another broker
    SAME_BROKER = "SameBroker"  # the placement chose the broker that owns it already
    BELOW_MINIMUM = "BelowMinimum"  # too little traffic to be worth a move

    # why nothing moved: data
    NO_LOAD_DATA = "NoLoadData"  # a broker or bundle was never measured
    OUT_DATED_DATA = "OutDatedData"  # the newest sample is too old
    UNTRUSTED = "Untrusted"  # samples arrived but can't be right (NaN, infinite, negative, above the limit)
    PARTIAL_DATA = "PartialData"  # the source answered, but not for the whole cluster
    SOURCE_UNAVAILABLE = "SourceUnavailable"  # the source did not answer at all

    # why nothing moved: the guard
    PAUSED = "Paused"  # the policy is paused, by its spec or by an annotation
    DRY_RUN = "DryRun"  # the plan is shown, not carried out
    NOT_APPROVED = "NotApproved"  # the plan is proposed, and not approved yet
    PINNED = "Pinned"  # a person pinned the bundle to its owner
    OUTSIDE_WINDOW = "OutsideWindow"  # the policy's windows do not let it act automatically now
    COMPETING_BALANCER = "CompetingBalancer"  # another balancer reverts the moves: for a while plans are only shown
    PULSAR_BALANCER_ACTIVE = "PulsarBalancerActive"  # Pulsar's own shedding or automatic split must be off first
    IN_FLIGHT = "InFlight"  # an earlier move of this bundle, or an approved plan, has not ended
    SPLITTING = "Splitting"  # the bundle is being split
    CYCLE_CAP = "CycleCap"  # the policy's limit of moves per cycle is reached
    BROKER_CAP = "BrokerCap"  # the policy's limit of moves per broker and cycle is reached
    HOUR_CAP = "HourCap"  # the policy's limit of moves per hour is reached
    DISRUPTION_BUDGET = "DisruptionBudget"  # the budget of the policy or of the bundle's namespace has too little left
    LAST_PRIORITY = "LastPriority"  # its namespace has the priority Last, and other bundles can move
    UNSCHEDULABLE = "Unschedulable"  # the broker takes no bundles
    RAMPING_UP = "RampingUp"  # the broker started lately, and receives fewer bundles per cycle
    NOT_READY = "NotReady"  # the broker is not ready
    MASS_FAILURE = "MassFailure"  # so many brokers are missing that moves would do harm
    STORE_NOT_SYNCED = "StoreNotSynced"  # the operator's data about the bundles is incomplete or old

    # how a move ended
    LANDED = "Landed"  # the destination confirmed it
    CONFLICT = "Conflict"  # another client changed the bundle first
    DEPOSED = "Deposed"  # a leader with a higher epoch has decided: this one has to end
    TIMED_OUT = "TimedOut"  # the destination did not confirm it in time
    ELSEWHERE = "Elsewhere"  # the bundle was released, and another broker than the destination took it
    SUPERSEDED = "Superseded"  # a newer desired owner replaced it
    DEADLINE = "Deadline"  # the cycle ran out of time
    UNKNOWN_BUNDLE = "UnknownBundle"  # the name belongs to no bundle
    INVALID_SPLIT = "InvalidSplit"  # the bundle can't be split as requested
    OVERLAP = "Overlap"  # the bundle overlaps another one, which has these hashes already
    UNKNOWN_BROKER = "UnknownBroker"  # the name belongs to no broker
    INVALID_POLICY = "InvalidPolicy"  # the policy can't be run as written
    EXCLUDED = "Excluded"  # the namespace is left out of balancing
    UNKNOWN = "Unknown"  # Pulsar's name for any other failure
    TOO_SMALL = "TooSmall"  # the cluster needs more brokers to serve its load at the target usage
    TOO_LARGE = "TooLarge"  # fewer brokers could serve the load at the target usage
    INTERNAL_ERROR = "InternalError"  # a request to the API server failed, or Trimtab has a defect; the log says which

    @classmethod
    def _missing_(cls, value: object) -> Reason | None:
        """Accept a name that an older version stored."""
        return cls(_FORMER[value]) if isinstance(value, str) and value in _FORMER else None


_FORMER = {"Contested": "CompetingBalancer", "TwoHands": "PulsarBalancerActive", "Quarantined": "CoolDown"}
"""Old names in stored decision records, proposals and progress -> today's names, or the nearest."""


SPLIT_REASONS = frozenset({Reason.TOPICS, Reason.SESSIONS, Reason.MSG_RATE, Reason.BANDWIDTH, Reason.NO_ROOM})
"""Why a bundle is split. A child that moves to another broker keeps the reason of its split."""
