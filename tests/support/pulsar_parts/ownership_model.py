"""A model of Pulsar's bundle ownership: records, the rule for conflicts, and the steps between owners.

The conflict rule: of two records of a bundle, whether the newer one holds.

Several brokers write at the same time. All readers apply only this rule, so all get the same result. It checks in this
order: a removal always holds; the version must be the next one; a forced record holds; the state must be allowed to
follow; and the named brokers must be those of the step.

A known defect of the original: on the system topic a record that is more than one version ahead holds without any
further check, even a transition that is in no table (versions in between may have been compacted away). With
`gaps_checked` it is checked like any other.

Source. Pulsar 4.2.4 `ServiceUnitStateDataConflictResolver`, with equal decisions.

The steps from owner to owner are generators of values, which can be resumed wherever they were interrupted.

A flow gets the current records and yields the remaining steps, each computed as if the steps before it had been carried
out. The caller carries out one at a time: it lets the broker do its work, then replaces `old` by `new`. If that fails,
or the process dies, the caller starts the flow again with the current records, and gets the rest. The flow needs no
memory, because every step leaves a record from which the next one follows.

After every step:

- At most one broker serves a hash. A broker closes the topics before it writes the record that lets another serve
  them (close first, assign later). A parent is deleted only after all its children have an owner (own first, delete
  later); until then both lead to the same broker.
- The conflict rule accepts the step on either storage: `Step` cannot be made of other records.
- Completed work is not repeated, except work that leaves no trace in a record (to disconnect clients). That comes last.
- Every record in flight names the broker that must act (`duty`). So a stalled flow is visible, and its broker can be
  overridden.

The last part: which broker must act on a record, and what a broker answers to a client's lookup.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from itertools import pairwise
from typing import NamedTuple

from bundle_state import ACTIVE, ALLOWED, State, Storage

FIRST_VERSION = 1

LAST_VERSION = 2**63 - 1
"""The next version is -2**63: versions are signed 64-bit numbers, as in Java."""


class InvalidRecordError(ValueError):
    """A record without meaning; the text names the field and what is needed."""


@dataclass(frozen=True, slots=True)
class Record:
    """A record of a bundle.

    destination: the broker that owns it or should own it; empty for none.
    source:      the broker that owned it; empty for none. One of the two is needed.
    children:    of a bundle that is being split: broker by child's range, empty for the parent's.
    force:       whether it holds although the state before does not allow it (the owner is dead).
    time:        epoch seconds at which it was written.
    version:     1 for the first record of a bundle, then one more each time.
    """

    state: State
    destination: str = ""
    source: str = ""
    children: Mapping[str, str] = field(default_factory=dict)
    force: bool = False
    time: float = 0.0
    version: int = FIRST_VERSION

    def __post_init__(self) -> None:
        if self.state is State.INIT:
            raise InvalidRecordError("state Init means that there is no record: remove it instead of writing Init")
        if not self.destination.strip() and not self.source.strip():
            raise InvalidRecordError(f"a record in state {self.state} names no broker: give a destination or a source")


def state_of(record: Record | None) -> State:
    """The state of a record; `INIT` without a record."""
    return State.INIT if record is None else record.state


def next_version(record: Record | None) -> int:
    """The version after a record's."""
    if record is None:
        return FIRST_VERSION
    return -LAST_VERSION - 1 if record.version == LAST_VERSION else record.version + 1


def refusal(old: Record | None, new: Record | None, storage: Storage, *, gaps_checked: bool = False) -> str | None:
    """Why `new` does not replace `old`; None if it does. A record that is None does not exist, or is removed."""
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
        return f"the source is {new.source or '(none)'}, the owner {old.destination}"
    return f"{new.destination} owns it already" if new.destination == old.destination else None


def _same(old: Record, new: Record) -> str | None:
    if (old.destination, old.source) == (new.destination, new.source):
        return None
    return (
        f"destination and source were {old.destination or '(none)'} and {old.source or '(none)'},"
        f" now {new.destination or '(none)'} and {new.source or '(none)'}"
    )


def _hands_over(old: Record, new: Record) -> str | None:
    return _same(old, new) if new.destination else "no destination"


def _assigns(_: Record, new: Record) -> str | None:
    if new.source:
        return f"it had no owner, yet the source is {new.source}"
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


Table = Mapping[str, Record]
"""All records, by bundle."""


class OvertakenError(RuntimeError):
    """The records belong to another flow, which has to end first; the text names state and brokers."""


@dataclass(frozen=True, slots=True)
class Step:
    """One write: `by` does its `work` and then replaces the record `old` of `bundle` by `new`.

    by:  the broker that acts; empty for the caller of the flow.
    old: the record that must still be current; None for no record.
    new: None to remove the record; equal to `old` if there is only the work.
    """

    bundle: str
    by: str
    work: Work
    old: Record | None
    new: Record | None

    def __post_init__(self) -> None:
        if self.new == self.old:
            return
        for storage in Storage:
            if (why := refusal(self.old, self.new, storage, gaps_checked=True)) is not None:
                raise OvertakenError(f"{self.bundle}: {why}")

    def __str__(self) -> str:
        return f"{self.bundle}: {state_of(self.old)} -> {state_of(self.new)} by {self.by or '(who asks)'} ({self.work})"


def assign(bundle: str, record: Record | None, broker: str, *, now: float = 0.0) -> Iterator[Step]:
    """Give an unassigned bundle to `broker`. now: epoch seconds, written into the records."""
    if state_of(record) in (State.INIT, State.FREE):
        assigning = Record(State.ASSIGNING, destination=broker, time=now, version=next_version(record))
        yield Step(bundle, "", Work.NOTHING, record, assigning)
        record = assigning
    if record is None or record.state not in (State.ASSIGNING, State.OWNED) or record.destination != broker:
        raise _overtaken(bundle, record, f"assigned to {broker}")
    yield from _rest(bundle, record, now)


def transfer(
    bundle: str, record: Record | None, broker: str, *, now: float = 0.0, multi_phase: bool = True
) -> Iterator[Step]:
    """Move a bundle from its owner to `broker`. An unassigned bundle is assigned; one that is there already stays."""
    if state_of(record) in (State.INIT, State.FREE):
        yield from assign(bundle, record, broker, now=now)
        return
    if record is not None and record.state is State.OWNED and record.destination != broker:
        yield (step := _released(bundle, record, broker, now))
        record = step.new
    on_the_way = (State.RELEASING, State.ASSIGNING, State.OWNED)
    if record is None or record.state not in on_the_way or record.destination != broker:
        raise _overtaken(bundle, record, f"moved to {broker}")
    yield from _rest(bundle, record, now, multi_phase=multi_phase)


def unload(bundle: str, record: Record | None, *, now: float = 0.0) -> Iterator[Step]:
    """Take a bundle from its owner, and leave it unassigned."""
    if state_of(record) in (State.INIT, State.FREE):
        return
    if record is not None and record.state is State.OWNED:
        yield (step := _released(bundle, record, "", now))
        record = step.new
    if record is None or record.state is not State.RELEASING or record.destination:
        raise _overtaken(bundle, record, "unloaded")
    yield from _rest(bundle, record, now)


def split(
    bundle: str, table: Table, children: Mapping[str, str], *, now: float = 0.0, multi_phase: bool = True
) -> Iterator[Step]:
    """Split a bundle, and move children that should go elsewhere.

    children: broker by child's range, empty for the parent's owner. A child with a record in any state counts as
    created, as in Pulsar. Raises `ValueError` unless the ranges make up the bundle's.
    """
    flow = f"divided into {', '.join(sorted(children))}"
    brokers = _by_name(bundle, children)
    made = dict(table)
    parent = table.get(bundle)
    if parent is not None:
        for step in _divided(bundle, parent, children, made, now):
            made.update({step.bundle: step.new} if step.new is not None else {})
            yield step
    if missing := brokers.keys() - made.keys():
        raise _overtaken(bundle, parent, f"{flow}: {min(missing)} has no record")
    steps = [
        step
        for child, broker in brokers.items()
        if broker
        for step in transfer(child, made[child], broker, now=now, multi_phase=multi_phase)
    ]
    yield from sorted(steps, key=lambda step: step.new == step.old)  # work that leaves no trace comes last


def _divided(bundle: str, parent: Record, children: Mapping[str, str], made: Table, now: float) -> Iterator[Step]:
    """The steps of a parent and of the children that are not `made` yet: first own them all, then delete it."""
    if parent.state is State.OWNED:
        version = next_version(parent)
        splitting = Record(State.SPLITTING, "", parent.destination, dict(children), time=now, version=version)
        yield Step(bundle, "", Work.NOTHING, parent, splitting)
        parent = splitting
    if parent.state is State.SPLITTING and dict(parent.children) == dict(children):
        for child in _by_name(bundle, children):
            if child not in made:
                owned = Record(State.OWNED, destination=parent.source, time=now)
                yield Step(child, parent.source, Work.NOTHING, None, owned)
    elif parent.state is not State.DELETED:
        raise _overtaken(bundle, parent, f"divided into {', '.join(sorted(children))}")
    yield from _rest(bundle, parent, now)


def override(bundle: str, record: Record, dead: str, broker: str, *, now: float = 0.0) -> Step:
    """Take a bundle from the broker `dead` without its cooperation: a forced record, which holds in any state.

    broker: the new owner; empty if no broker can take it, and it becomes free. A bundle that was being split is split
    by `broker`. Raises `OvertakenError` for a record without owner, or of a bundle that was split: its children have
    owners.
    """
    if record.state not in ACTIVE:
        raise _overtaken(bundle, record, f"taken from {dead}")
    source = "" if broker == dead else dead
    version = next_version(record)
    if not broker:
        forced = Record(State.FREE, "", dead, force=True, time=now, version=version)
    elif record.state is State.SPLITTING:
        forced = Record(State.SPLITTING, "", broker, record.children, force=True, time=now, version=version)
    else:
        forced = Record(State.OWNED, broker, source, force=True, time=now, version=version)
    return Step(bundle, "", Work.NOTHING, record, forced)


def _released(bundle: str, owned: Record, broker: str, now: float) -> Step:
    """The write that makes a bundle's owner release it, for `broker` or for none."""
    releasing = Record(State.RELEASING, broker, owned.destination, time=now, version=next_version(owned))
    return Step(bundle, "", Work.NOTHING, owned, releasing)


def _rest(bundle: str, record: Record, now: float, *, multi_phase: bool = True) -> Iterator[Step]:
    """The steps that follow from the duties of a record and of the records that they write."""
    while (due := duty(record, multi_phase=multi_phase)) is not None:
        if due.then is None or due.then is State.INIT:
            yield Step(bundle, due.broker, due.work, record, record if due.then is None else None)
            return
        after = replace(record, state=due.then, children={}, force=False, time=now, version=next_version(record))
        yield Step(bundle, due.broker, due.work, record, after)
        record = after


def _by_name(bundle: str, children: Mapping[str, str]) -> dict[str, str]:
    """Broker by child's name, ascending; `ValueError` unless the ranges make up the bundle's."""
    namespace, _, whole = bundle.rpartition("/")
    ranges = sorted(children)
    edges = [part.partition("_") for part in ranges]
    joined = all(left[2] == right[0] for left, right in pairwise(edges))
    if len(ranges) < 2 or not joined or f"{edges[0][0]}_{edges[-1][2]}" != whole:
        given = ", ".join(ranges) or "nothing"
        raise ValueError(f"{given} does not make up {bundle}: give two or more ranges without gaps")
    return {f"{namespace}/{part}": children[part] for part in ranges}


def _overtaken(bundle: str, record: Record | None, flow: str) -> OvertakenError:
    brokers = "" if record is None else f", destination {record.destination!r}, source {record.source!r}"
    return OvertakenError(f"{bundle} can't be {flow}: it is {state_of(record)}{brokers}; let that end first")


class Work(StrEnum):
    """A broker's work before it writes. Repeating it changes nothing, so it may be repeated after a crash."""

    NOTHING = "Nothing"  # it only writes
    CLOSE = "Close"  # stop serving the topics; clients stay connected until the new owner is known
    DISCONNECT = "Disconnect"  # send the clients to the new owner
    CLOSE_AND_DISCONNECT = "CloseAndDisconnect"  # both at once: there is no new owner for them
    DIVIDE = "Divide"  # write the namespace's new boundaries, and close the parent's topics


class Duty(NamedTuple):
    """What `broker` must do about a record: its `work`, after which it writes a record in state `then`.

    then: `INIT` to remove the record, None to leave it as it is.
    """

    broker: str
    work: Work
    then: State | None


def duty(record: Record | None, *, multi_phase: bool = True) -> Duty | None:
    """Which broker must act on a record; None for none.

    multi_phase: whether clients stay connected until the new owner is ready.
    Pulsar: loadBalancerMultiPhaseBundleUnload
    """
    if record is None:
        return None
    destination, source = record.destination, record.source
    hand_over = Duty(source, Work.CLOSE if multi_phase else Work.CLOSE_AND_DISCONNECT, State.ASSIGNING)
    let_go = Duty(source, Work.CLOSE_AND_DISCONNECT, State.FREE)
    duties = {
        State.ASSIGNING: Duty(destination, Work.NOTHING, State.OWNED),
        State.RELEASING: hand_over if destination else let_go,
        State.OWNED: Duty(source, Work.DISCONNECT, None) if source and multi_phase else None,
        State.SPLITTING: Duty(source, Work.DIVIDE, State.DELETED),
        State.DELETED: Duty(source, Work.NOTHING, State.INIT),
        State.FREE: let_go._replace(then=State.INIT) if record.force else None,
    }
    return duties[record.state]


class Lookup(NamedTuple):
    """The result of a lookup: `broker` serves the bundle, or will; empty for none.

    wait: whether the queried broker will soon serve it itself, and lets the client wait (at most 30 seconds).
    gone: whether the bundle was split: the client has to look the topic up again.
    """

    broker: str = ""
    wait: bool = False
    gone: bool = False


def lookup(record: Record | None, asked: str) -> Lookup:
    """The broker that the broker `asked` names to a client."""
    if record is None:
        return Lookup()
    match state_of(record):
        case State.OWNED:
            return Lookup(record.destination)
        case State.SPLITTING:
            return Lookup(record.source)
        case State.ASSIGNING | State.RELEASING:
            return Lookup(record.destination, wait=record.destination == asked)
        case State.DELETED:
            return Lookup(gone=True)
        case _:
            return Lookup()
