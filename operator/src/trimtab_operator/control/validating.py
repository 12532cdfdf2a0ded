"""Is a move that a person approved still possible? Asked for each move at the moment it is to be written.

One table of questions, each a function that returns why not, or None. The first that objects names the reason. A plan
made within the last cycle needs none of this: the guard has just looked at the same picture.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from trimtab_operator.cluster.brokers import BrokerRecord
from trimtab_operator.cluster.bundles import BundleRecord
from trimtab_operator.control.context import Context
from trimtab_operator.control.one_hand import two_hands
from trimtab_operator.control.ruling import EVACUATIONS
from trimtab_operator.control.settings import Settings
from trimtab_operator.resources.bundle import BundleState
from trimtab_strategies.constraints import mass_failure
from trimtab_strategies.model import HeldBack, Move, Reason
from trimtab_strategies.selection.isolation import IsolationRules


@dataclass(frozen=True, slots=True)
class Scene:
    """What a move is judged by.

    brokers: those that the policy looks after. quarantine: names of the bundles that it leaves alone.
    moved_last_hour: moves by the policy, those of this execution included.
    trusted: what the last measurement said of each broker it knew.
    closed: names of brokers that take nothing, whatever their spec says.
    """

    context: Context
    settings: Settings
    brokers: Mapping[str, BrokerRecord]
    moved_last_hour: int
    trusted: Mapping[str, bool] = field(default_factory=dict)
    quarantine: Collection[str] = ()
    closed: Collection[str] = ()


Why = tuple[Reason, str]
Question = Callable[[Move, BundleRecord, Scene], Why | None]


def obstacle(move: Move, name: str, scene: Scene) -> HeldBack | None:
    """Why `move` of the Bundle object `name` must not be written now; None when it may."""
    record = scene.context.stores.bundles.items.get(name)
    if record is None:
        return HeldBack(name, Reason.CONFLICT, "the bundle was deleted")
    for question in QUESTIONS:
        if (why := question(move, record, scene)) is not None:
            return HeldBack(name, *why)
    return None


def _brake(_move: Move, _record: BundleRecord, scene: Scene) -> Why | None:
    gone, total = sum(not broker.ready for broker in scene.brokers.values()), len(scene.brokers)
    if mass_failure(gone, total, scene.settings.limits):
        return Reason.MASS_FAILURE, f"{gone} of {total} brokers are not ready"
    return None


def _hand(move: Move, _record: BundleRecord, scene: Scene) -> Why | None:
    why = "" if move.reason in EVACUATIONS else two_hands(scene.context.link)
    return (Reason.TWO_HANDS, why) if why else None


def _hour(_move: Move, _record: BundleRecord, scene: Scene) -> Why | None:
    if scene.moved_last_hour >= (cap := scene.settings.limits.max_moves_per_hour):
        return Reason.HOUR_CAP, f"limits.maxMovesPerHour is {cap}, and so many were made"
    return None


def _owner(move: Move, record: BundleRecord, scene: Scene) -> Why | None:
    if record.open_wish and record.owner != record.status_owner:
        return Reason.IN_FLIGHT, f"it is on its way to {record.owner}"
    if move.source and move.source not in scene.brokers:
        return Reason.UNKNOWN_BROKER, f"broker {move.source} is gone, or not the policy's any more"
    if (owner := record.status_owner) != move.source or record.owner not in {"", owner}:
        return Reason.CONFLICT, f"it is on {owner or 'no broker'} now, and not on {move.source or 'none'} any more"
    return None


def _bundle(move: Move, record: BundleRecord, scene: Scene) -> Why | None:
    if record.pinned:
        return Reason.PINNED, f"a person pinned it to {record.owner}"
    if record.state == BundleState.SPLITTING:
        return Reason.SPLITTING, "it is being divided"
    if record.name in scene.quarantine and move.reason not in EVACUATIONS:
        return Reason.QUARANTINED, "it came back from where it was moved to, and is left alone"
    return None


def _namespace(move: Move, record: BundleRecord, scene: Scene) -> Why | None:
    space = scene.context.stores.topic_namespaces.items.get(record.topic_namespace)
    if space is None or move.destination == move.source:  # a split may do what a move may not: its children stay
        return None
    if not space.policy.unload:
        return Reason.EXCLUDED, f"TopicNamespace {space.name} has balanced: false"
    hosts = IsolationRules((move.destination,), {space.full_name: space.policy}).of(space.full_name)
    if hosts is not None and not (hosts.primary | hosts.secondary).any():
        return Reason.ISOLATION, f"the isolation of TopicNamespace {space.name} names other brokers"
    return None


def _destination(move: Move, _record: BundleRecord, scene: Scene) -> Why | None:
    broker = scene.brokers.get(move.destination)
    if broker is None:
        return Reason.UNKNOWN_BROKER, f"broker {move.destination} is gone, or not the policy's any more"
    if not broker.ready:
        return Reason.NOT_READY, f"broker {move.destination} is not ready"
    if not broker.schedulable:
        return Reason.UNSCHEDULABLE, f"broker {move.destination} takes no bundles (spec.schedulable)"
    if broker.name in scene.closed:
        return Reason.UNSCHEDULABLE, f"the pod of broker {move.destination} is ending, or its node takes no pods"
    if not scene.trusted.get(move.destination, True):
        return Reason.UNTRUSTED, f"the metrics of broker {move.destination} can't be believed now"
    return None


QUESTIONS: tuple[Question, ...] = (_brake, _hand, _hour, _owner, _bundle, _namespace, _destination)
"""Asked in this order."""
