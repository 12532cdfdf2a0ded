"""The seven states of a bundle and their transitions.

assign    Init, Free -> Assigning -> Owned
transfer  Owned -> Releasing -> Assigning -> Owned
unload    Owned -> Releasing -> Free
split     Owned -> Splitting -> Deleted -> Init, while each child goes from Init to Owned
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum


class State(StrEnum):
    """State of a bundle between two owners."""

    INIT = "Init"  # it has no record
    FREE = "Free"  # it has no owner any more
    OWNED = "Owned"  # its destination serves it
    ASSIGNING = "Assigning"  # its destination has the request to serve it
    RELEASING = "Releasing"  # its source has the request to release it
    SPLITTING = "Splitting"  # its source has the request to split it
    DELETED = "Deleted"  # it was split; its record will be removed


class Storage(StrEnum):
    """Storage of the records; each has its own transition table."""

    SYSTEM_TOPIC = "SystemTopic"
    METADATA_STORE = "MetadataStore"


IN_FLIGHT = frozenset({State.ASSIGNING, State.RELEASING, State.SPLITTING})
"""States that a broker has to end."""

ACTIVE = IN_FLIGHT | {State.OWNED}
"""States in which the bundle involves a broker."""

_SHARED = {
    State.OWNED: frozenset({State.SPLITTING, State.RELEASING}),
    State.ASSIGNING: frozenset({State.OWNED}),
    State.RELEASING: frozenset({State.ASSIGNING, State.FREE}),
    State.SPLITTING: frozenset({State.DELETED}),
    State.DELETED: frozenset({State.INIT}),
}

ALLOWED: Mapping[Storage, Mapping[State, frozenset[State]]] = {
    # A reader of the topic may see any record first, as compaction leaves only the newest one.
    Storage.SYSTEM_TOPIC: {
        State.INIT: frozenset(State) - {State.INIT},
        State.FREE: frozenset({State.ASSIGNING, State.INIT}),
        **_SHARED,
    },
    Storage.METADATA_STORE: {
        State.INIT: frozenset({State.ASSIGNING}),
        State.FREE: frozenset({State.ASSIGNING}),
        **_SHARED,
    },
}
"""By storage and state, the states that may follow. A transition to `INIT` removes the record."""
