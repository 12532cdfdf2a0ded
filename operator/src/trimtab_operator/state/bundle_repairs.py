"""What must be done about bundles whatever the mode and the load: keep wishes and owners honest, and nobody homeless.

This is not balancing. It runs often, in every mode, and moves nothing that has a living owner and no open wish:

| found | done |
|---|---|
| an owner changed and nobody wished it | the wish follows (`ADOPTED`); a pinned bundle is driven back (`RESTORED`) |
| an owner where nobody ever wished one | the wish follows (`FOUND`), and nothing has moved |
| an open wish whose source is lost | its status is freed, so that the destination can take it |
| an open wish that is overdue, or whose destination is lost, and the source still serves | the wish is withdrawn |
| the same, and no Broker has the destination's name | the reason is `UNKNOWN_BROKER` |
| no living owner, nobody asked | it is *homeless*: the placement chooses (`UNOWNED`, `BROKER_LOST`, `TIMED_OUT`) |
| an owner whose pod is being terminated | the same, while it still serves (`ROLLING_OUT`); what is pinned waits |
| a landed wish that a person wrote over an older one | it is noted as theirs (`ADMIN`), and nothing moves |

Where a Pulsar cluster carries the wishes out, its brokers find owners by themselves, and let go before they end: there
nobody is freed or homeless, and a wish that can't land is withdrawn, to whoever serves the bundle, be that nobody.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field, replace

from trimtab_operator.kube.records import BundleRecord
from trimtab_strategies.model import Reason


@dataclass(frozen=True, slots=True)
class DesiredOwner:
    """Write `owner` as the wished owner of a bundle, because of `reason`."""

    bundle: BundleRecord
    owner: str
    reason: Reason


@dataclass(slots=True)
class BundleRepairs:
    """What is to be written (`wishes`), freed (`frees`), and placed (`homeless`, with the reason).

    notes: bundles whose assignment still says why an older owner was wished.
    """

    desired_owners: list[DesiredOwner] = field(default_factory=list)
    frees: list[BundleRecord] = field(default_factory=list)
    unassigned: list[tuple[BundleRecord, Reason]] = field(default_factory=list)
    notes: list[BundleRecord] = field(default_factory=list)

    @property
    def empty(self) -> bool:
        """Whether there is nothing to do."""
        return not (self.desired_owners or self.frees or self.unassigned or self.notes)


def needs_care(bundle: BundleRecord) -> bool:
    """Whether a bundle can be the subject of upkeep at all, seen without its broker."""
    return bundle.owner_pending or bundle.owner != bundle.status_owner or not bundle.owner or _overruled(bundle)


def _overruled(bundle: BundleRecord) -> bool:
    """Whether a wish has landed that a person wrote over an older one, whose reason still stands beside it."""
    landed = not bundle.owner_pending and bundle.owner == bundle.status_owner and not (bundle.split or bundle.parent)
    return landed and bundle.assigned_owner not in {"", bundle.owner}


def repairs_of(
    bundles: Iterable[BundleRecord],
    lost: Collection[str],
    overdue: Collection[str],
    ending: Collection[str] = (),
    *,
    known: Collection[str] | None = None,
    linked: bool = False,
) -> BundleRepairs:
    """Work for `bundles`, given the names of lost brokers and of bundles whose open wish is overdue.

    ending: names of brokers that still serve, and won't for long. known: names of all Broker objects, None if every
    broker has one. linked: whether a Pulsar cluster stands behind them.
    """
    bundles = list(bundles)
    if linked:
        work = BundleRepairs(
            desired_owners=[desired for bundle in bundles for desired in _linked(bundle, lost, overdue)]
        )
    else:
        work = _declarative(bundles, lost, overdue, ending)
    if known is not None:
        _name_the_unknown(work, known)
    work.notes = [b for b in bundles if _overruled(b) and b.owner not in lost and b.owner not in ending]
    return work


def _declarative(
    bundles: Iterable[BundleRecord], lost: Collection[str], overdue: Collection[str], ending: Collection[str]
) -> BundleRepairs:
    work = BundleRepairs()
    for bundle in bundles:
        if bundle.owner_pending and not _pointless(bundle, ending):
            _owner_pending(work, bundle, lost, overdue, ending)
        elif bundle.status_owner in ending and bundle.status_owner not in lost:
            if not bundle.pinned:
                work.unassigned.append((bundle, Reason.ROLLING_OUT))
        else:
            _settled(work, bundle, lost)
    return work


def _name_the_unknown(work: BundleRepairs, known: Collection[str]) -> None:
    """Tell a destination that does not exist from one that is lost or late."""
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
    """Whether an open wish leads from a broker that ends to one that does, or to itself."""
    return bundle.status_owner in ending and bundle.owner in ending


def _owner_pending(
    work: BundleRepairs, bundle: BundleRecord, lost: Collection[str], overdue: Collection[str], ending: Collection[str]
) -> None:
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


def _linked(bundle: BundleRecord, lost: Collection[str], overdue: Collection[str]) -> Iterator[DesiredOwner]:
    """What is to be wished of a bundle that a Pulsar cluster finds owners for."""
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
    """What is to be wished of one that is not where it was wished: that it comes back, if it is pinned, or stays there.

    One that was cut out while nobody was seen to have it had no owner before, either.
    """
    if bundle.pinned and bundle.owner and bundle.owner not in lost:
        return DesiredOwner(bundle, bundle.owner, Reason.RESTORED)
    first = not bundle.owner and bundle.reason in {"", Reason.SPLITTING}
    return DesiredOwner(bundle, bundle.status_owner, Reason.FOUND if first else Reason.ADOPTED)
