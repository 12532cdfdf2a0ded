"""The seven states of a bundle, and which may follow which.

assign    Init, Free -> Assigning -> Owned
transfer  Owned -> Releasing -> Assigning -> Owned
unload    Owned -> Releasing -> Free
split     Owned -> Splitting -> Deleted -> Init, while each child goes from Init to Owned
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum


class State(StrEnum):
    """Where a bundle is between two owners."""

    INIT = "Init"  # there is no record of it
    FREE = "Free"  # nobody owns it any more
    OWNED = "Owned"  # its destination serves it
    ASSIGNING = "Assigning"  # its destination has been told to serve it
    RELEASING = "Releasing"  # its source has been told to let go of it
    SPLITTING = "Splitting"  # its source has been told to divide it
    DELETED = "Deleted"  # it was divided; its record is about to go


class Storage(StrEnum):
    """Where records are kept; each has its own table of transitions."""

    SYSTEM_TOPIC = "SystemTopic"
    METADATA_STORE = "MetadataStore"


IN_FLIGHT = frozenset({State.ASSIGNING, State.RELEASING, State.SPLITTING})
"""States that somebody has to end."""

ACTIVE = IN_FLIGHT | {State.OWNED}
"""States in which some broker has to do with the bundle."""

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
"""By storage and state, the states that may follow. To follow with `INIT` is to remove the record."""
