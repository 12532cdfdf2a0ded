"""The cost of each move for the clients, as a table and as a file for comparisons."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from pulsar_witness import Move, Witness
from real_pulsar.clients import ClientTraffic

ARTEFACTS = Path(__file__).parents[3] / ".trimtab" / "e2e"
"""Folder of the last run's figures."""

AFTER = 1.5
"""Seconds after the landing of a move in which clients may still reconnect."""


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of one move: seconds until it landed, and the longest gaps (ms) of its busiest topics around it.

    to_fresh: the destination had served no bundle before.
    """

    bundle: str
    source: str
    destination: str
    landing: float
    publish_gap: float | None
    receive_gap: float | None
    to_fresh: bool


def costs(witness: Witness, traffic: ClientTraffic) -> list[Cost]:
    """The costs of all moves that landed."""
    return [_cost(move, move.landed, traffic) for move in witness.moves() if move.landed is not None]


def _cost(move: Move, landed: float, traffic: ClientTraffic) -> Cost:
    topics, end = traffic.inside(move.bundle), landed + AFTER
    return Cost(
        move.bundle,
        move.source,
        move.destination,
        round(landed - move.asked, 3),
        _round(traffic.publish_gap(topics, move.asked, end)),
        _round(traffic.receive_gap(topics, move.asked, end)),
        move.to_fresh,
    )


def keep(name: str, found: Sequence[Cost], **facts: object) -> None:
    """Write the moves and further `facts` to ``NAME.json`` below `ARTEFACTS`."""
    ARTEFACTS.mkdir(parents=True, exist_ok=True)
    body = {"name": name, "ended": round(time.time()), **facts, "moves": [asdict(cost) for cost in found]}
    (ARTEFACTS / f"{name}.json").write_text(json.dumps(body, indent=2) + "\n")


def table(name: str, found: Sequence[Cost]) -> list[str]:
    """First moves (to a broker that had served no bundle) and later ones, one line each."""
    kinds = (("first", [c for c in found if c.to_fresh]), ("later", [c for c in found if not c.to_fresh]))
    return [_line(f"{name}, {kind} moves", some) for kind, some in kinds if some]


def _line(title: str, found: Sequence[Cost]) -> str:
    landing = _spread([1000 * cost.landing for cost in found])
    publish = _spread(cost.publish_gap for cost in found)
    receive = _spread(cost.receive_gap for cost in found)
    return f"{title:<44} {len(found):>3}   landing {landing}   publish gap {publish}   receive gap {receive}"


def _spread(values: Iterable[float | None]) -> str:
    """Median and maximum in ms."""
    known = [value for value in values if value is not None]
    return f"{statistics.median(known):>5.0f} / {max(known):>5.0f} ms" if known else f"{'-':>16}"


def _round(value: float | None) -> float | None:
    return None if value is None else round(value, 1)
