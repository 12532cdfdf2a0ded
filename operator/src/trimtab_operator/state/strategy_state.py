"""The state of a policy between cycles and restarts, in one ConfigMap: memory of strategies, moves of the last hour.

The state is small (a few numbers per broker), so it lives in the API server. Load history is in Parquet.

Averages change a little in every cycle. A small change is stored only after ten minutes: with averages of that age, a
new leader makes the same decisions as with the newest ones. A hit, a move, a planned destination or a new broker is
stored immediately.
"""

from __future__ import annotations

import json
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any, NamedTuple, Self

from trimtab_operator.kube.client import Api
from trimtab_operator.kube.config_map_store import ConfigMapStore, PolicyOwner, StoredFormat, check_version, reading
from trimtab_operator.kube.naming import policy_part
from trimtab_operator.state.competing_balancer import NO_COMPETITION, Competition
from trimtab_operator.state.ownership_changes import HOUR
from trimtab_pipeline.prometheus.response_limits import json_of
from trimtab_strategies.model import Memory

_KEY = "memory.json"

CLOSE = 600.0
"""Maximum number of seconds from the start of a cycle until its moves are written. Children of its splits move last."""


class StrategyNames(NamedTuple):
    """Types of a policy's strategies, as its spec names them; the splitter's is empty when there is none."""

    shedder: str = ""
    placement: str = ""
    splitter: str = ""


NO_STRATEGIES = StrategyNames()
"""Value while the strategies are unknown."""


@dataclass(frozen=True, slots=True)
class PolicyState:
    """The stored state of a policy.

    strategies: the memory of the strategies. of: the types of those strategies; strategies of other types do not read
    this memory.
    epoch: the epoch of the leader that stored the state.
    competition: what is known of a competing balancer.
    moves: (epoch seconds, how many) of each cycle of the last hour that moved something. There is one entry per cycle
    and not per move, because a ConfigMap holds a mebibyte and a policy may allow 100,000 moves an hour.
    """

    strategies: Memory = field(default_factory=Memory)
    moves: tuple[tuple[float, int], ...] = ()
    epoch: int = 0
    of: StrategyNames = NO_STRATEGIES
    competition: Competition = NO_COMPETITION

    def memory_for(self, strategies: StrategyNames) -> Memory:
        """The memory of these strategies. A strategy that replaced another one starts without memory."""
        parts = zip(("shedder", "placement", "splitter"), self.of, strategies, strict=True)
        others = [part for part, wrote, reads in parts if wrote not in {"", reads}]
        return replace(self.strategies, **{part: {} for part in others})

    def after(self, strategies: Memory, count: int, now: float) -> Self:
        """The state after a cycle that left the memory `strategies` and made `count` moves `now` (epoch seconds).

        A time in the future, as after a clock was set back, counts as now. Otherwise its moves would count for
        more than an hour.
        """
        recent = tuple((min(t, now), n) for t, n in self.moves if now - t < HOUR)
        return replace(self, strategies=strategies, moves=(*recent, (now, count)) if count else recent)

    def moved_last_hour(self, now: float) -> int:
        """How many moves the policy made within the hour before `now`."""
        return sum(n for t, n in self.moves if now - t < HOUR)

    def caught_up(self, moved: Iterable[float]) -> Self:
        """The state with the moves that were made but not recorded: a leader can die, and an answer can get lost.

        moved: when each bundle was last moved (epoch seconds, perhaps without fractions), by its `spec.assignment`.
        Each recorded move accounts for one of these times that is at most `CLOSE` away.
        """
        recorded, used = deque(sorted(self.moves)), 0  # used: how many moves of recorded[0] are accounted for
        missing = Counter[float]()
        for at in sorted(moved):
            while recorded and (recorded[0][0] < at - CLOSE or recorded[0][1] <= used):
                recorded.popleft()
                used = 0
            if recorded and recorded[0][0] <= at + CLOSE:
                used += 1
            else:
                missing[at] += 1
        return replace(self, moves=(*self.moves, *missing.items())) if missing else self

    def to_json(self) -> str:
        """The state as JSON, to be stored. Equal states give equal texts."""
        value = {
            "version": 1,
            "shedder": self.strategies.shedder,
            "placement": self.strategies.placement,
            "splitter": self.strategies.splitter,
            "moves": self.moves,
            "epoch": self.epoch,
            "of": self.of,
            "fight": (self.competition.undone, self.competition.until, self.competition.retreats),
        }
        return json.dumps(value, sort_keys=True, default=dict)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read back; raises `UnreadableContentError` when it is not what `to_json` wrote."""
        with reading("memory"):
            value = json_of(text)
            check_version("memory", value["version"])
            memory = Memory(dict(value["shedder"]), dict(value["placement"]), dict(value.get("splitter", {})))
            moves = tuple((float(t), int(n)) for t, n in value["moves"])
            of = StrategyNames(*value.get("of", NO_STRATEGIES))
            undone, until, retreats = value.get("fight", ((), 0.0, 0))
            competition = Competition(tuple(map(float, undone)), float(until), int(retreats))
            return cls(memory, moves, int(value["epoch"]), of, competition)


STATE_FORMAT: StoredFormat[PolicyState] = StoredFormat(
    encode=lambda state, _: {_KEY: state.to_json()},
    decode=lambda texts: PolicyState.from_json(texts.get(_KEY, "")),
    inherit=lambda state: PolicyState(epoch=state.epoch),
    epoch=lambda state: state.epoch,
)


@dataclass(slots=True)
class PolicyStateStore:
    """Keeps one policy's `PolicyState` in the ConfigMap ``trimtab-memory-<policy>``, which the policy owns.

    If that name is too long, it is shortened with a hash. clock: monotonic seconds.
    """

    api: Api
    namespace: str
    policy: str
    uid: str
    clock: Callable[[], float] = time.monotonic
    _store: ConfigMapStore[PolicyState] = field(init=False)
    _written_at: float = -inf

    def __post_init__(self) -> None:
        owner, name = PolicyOwner(self.policy, self.uid), policy_part("memory", self.policy)
        self._store = ConfigMapStore(self.api, self.namespace, name, STATE_FORMAT, owner)

    async def load(self) -> PolicyState:
        """The state that was stored last, or an empty one. Raises `UnreadableContentError`, `ApiError`."""
        return await self._store.load() or PolicyState()

    async def save(self, state: PolicyState) -> None:
        """Store `state`, unless it is stored already, or only averages drifted a little since a recent write.

        Raises `ApiError`: `ConflictError` when a later leader wrote it.
        """
        now, stored = self.clock(), self._store.stored
        if stored is not None:
            before, after = stored.to_json(), state.to_json()
            may_wait = stored.moves == state.moves and now - self._written_at < STORE_EVERY
            if before == after or (may_wait and drifted(json.loads(before), json.loads(after))):
                return
        await self._store.save(state)
        self._written_at = now


STORE_EVERY = 600.0
"""Seconds after which a drifted state is stored, too."""


LITTLE = 0.02
"""Ratio by which a number may drift. For a number below 1 it is the absolute difference."""


A_MOMENT = 1e8
"""Numbers above it are times (epoch seconds). They may differ by `STORE_EVERY`."""


def drifted(before: Any, after: Any) -> bool:
    """Whether two JSON values differ only in fractions that drifted a little. Counts (whole numbers) must be equal."""
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        return before.keys() == after.keys() and all(drifted(before[key], after[key]) for key in before)
    if isinstance(before, list) and isinstance(after, list):
        return len(before) == len(after) and all(map(drifted, before, after))
    if isinstance(before, float) and isinstance(after, float):
        return _close(before, after)
    return bool(before == after)


def _close(before: float, after: float) -> bool:
    if before == after:  # also true for infinite numbers
        return True
    if before > A_MOMENT and after > A_MOMENT:
        return abs(after - before) <= STORE_EVERY
    return abs(after - before) <= LITTLE * max(1.0, abs(before))
