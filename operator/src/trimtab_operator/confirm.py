"""Withdraws moves that are late or can't land, and repairs owners, in every mode and at any load. Pure functions.

After the repairs, owners and desired owners agree, and each bundle has an owner.

Repairs are not balancing. They run often. If a bundle has a living owner and no pending move, a repair moves it only
in two cases: the bundle is pinned, or the owner's pod is being terminated.

| found | repair |
|---|---|
| an owner that changed, though no desired owner was written | it becomes the desired owner (`ADOPTED`) |
| the same, because the former owner was away | it becomes the desired owner (`FAILED_OVER`): that is no move |
| an owner of a pinned bundle that changed in this way | the bundle is moved back (`RESTORED`) |
| an owner where there was no desired owner before | it becomes the desired owner (`FOUND`), and nothing has moved |
| a pending move whose source is lost | the bundle is *freed*: `status.owner` is cleared; the destination can take it |
| a pending move that is overdue, or whose destination is lost, while the source serves | the move is withdrawn |
| a move as in the row above, to a destination without a Broker object | the move is withdrawn (`UNKNOWN_BROKER`) |
| no living owner, and no pending move | *unassigned*: the placement chooses (`UNOWNED`, `BROKER_LOST`, `TIMED_OUT`) |
| an owner whose pod is being terminated | *unassigned*, though it still serves (`ROLLING_OUT`); pinned bundles wait |
| a desired owner that a person wrote over an older one | its assignment gets the reason `ADMIN` |

A desired owner of a bundle that overlaps others is withdrawn by `BundleReconciler`, which knows the hash rings.

A Pulsar cluster assigns owners itself, and its brokers release their bundles before they exit. So if a Pulsar cluster
is connected, no bundle is freed or unassigned. A move that can't land is withdrawn: the desired owner becomes the
broker that serves the bundle, or empty.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field, replace

from trimtab_operator.kube.records import BundleRecord
from trimtab_strategies.model import Reason


@dataclass(frozen=True, slots=True)
class DesiredOwner:
    """A desired owner to write: `owner` for `bundle`, because of `reason`."""

    bundle: BundleRecord
    owner: str
    reason: Reason


@dataclass(slots=True)
class BundleRepairs:
    """Desired owners to write, bundles to free, and unassigned bundles to place, each with its reason.

    notes: bundles whose assignment still gives the reason of an older desired owner.
    """

    desired_owners: list[DesiredOwner] = field(default_factory=list)
    frees: list[BundleRecord] = field(default_factory=list)
    unassigned: list[tuple[BundleRecord, Reason]] = field(default_factory=list)
    notes: list[BundleRecord] = field(default_factory=list)

    @property
    def empty(self) -> bool:
        """Whether there is nothing to do."""
        return not (self.desired_owners or self.frees or self.unassigned or self.notes)


def repairs_of(
    bundles: Iterable[BundleRecord],
    lost: Collection[str],
    overdue: Collection[str],
    ending: Collection[str] = (),
    *,
    known: Collection[str] | None = None,
    linked: bool = False,
    left_behind: Callable[[BundleRecord, str], bool] = lambda _bundle, _owner: False,
) -> BundleRepairs:
    """The repairs for `bundles`. lost: names of lost brokers. overdue: names of bundles whose pending move is overdue.

    ending: names of brokers whose pod is being terminated. known: names of all Broker objects; None if every broker has
    one. linked: whether a Pulsar cluster is connected. left_behind: whether a broker, by name, was away when a bundle
    left it.
    """
    bundles = list(bundles)
    if linked:
        work = BundleRepairs(
            desired_owners=[desired for bundle in bundles for desired in _withdraw_or_adopt(bundle, lost, overdue)]
        )
    else:
        work = _declarative(bundles, lost, overdue, ending)
    if known is not None:
        _name_the_unknown(work, known)
    work.desired_owners = [
        replace(w, reason=Reason.FAILED_OVER)
        if w.reason is Reason.ADOPTED and _failed_over(w.bundle, left_behind)
        else w
        for w in work.desired_owners
    ]
    changed = {desired.bundle.name for desired in work.desired_owners} | {bundle.name for bundle in work.frees}
    away = {*lost, *ending}
    work.notes = [b for b in bundles if b.overruled and b.owner not in away and b.name not in changed]
    return work


def _failed_over(bundle: BundleRecord, left_behind: Callable[[BundleRecord, str], bool]) -> bool:
    """Whether the owner of a bundle changed because the former one was away."""
    return left_behind(bundle, bundle.owner) if bundle.owner else bundle.reason == Reason.BROKER_LOST


def _declarative(
    bundles: Iterable[BundleRecord], lost: Collection[str], overdue: Collection[str], ending: Collection[str]
) -> BundleRepairs:
    work = BundleRepairs()
    for bundle in bundles:
        if bundle.owner_pending and not _pointless(bundle, ending):
            _follow_move(work, bundle, lost, overdue, ending)
        elif bundle.status_owner in ending and bundle.status_owner not in lost:
            if not bundle.pinned:
                work.unassigned.append((bundle, Reason.ROLLING_OUT))
        else:
            _settled(work, bundle, lost)
    return work


def _name_the_unknown(work: BundleRepairs, known: Collection[str]) -> None:
    """Set the reason `UNKNOWN_BROKER` where no Broker object has the destination's name."""
    work.desired_owners = [
        replace(w, reason=Reason.UNKNOWN_BROKER) if _asks_for_unknown(w.bundle, w.reason, known) else w
        for w in work.desired_owners
    ]
    work.unassigned = [
        (bundle, Reason.UNKNOWN_BROKER if _asks_for_unknown(bundle, why, known) else why)
        for bundle, why in work.unassigned
    ]


def _asks_for_unknown(bundle: BundleRecord, why: Reason, known: Collection[str]) -> bool:
    return why in {Reason.BROKER_LOST, Reason.TIMED_OUT} and bundle.owner_pending and bundle.owner not in known


def _pointless(bundle: BundleRecord, ending: Collection[str]) -> bool:
    """Whether a pending move leads from a terminating broker to itself, or to another terminating broker."""
    return bundle.status_owner in ending and bundle.owner in ending


def _follow_move(
    work: BundleRepairs, bundle: BundleRecord, lost: Collection[str], overdue: Collection[str], ending: Collection[str]
) -> None:
    """Free a bundle whose move lost its source. If the move is late or can't land, withdraw it or place the bundle."""
    source_alive = bool(bundle.status_owner) and bundle.status_owner not in lost
    destination_lost, late = bundle.owner in lost or bundle.owner in ending, bundle.name in overdue
    if source_alive:
        if (destination_lost or late) and bundle.owner != bundle.status_owner:
            reason = Reason.BROKER_LOST if destination_lost else Reason.TIMED_OUT
            work.desired_owners.append(DesiredOwner(bundle, bundle.status_owner, reason))
        return
    if bundle.status_owner:
        work.frees.append(bundle)
    if destination_lost or late:
        work.unassigned.append((bundle, Reason.BROKER_LOST if destination_lost else Reason.TIMED_OUT))


def _withdraw_or_adopt(bundle: BundleRecord, lost: Collection[str], overdue: Collection[str]) -> Iterator[DesiredOwner]:
    """The repair of a bundle of a Pulsar cluster, which assigns owners itself."""
    alive = bundle.status_owner if bundle.status_owner not in lost else ""
    if bundle.owner_pending:
        destination_lost = bundle.owner in lost
        if (destination_lost or bundle.name in overdue) and bundle.owner != alive:
            yield DesiredOwner(bundle, alive, Reason.BROKER_LOST if destination_lost else Reason.TIMED_OUT)
    elif alive and bundle.owner != alive:
        yield _strayed(bundle, lost)


def _settled(work: BundleRepairs, bundle: BundleRecord, lost: Collection[str]) -> None:
    alive = bool(bundle.status_owner) and bundle.status_owner not in lost
    if not alive:
        if bundle.status_owner:
            work.frees.append(bundle)
        known = bool(bundle.owner or bundle.status_owner)
        work.unassigned.append((bundle, Reason.BROKER_LOST if known else Reason.UNOWNED))
    elif bundle.owner != bundle.status_owner:
        work.desired_owners.append(_strayed(bundle, lost))


def _strayed(bundle: BundleRecord, lost: Collection[str]) -> DesiredOwner:
    """The new desired owner of a bundle that another broker serves: that broker, or, if pinned, the old desired owner.

    A child of a split that had no desired owner counts as found, not as moved. So does a Bundle that was created again
    as a copy of an older one.
    """
    if bundle.pinned and bundle.owner and bundle.owner not in lost:
        return DesiredOwner(bundle, bundle.owner, Reason.RESTORED)
    first = not bundle.owner and bundle.reason in {"", Reason.SPLITTING}
    found = first or bundle.copied
    return DesiredOwner(bundle, bundle.status_owner, Reason.FOUND if found else Reason.ADOPTED)
