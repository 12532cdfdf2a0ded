"""The conflict rule: of two records of a bundle, whether the newer one holds.

Several brokers write at the same time; all readers decide by this rule alone, so all come to the same picture. What
decides is, in this order: a removal always holds; the version must be the next one; a forced record holds; the state
must be allowed to follow; and the brokers named must be those of the step.

A known defect of the original: on the system topic a record that is more than one version ahead holds without any
further check, even a transition that is in no table (versions in between may have been compacted away). With
`gaps_checked` it is checked like any other.

Source. Pulsar 4.2.4 `ServiceUnitStateDataConflictResolver`, with equal decisions.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from trimtab_strategies.ownership.records import FIRST_VERSION, LAST_VERSION, Record, state_of
from trimtab_strategies.ownership.states import ALLOWED, State, Storage


def refusal(old: Record | None, new: Record | None, storage: Storage, *, gaps_checked: bool = False) -> str | None:
    """Why `new` does not replace `old`, in words; None if it does. A record that is None is none, or its removal."""
    if new is None:
        return None
    if old is None and storage is Storage.METADATA_STORE:
        return None if new.version == FIRST_VERSION else f"version {new.version} where {FIRST_VERSION} comes first"
    if old is not None:
        if (why := _out_of_order(old, new, storage)) is not None:
            return why
        if _gap(old, new) and not gaps_checked:
            return None
    if new.force:
        return None
    return _not_allowed(old, new, storage) or _wrong_brokers(old, new)


def _out_of_order(old: Record, new: Record, storage: Storage) -> str | None:
    if old.version == LAST_VERSION and new.version == -LAST_VERSION - 1:
        return None
    if old.version >= new.version:
        return f"version {new.version} is not after {old.version}"
    if _gap(old, new) and storage is Storage.METADATA_STORE:
        return f"version {new.version} does not follow {old.version}"
    return None


def _gap(old: Record, new: Record) -> bool:
    return new.version > old.version + 1


def _not_allowed(old: Record | None, new: Record, storage: Storage) -> str | None:
    before = state_of(old)
    return None if new.state in ALLOWED[storage][before] else f"{new.state} may not follow {before}"


def _wrong_brokers(old: Record | None, new: Record) -> str | None:
    check = _BROKERS.get((state_of(old), new.state))
    if old is None or check is None:
        return None
    wrong = check(old, new)
    return f"{old.state} to {new.state}: {wrong}" if wrong else None


def _splits(old: Record, new: Record) -> str | None:
    if new.destination:
        return f"a split has no destination, it has {new.destination}"
    return None if new.source == old.destination else f"the source is {new.source}, the owner {old.destination}"


def _releases(old: Record, new: Record) -> str | None:
    if not new.source or new.source != old.destination:
        return f"the source is {new.source or '(nobody)'}, the owner {old.destination}"
    return f"{new.destination} owns it already" if new.destination == old.destination else None


def _same(old: Record, new: Record) -> str | None:
    if (old.destination, old.source) == (new.destination, new.source):
        return None
    return (
        f"destination and source were {old.destination or '(nobody)'} and {old.source or '(nobody)'},"
        f" now {new.destination or '(nobody)'} and {new.source or '(nobody)'}"
    )


def _hands_over(old: Record, new: Record) -> str | None:
    return _same(old, new) if new.destination else "no destination"


def _assigns(_: Record, new: Record) -> str | None:
    if new.source:
        return f"nobody owned it, yet the source is {new.source}"
    return None if new.destination else "no destination"


_BROKERS: Mapping[tuple[State, State], Callable[[Record, Record], str | None]] = {
    (State.OWNED, State.SPLITTING): _splits,
    (State.OWNED, State.RELEASING): _releases,
    (State.ASSIGNING, State.OWNED): _same,
    (State.RELEASING, State.FREE): _same,
    (State.SPLITTING, State.DELETED): _same,
    (State.RELEASING, State.ASSIGNING): _hands_over,
    (State.FREE, State.ASSIGNING): _assigns,
}
