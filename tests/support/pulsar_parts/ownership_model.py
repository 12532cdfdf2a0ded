"""The steps from owner to owner, as generators of values that can be taken up again wherever they were interrupted.

A flow is given what is written down now and yields the steps that are left, each made as if those before it had been
carried out. Whoever carries them out does one at a time: lets the broker do its work, then replaces `old` by `new`. If
that fails, or the process dies, the flow is asked again with what is written down then, and yields the rest: it needs
no memory of its own, because every step leaves a record from which the next one follows.

What holds after every step:

- At most one broker serves a hash. A broker closes the topics before it writes the record that lets another serve
  them (close first, assign later), and a parent is deleted only after all its children have an owner (own first,
  delete later); until then both lead to the same broker.
- No step is one that the conflict rule would refuse, on either storage: `Step` can't be made of such records.
- What is already done is not asked for again: only work that leaves no trace in a record is (to disconnect clients),
  and therefore it comes last.
- Every record in flight names who has to act (`duty`), so a flow that stalls can be seen, and its broker overridden.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise

from trimtab_strategies.ownership.conflicts import refusal
from trimtab_strategies.ownership.duties import Work, duty
from trimtab_strategies.ownership.records import Record, next_version, state_of
from trimtab_strategies.ownership.states import ACTIVE, State, Storage

Table = Mapping[str, Record]
"""All records, by bundle."""


class OvertakenError(RuntimeError):
    """What is written down belongs to another wish, which has to end first; the text names state and brokers."""


@dataclass(frozen=True, slots=True)
class Step:
    """One write: `by` does its `work` and then replaces the record `old` of `bundle` by `new`.

    by:  the broker that acts; empty: whoever wants the flow.
    old: what must still be written down then; None no record.
    new: None removes the record; equal to `old` when there is only the work.
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
    """Give a bundle of nobody to `broker`. `now`: epoch seconds, written into the records."""
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
    """Move a bundle from its owner to `broker`. A bundle of nobody is assigned; one that is there already stays."""
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
    """Take a bundle from its owner, and leave it to nobody."""
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
    """Divide a bundle, and move those of its children that should go elsewhere.

    children: each child's range to its broker, empty the parent's owner. A child of which there is a record in any
    state counts as made, as in Pulsar. Raises `ValueError` unless the ranges make up the bundle's.
    """
    wish = f"divided into {', '.join(sorted(children))}"
    brokers = _by_name(bundle, children)
    made = dict(table)
    parent = table.get(bundle)
    if parent is not None:
        for step in _divided(bundle, parent, children, made, now):
            made.update({step.bundle: step.new} if step.new is not None else {})
            yield step
    if missing := brokers.keys() - made.keys():
        raise _overtaken(bundle, parent, f"{wish}: {min(missing)} has no record")
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
    """Take a bundle away from the broker `dead` without asking it: a forced record, which holds in any state.

    broker: who gets it; empty: nobody can, and it becomes free. A bundle that was being divided is divided by `broker`.
    Raises `OvertakenError` for a record of nobody, or of a bundle that was divided: its children have owners.
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
    """The write by which a bundle's owner is told to let go of it, for `broker` or for nobody."""
    releasing = Record(State.RELEASING, broker, owned.destination, time=now, version=next_version(owned))
    return Step(bundle, "", Work.NOTHING, owned, releasing)


def _rest(bundle: str, record: Record, now: float, *, multi_phase: bool = True) -> Iterator[Step]:
    """The steps that follow from the duties of a record and of those that they write."""
    while (due := duty(record, multi_phase=multi_phase)) is not None:
        if due.then is None or due.then is State.INIT:
            yield Step(bundle, due.broker, due.work, record, record if due.then is None else None)
            return
        after = replace(record, state=due.then, children={}, force=False, time=now, version=next_version(record))
        yield Step(bundle, due.broker, due.work, record, after)
        record = after


def _by_name(bundle: str, children: Mapping[str, str]) -> dict[str, str]:
    """Each child's name to its broker, ascending; `ValueError` unless the ranges make up the bundle's."""
    namespace, _, whole = bundle.rpartition("/")
    ranges = sorted(children)
    edges = [part.partition("_") for part in ranges]
    joined = all(left[2] == right[0] for left, right in pairwise(edges))
    if len(ranges) < 2 or not joined or f"{edges[0][0]}_{edges[-1][2]}" != whole:  # noqa: PLR2004 - one child is no split
        given = ", ".join(ranges) or "nothing"
        raise ValueError(f"{given} does not make up {bundle}: give two or more ranges without gaps")
    return {f"{namespace}/{part}": children[part] for part in ranges}


def _overtaken(bundle: str, record: Record | None, wish: str) -> OvertakenError:
    brokers = "" if record is None else f", destination {record.destination!r}, source {record.source!r}"
    return OvertakenError(f"{bundle} can't be {wish}: it is {state_of(record)}{brokers}; let that end first")
