"""What must be written so that Bundle objects say what Pulsar said. Pure: records and what was seen in, changes out.

Rules that keep a bundle from being lost by a look that came too early, too late, or not at all:

- who did not answer changes nothing: a bundle counts as nobody's only when `Owned` says that surely nobody serves it:
  every active broker was asked twice in a row, as a bundle that moves during a sweep may be seen nowhere, once; where
  bundles are asked for one by one, one answer does;
- bundles are divided and never merged, so boundaries that lack a known edge are old, or of a namespace that was made
  anew: they must be read twice before they count;
- a bundle goes only once all bundles that take its place exist;
- an open wish is the carrier's, a bundle that is being divided the divider's. But a wish that is open for too long is
  overtaken by the truth. What is marked as leaving may be closed where it is seen: the carrier sees to that first;
- what no controller of ours has made is not deleted.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from trimtab_operator.cluster.bundle_objects import bundle_manifest
from trimtab_operator.cluster.bundles import BundleRecord
from trimtab_operator.cluster.naming import bundle_name
from trimtab_operator.cluster.status import timestamp
from trimtab_operator.cluster.topic_namespaces import TopicNamespaceRecord
from trimtab_operator.resources.bundle import BundleState
from trimtab_strategies.model import Reason

Status = dict[str, Any]
Range = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Owned:
    """Who serves what, as the brokers said in one sweep.

    by_bundle: bundle in Pulsar's spelling -> name of the Broker object. before: what may be served all the same: by
    some broker in the sweep before, or, where bundles are asked for one by one, those of which this one says nothing.
    complete: whether what is in neither is nobody's.
    """

    by_bundle: Mapping[str, str] = field(default_factory=dict)
    before: Collection[str] = ()
    complete: bool = False

    def nobodys(self, bundle: str) -> bool:
        """Whether surely nobody serves `bundle`."""
        return self.complete and bundle not in self.by_bundle and bundle not in self.before


def reflect_owners(
    bundles: Iterable[BundleRecord],
    full_names: Mapping[str, str],
    owned: Owned,
    stuck: Collection[str],
    now: float,
) -> Iterator[tuple[BundleRecord, Status]]:
    """Each bundle whose status says something else than what was seen, and the status that it should have.

    full_names: object name of a TopicNamespace -> ``tenant/name``. stuck: names of bundles whose wish is open for too
    long. now: epoch seconds.
    """
    for bundle in bundles:
        space = full_names.get(bundle.topic_namespace)
        if space is None or bundle.split or bundle.parent:
            continue
        full = f"{space}/{bundle.lower}_{bundle.upper}"
        status = _owned_status(bundle, full, owned, bundle.name in stuck)
        if status:
            yield bundle, status if _same(bundle, status) else {**status, "since": timestamp(now)}


def _same(bundle: BundleRecord, status: Status) -> bool:
    """Whether neither owner nor state changes."""
    return (status["owner"], status["state"]) == (bundle.status_owner, bundle.state)


def _owned_status(bundle: BundleRecord, full: str, owned: Owned, stuck: bool) -> Status | None:  # noqa: FBT001  a fact
    seen = owned.by_bundle.get(full)
    if seen is None:
        unowned = owned.nobodys(full) and (stuck or not bundle.open_wish)
        told = (bundle.status_owner, bundle.state) == ("", BundleState.FREE)
        return _status("", BundleState.FREE) if unowned and not told else None
    if not bundle.open_wish:
        told = (bundle.status_owner, bundle.state) == (seen, BundleState.OWNED)
        return None if told else _status(seen, BundleState.OWNED, bundle.generation)
    # nobody asked for what was merely seen: such a wish moves nothing, and is over
    over = bundle.merely_seen or (bundle.owner == seen and (stuck or bundle.status_owner == seen))
    if over and (stuck or bundle.state != BundleState.RELEASING):
        return _status(seen, BundleState.OWNED, bundle.generation)
    told = (bundle.status_owner, bundle.state) == (seen, BundleState.OWNED)
    return _status(seen, BundleState.OWNED) if stuck and not told else None


def _status(owner: str, state: BundleState, generation: int | None = None) -> Status:
    status: Status = {"owner": owner, "state": str(state)}
    return status if generation is None else {**status, "observedGeneration": generation}


@dataclass(frozen=True, slots=True)
class Birth:
    """A Bundle object to create, and the status that it gets at once."""

    manifest: Mapping[str, Any]
    status: Status

    @property
    def name(self) -> str:
        """Of the object."""
        return str(self.manifest["metadata"]["name"])


@dataclass(slots=True)
class Ranges:
    """Bundle objects to create, and those to delete once all of them exist.

    doubtful: the boundaries lack an edge of a bundle that there is, so they must be read again first.
    """

    create: list[Birth] = field(default_factory=list)
    delete: list[BundleRecord] = field(default_factory=list)
    doubtful: bool = False


def reflect_ranges(
    boundaries: Sequence[int],
    space: TopicNamespaceRecord,
    bundles: Iterable[BundleRecord],
    owned: Mapping[str, str],
    now: float,
    *,
    sure: bool = False,
) -> Ranges:
    """What to create and delete so that there is a Bundle object for each range between `boundaries`.

    bundles: those of the namespace. owned: who serves what, by Pulsar's spelling. sure: whether the boundaries were
    read twice.
    """
    known = list(bundles)
    wanted = [(f"0x{lower:08x}", f"0x{upper:08x}") for lower, upper in pairwise(boundaries)]
    edges = {edge for found in wanted for edge in found}
    lacking = any(b.made and not b.parent and not {b.lower, b.upper} <= edges for b in known)
    if lacking and not sure:
        return Ranges(doubtful=True)
    have, locked = {(b.lower, b.upper) for b in known}, [b for b in known if b.split]
    missing = [found for found in wanted if found not in have and not _inside(found, locked)]
    old = [b for b in known if b.made and (b.lower, b.upper) not in set(wanted)]
    births = [_birth(space, found, owned, _pinned(found, old), now) for found in missing]
    return Ranges(births, [b for b in old if not b.split and not b.parent])


def _inside(found: Range, bundles: Iterable[BundleRecord]) -> bool:
    """Whether a range lies in one of `bundles`. Text of one length compares as the numbers do."""
    return any(b.lower <= found[0] and found[1] <= b.upper for b in bundles)


def _pinned(found: Range, old: Iterable[BundleRecord]) -> bool:
    """Whether a range is cut out of a bundle that is pinned."""
    return _inside(found, (b for b in old if b.pinned))


def _birth(
    space: TopicNamespaceRecord,
    found: Range,
    owned: Mapping[str, str],
    pinned: bool,  # noqa: FBT001  a fact
    now: float,
) -> Birth:
    (lower, upper), (tenant, name) = found, space.full_name.split("/")
    owner = owned.get(f"{space.full_name}/{lower}_{upper}", "")
    spec: dict[str, Any] = {}
    if owner:
        assignment = {"owner": owner, "reason": str(Reason.FOUND), "time": timestamp(now)}
        spec |= {"owner": owner, "assignment": assignment}
    if pinned:
        spec["pinned"] = True
    manifest = bundle_manifest(bundle_name(tenant, name, lower, upper), space.name, space.uid, lower, upper, spec)
    status = _status(owner, BundleState.OWNED if owner else BundleState.FREE, 1)
    return Birth(manifest, {**status, "since": timestamp(now)})
