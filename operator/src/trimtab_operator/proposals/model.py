"""`Proposal`: one whole plan as it is shown, stored and carried out, with its cost to clients.

It is a value of plain Python: arrays become tuples of rounded numbers. So the stored proposal equals the shown one, and
proposals can be compared. The cost is the number of connections and topics that its moves interrupt, and for how long.
"""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, fields as dataclass_fields, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
from pydantic import TypeAdapter

from trimtab_operator.kube import naming
from trimtab_operator.kube.conditions import timestamp
from trimtab_operator.kube.config_map_store import UnreadableContentError, check_version, reading
from trimtab_operator.kube.move_costs import NOT_MEASURED, Measured, in_seconds
from trimtab_operator.observe.snapshot import trusted_only
from trimtab_operator.resources.bundle_split import MOST_BOUNDARIES
from trimtab_operator.resources.policy_status import SHOWN, ProposalState
from trimtab_pipeline.prometheus.response_limits import json_of
from trimtab_strategies.model import CPU, RESOURCES, ClusterLoad, Move, Plan, Split, counted
from trimtab_strategies.model.cluster_load import FloatArray


@dataclass(frozen=True, slots=True)
class Cost:
    """How many clients the moves and splits interrupt, and for how long.

    connections: producers and consumers. unknown: bundles whose topics are not known. seconds: the expected duration.
    For each bundle, the median of its namespace's latest moves is taken. `seconds` is the median of these.
    worst: the longest measured duration. `seconds` and `worst` are None if no move was measured.
    unmeasured: bundles in namespaces without a measured move; None if moves are not measured at all.
    """

    connections: int
    topics: int
    unknown: int = 0
    seconds: float | None = None
    worst: float | None = None
    unmeasured: int | None = None

    def __str__(self) -> str:
        unknown = f"; for {counted(self.unknown, 'bundle')} they are unknown" if self.unknown else ""
        return f"{counted(self.connections, 'connection')}, {counted(self.topics, 'topic')}{unknown}{self.duration}"

    @property
    def duration(self) -> str:
        """Text about the duration, to append to a sentence; empty where moves are not measured."""
        if self.seconds is None or self.worst is None:
            return "; for how long is not measured yet" if self.unmeasured else ""
        rest = f"; for {counted(self.unmeasured, 'bundle')} not measured yet" if self.unmeasured else ""
        return f"; publishers for about {in_seconds(self.seconds)}, {in_seconds(self.worst)} the longest sampled{rest}"


def cost(bundles: Sequence[str], load: ClusterLoad | None, measured: Measured | None = None) -> Cost:
    """The cost of moving or splitting `bundles`, by their topics and sessions in `load`.

    measured: costs of earlier moves; None where nothing measures moves.
    """
    connections, topics, unknown = _interrupted(bundles, load)
    if measured is None:
        return Cost(connections, topics, unknown)
    of = [measured.get(bundle.rpartition("/")[0], NOT_MEASURED).publish_gap for bundle in bundles]
    known = [summary for summary in of if summary is not None]
    return Cost(
        connections,
        topics,
        unknown,
        seconds=round(float(np.median([summary.median for summary in known])), 3) if known else None,
        worst=round(max(summary.longest for summary in known), 3) if known else None,
        unmeasured=len(of) - len(known),
    )


def _interrupted(bundles: Sequence[str], load: ClusterLoad | None) -> tuple[int, int, int]:
    if load is None:
        return 0, 0, len(bundles)
    rows = np.array([load.bundles.index[name] for name in bundles if name in load.bundles.index], dtype=np.int64)
    sessions, topics = load.bundles.sessions[rows], load.bundles.topics[rows]
    known = np.isfinite(sessions) & np.isfinite(topics)
    return int(sessions[known].sum()), int(topics[known].sum()), len(bundles) - int(known.sum())


Percents = tuple[tuple[float | None, ...], ...]
"""(brokers, resources) percent of the limit, columns as in `RESOURCES`; None unknown."""


_LATEST = 253_402_300_800.0  # epoch seconds of the year 10000
_PLAIN = ("id", "generation", "made_at", "expires_at", "names", "brokers", "before", "after", "drained")
"""Fields that are stored as they are."""


@dataclass(frozen=True)
class Proposal:
    """A plan that a person can approve.

    id: eight hex digits of a hash of `generation`, `made_at`, and the moves and splits.
    generation: the policy's generation. made_at, expires_at: epoch seconds.
    moves, splits: they name bundles as Pulsar spells them. names: the names of their Bundle objects, moves first.
    drained: brokers that were to be emptied when it was made.
    """

    id: str
    generation: int
    made_at: float
    expires_at: float
    moves: tuple[Move, ...]
    splits: tuple[Split, ...]
    names: tuple[str, ...]
    brokers: tuple[str, ...]
    before: Percents
    after: Percents
    cost: Cost
    drained: tuple[str, ...] = ()

    @classmethod
    def of(
        cls,
        plan: Plan,
        load: ClusterLoad | None,
        *,
        names: Mapping[str, str],
        generation: int,
        made_at: float,
        expires_after: float = math.inf,
        measured: Measured | None = None,
        drained: Collection[str] = (),
    ) -> Self:
        """The proposal of `plan`, which was made from `load`.

        names: bundle as Pulsar spells it -> name of its Bundle object. made_at: epoch seconds. expires_after: seconds
        from then.
        measured: costs of earlier moves; None where nothing measures moves.
        """
        touched = plan.bundles
        made = cls(
            id="",
            generation=generation,
            made_at=made_at,
            expires_at=made_at + expires_after,
            moves=plan.moves,
            splits=plan.splits,
            names=tuple(names.get(bundle, bundle) for bundle in touched),
            brokers=plan.brokers,
            before=_percents(trusted_only(plan.before, load)),
            after=_percents(trusted_only(plan.after, load)),
            cost=cost(touched, load, measured),
            drained=tuple(sorted(drained)),
        )
        return replace(made, id=made.digest)

    @property
    def digest(self) -> str:
        """The value of `id`."""
        moves = [(move.bundle, move.source, move.destination) for move in self.moves]
        splits = [(split.bundle, split.boundaries, split.destinations) for split in self.splits]
        return naming.digest(json.dumps([self.generation, self.made_at, moves, splits]))

    @property
    def empty(self) -> bool:
        """Whether the proposal has no moves and no splits."""
        return not self.moves and not self.splits

    @cached_property
    def destinations(self) -> frozenset[str]:
        """Brokers that get bundles."""
        return frozenset(move.destination for move in self.moves)

    @cached_property
    def sources(self) -> frozenset[str]:
        """Brokers that lose bundles."""
        return frozenset(move.source for move in self.moves if move.source)

    @cached_property
    def ranges(self) -> list[dict[str, Any]]:
        """The lowest and highest usage of a broker, percent, before and after the moves, for each known resource."""
        return _ranges(self.before, self.after)

    def to_json(self) -> str:
        """The whole proposal as JSON, to be stored."""
        plain = {name: getattr(self, name) for name in _PLAIN}
        value = {
            "version": 1,
            **plain,
            "moves": [(m.bundle, m.source, m.destination, m.reason, _known(m.load)) for m in self.moves],
            "splits": [asdict(split) for split in self.splits],
            "cost": asdict(self.cost),
        }
        return json.dumps(value, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> Self:
        """The proposal that `to_json` wrote. Raises `UnreadableContentError` for any other text."""
        with reading("the proposal"):
            value = json_of(text)
            check_version("the proposal", value.pop("version"))
            moves = [dict(zip(_OF_A_MOVE, move, strict=True)) for move in value.pop("moves")]
            for move in moves:
                move["load"] = math.nan if move["load"] is None else move["load"]
            if unknown := sorted(value.keys() - {field.name for field in dataclass_fields(cls)}):
                raise UnreadableContentError(f"the proposal has the unknown field {unknown[0]!r:.100}")
            found: Self = _fitting(_STORED.validate_python({**value, "moves": moves}))
            return found

    def shown(self, state: ProposalState | None = None, message: str = "") -> dict[str, Any]:
        """The proposal as the policy's status shows it.

        All fields are set, so that a merge-patch replaces an older proposal completely.
        """
        offered, ranges = state is not None, self.ranges
        cpu = next((r for r in ranges if r["resource"] == RESOURCES[CPU]), {"before": None, "after": None})
        return {
            **blank(state, message),
            "id": self.id if offered else None,
            "madeAt": timestamp(self.made_at),
            "expiresAt": timestamp(self.expires_at) if offered and math.isfinite(self.expires_at) else None,
            "moves": [_shown_move(*pair) for pair in zip(self.moves[:SHOWN], self.names, strict=False)],
            "total": len(self.moves),
            "splits": [
                _shown_split(*pair) for pair in zip(self.splits[:SHOWN], self.names[len(self.moves) :], strict=False)
            ],
            "totalSplits": len(self.splits),
            "cpuBefore": cpu["before"],
            "cpuAfter": cpu["after"],
            "ranges": ranges,
            "brokers": _changes(self.brokers, self.before, self.after),
            "cost": asdict(self.cost) if not self.empty else None,
        }


def blank(state: ProposalState | None, message: str) -> dict[str, Any]:
    """The status while there is no proposal."""
    lists = dict[str, Any](moves=[], splits=[], ranges=[], brokers=[], total=0, totalSplits=0)
    absent = dict.fromkeys(("id", "madeAt", "expiresAt", "cpuBefore", "cpuAfter", "cost"))
    return {"state": None if state is None else str(state), "message": message or None, **lists, **absent}


_STORED = TypeAdapter(Proposal)
_OF_A_MOVE = ("bundle", "source", "destination", "reason", "load")


def _fitting(found: Any) -> Any:
    """Return a proposal that was read. Raises `UnreadableContentError` if a part does not fit the others."""
    if len(found.names) != len(found.moves) + len(found.splits):
        raise UnreadableContentError(f"the proposal has {len(found.names)} names, not one for each move and split")
    for usage in (found.before, found.after):
        if len(usage) != len(found.brokers) or any(len(row) != len(RESOURCES) for row in usage):
            raise UnreadableContentError("the proposal's table of usage does not fit its brokers and resources")
    storable_time(found.made_at)
    if found.expires_at != math.inf:
        storable_time(found.expires_at)
    return found


def storable_time(value: Any) -> float:
    """Return a stored time (epoch seconds). Raises `ValueError` or `TypeError` if it can't be shown."""
    found = float(value)
    if not 0 <= found < _LATEST:
        raise ValueError(f"{found:g} is not a time")
    return found


def _percents(usage: FloatArray) -> Percents:
    return tuple(tuple(_known(round(float(value), 2)) for value in row) for row in usage)


def _known(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _shown_move(move: Move, name: str) -> dict[str, Any]:
    return {"bundle": name, "source": move.source, "destination": move.destination, "reason": str(move.reason)}


def _shown_split(split: Split, name: str) -> dict[str, Any]:
    at = [f"0x{boundary:08x}" for boundary in split.boundaries]
    owners = list(split.destinations[: MOST_BOUNDARIES + 1])
    return {"bundle": name, "boundaries": at[:MOST_BOUNDARIES], "reason": str(split.reason), "destinations": owners}


def _ranges(before: Percents, after: Percents) -> list[dict[str, Any]]:
    """The lowest and the highest usage of a broker, in percent, for each resource with a known usage.

    A resource that is not measured, usually direct memory, has usage 0 and is left out.
    """
    ranges = []
    for column, resource in enumerate(RESOURCES):
        now, then = (_range([row[column] for row in rows]) for rows in (before, after))
        if now is not None and then is not None and (now["highest"] or then["highest"]):
            ranges.append({"resource": resource, "before": now, "after": then})
    return ranges


def _range(values: list[float | None]) -> dict[str, float] | None:
    known = [value for value in values if value is not None]
    return {"lowest": round(min(known), 1), "highest": round(max(known), 1)} if known else None


def _changes(brokers: tuple[str, ...], before: Percents, after: Percents) -> list[dict[str, Any]]:
    """CPU of the brokers whose CPU changes most, largest change first."""
    known = [
        (name, now[CPU], then[CPU])
        for name, now, then in zip(brokers, before, after, strict=True)
        if now[CPU] is not None and then[CPU] is not None
    ]
    most = sorted(known, key=lambda change: (-abs(change[2] - change[1]), change[0]))[:SHOWN]  # type: ignore[operator]
    return [{"broker": name, "before": now, "after": then} for name, now, then in most]
