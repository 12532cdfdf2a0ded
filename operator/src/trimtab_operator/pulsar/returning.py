"""When a topic's clients came back after its bundle was moved: what Pulsar's statistics of the topic tell of it. Pure.

Each broker notes when a producer or consumer connected to it. After a move that is the new owner's note, so the time
from the request to let go until the last of them connected is how long that topic's clients were cut off.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any


@dataclass(frozen=True, slots=True)
class Returned:
    """Seconds after the owner was asked to let go. publishers, clients: until the last of them was back; None: there
    are none."""

    publishers: float | None
    clients: float | None


def returned(stats: Mapping[str, Any], asked: float) -> Returned | None:
    """Who came back when, by a topic's `stats` as Pulsar has them.

    asked: epoch seconds at which the old owner was asked to let go. None where that can't be said: some client is
    connected since earlier than that, so the topic did not move, or the broker's clock is behind.
    """
    publishers = _since(stats.get("publishers") or ())
    consumers = _since(c for s in (stats.get("subscriptions") or {}).values() for c in s.get("consumers") or ())
    everybody = [*publishers, *consumers]
    if any(since < asked for since in everybody):
        return None
    return Returned(*(max(times) - asked if times else None for times in (publishers, everybody)))


def _since(clients: Iterable[Mapping[str, Any]]) -> list[float]:
    """Epoch seconds at which each connected; who does not say is passed over."""
    found = []
    for client in clients:
        try:
            found.append(datetime.fromisoformat(str(client.get("connectedSince"))).timestamp())
        except ValueError:
            continue
    return found
