"""Who has to act on a record, and what a broker answers to a client that asks for the owner."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from trimtab_strategies.ownership.records import Record, state_of
from trimtab_strategies.ownership.states import State


class Work(StrEnum):
    """What a broker does before it writes. Doing it again changes nothing, so it may be done again after a crash."""

    NOTHING = "Nothing"  # it only writes
    CLOSE = "Close"  # stop serving the topics; clients stay connected until they know the new owner
    DISCONNECT = "Disconnect"  # send the clients to the new owner
    CLOSE_AND_DISCONNECT = "CloseAndDisconnect"  # both at once: nobody is there to send them to
    DIVIDE = "Divide"  # write the namespace's new boundaries, and let go of the parent's topics


class Duty(NamedTuple):
    """What `broker` has to do about a record: its `work`, after which it writes a record in state `then`.

    then: `INIT` to remove the record, None to leave it as it is.
    """

    broker: str
    work: Work
    then: State | None


def duty(record: Record | None, *, multi_phase: bool = True) -> Duty | None:
    """Who has to act on a record; None when nobody has to.

    multi_phase: whether clients stay connected until the new owner is there.
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
    """What a lookup finds: `broker` serves the bundle, or will; empty: nobody does.

    wait: whether the asked broker is about to serve it itself, and lets the client wait (at most 30 seconds).
    gone: whether the bundle was divided: the client has to look the topic up anew.
    """

    broker: str = ""
    wait: bool = False
    gone: bool = False


def lookup(record: Record | None, asked: str) -> Lookup:
    """Which broker the broker `asked` names to a client."""
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
