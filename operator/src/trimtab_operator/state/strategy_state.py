"""What a policy remembers between cycles and restarts: strategy memory and the last hour's moves, in one ConfigMap.

It is small (a number or two per broker), so it lives in the API server, not on a disk; load history is in Parquet.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any, NamedTuple, Self

from trimtab_operator.cluster.api import CONFIG_MAPS, Api, ConflictError, NotFoundError
from trimtab_operator.cluster.naming import memory_name
from trimtab_operator.control.drift import STORE_EVERY, drifted
from trimtab_operator.control.rivals import PEACE, Fight
from trimtab_operator.control.turnovers import HOUR
from trimtab_operator.resources.common import API_VERSION
from trimtab_strategies.model import Memory

_KEY = "memory.json"


class Strategies(NamedTuple):
    """Types of a policy's strategies, as its spec names them; the splitter's is empty when there is none."""

    shedder: str = ""
    placement: str = ""
    splitter: str = ""


NO_STRATEGIES = Strategies()
"""Of nobody knows which ones."""


class ForeignMemoryError(ValueError):
    """The ConfigMap holds something that is not ours; says how to remedy it."""


@dataclass(frozen=True, slots=True)
class Remembered:
    """What a policy knows of its past.

    strategies: their own memory. of: which strategies that is, by type; they read nobody else's. epoch: of the leader
    that stored it. quarantine: by bundle, until when (epoch seconds) it is left alone. fight: with a rival.
    moves: (epoch seconds, how many) of each cycle of the last hour that moved something. One entry per cycle and not
    per move, as a ConfigMap holds a mebibyte and a policy may allow 100,000 moves an hour.
    """

    strategies: Memory = field(default_factory=Memory)
    moves: tuple[tuple[float, int], ...] = ()
    epoch: int = 0
    of: Strategies = NO_STRATEGIES
    quarantine: Mapping[str, float] = field(default_factory=dict)
    fight: Fight = PEACE

    def memory_for(self, strategies: Strategies) -> Memory:
        """What these strategies remember: of another one in the place of one of them that one knows nothing."""
        parts = zip(("shedder", "placement", "splitter"), self.of, strategies, strict=True)
        others = [part for part, wrote, reads in parts if wrote not in {"", reads}]
        return replace(self.strategies, **{part: {} for part in others})

    def after(self, strategies: Memory, count: int, now: float) -> Self:
        """What is known once a cycle has left `strategies` behind and made `count` moves `now`.

        A time that is still to come, as after a clock was set back, counts as now: else the hour would not end.
        """
        recent = tuple((min(t, now), n) for t, n in self.moves if now - t < HOUR)
        return replace(self, strategies=strategies, moves=(*recent, (now, count)) if count else recent)

    def moved_last_hour(self, now: float) -> int:
        """How many moves the policy made within the hour before `now`."""
        return sum(n for t, n in self.moves if now - t < HOUR)

    def caught_up(self, moved: Iterable[float]) -> Self:
        """The same, with moves that were made and not noted: a leader can die between moving and remembering.

        moved: when (epoch seconds, perhaps cut to whole ones) bundles were moved last, as they say themselves.
        """
        last, noted = max(self.moves, default=(-inf, 0))
        since = [at for at in moved if at > last - 1]
        missing = len(since) - noted
        return replace(self, moves=(*self.moves, (max(since), missing))) if missing > 0 else self

    def to_json(self) -> str:
        """As stored. The same value gives the same text."""
        value = {
            "version": 1,
            "shedder": self.strategies.shedder,
            "placement": self.strategies.placement,
            "splitter": self.strategies.splitter,
            "moves": self.moves,
            "epoch": self.epoch,
            "of": self.of,
            "quarantine": self.quarantine,
            "fight": (self.fight.undone, self.fight.until, self.fight.retreats),
        }
        return json.dumps(value, sort_keys=True, default=dict)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read back; raises `ForeignMemoryError` when it is not what `to_json` wrote."""
        try:
            value = json.loads(text)
            version = value["version"]
            memory = Memory(dict(value["shedder"]), dict(value["placement"]), dict(value.get("splitter", {})))
            moves = tuple((float(t), int(n)) for t, n in value["moves"])
            of = Strategies(*value.get("of", NO_STRATEGIES))
            quarantine = {str(name): float(until) for name, until in value.get("quarantine", {}).items()}
            undone, until, retreats = value.get("fight", ((), 0.0, 0))
            fight = Fight(tuple(map(float, undone)), float(until), int(retreats))
            found = cls(memory, moves, int(value["epoch"]), of, quarantine, fight)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise ForeignMemoryError(f"memory is not what Trimtab writes ({error!r}); delete the ConfigMap") from error
        if version != 1:
            raise ForeignMemoryError(f"memory has version {version}, this Trimtab reads version 1")
        return found


@dataclass(slots=True)
class MemoryStore:
    """Keeps one policy's `Remembered` in the ConfigMap ``trimtab-memory-<policy>``, which the policy owns.

    A policy whose name is too long for that gets a shortened one with a hash. clock: seconds that don't jump.
    """

    api: Api
    namespace: str
    policy: str
    uid: str
    clock: Callable[[], float] = time.monotonic
    _written: str = ""
    _version: str = ""
    _written_at: float = -inf

    @property
    def name(self) -> str:
        """Name of the ConfigMap."""
        return memory_name(self.policy)

    async def load(self) -> Remembered:
        """What was remembered last, or nothing yet. Raises `ForeignMemoryError`, `ApiError`."""
        try:
            found = await self.api.get(CONFIG_MAPS, self.namespace, self.name)
        except NotFoundError:
            return Remembered()
        self._written, self._version = (found.get("data") or {}).get(_KEY, ""), found["metadata"]["resourceVersion"]
        remembered = Remembered.from_json(self._written)
        if self._of_another(found):  # a policy of our name that is gone, as this is about to be
            self._written = ""
            return Remembered(epoch=remembered.epoch)
        return remembered

    def _of_another(self, config_map: Mapping[str, Any]) -> bool:
        owners = config_map["metadata"].get("ownerReferences") or ()
        return bool(owners) and self.uid not in {owner["uid"] for owner in owners}

    async def save(self, remembered: Remembered) -> None:
        """Remember, unless nothing changed, or averages drifted a little and it is not long since that was stored.

        Raises `ApiError`: `ConflictError` when a later leader wrote it.
        """
        text, now = remembered.to_json(), self.clock()
        lately = now - self._written_at < STORE_EVERY
        if text == self._written or (lately and drifted(json.loads(self._written), json.loads(text))):
            return
        try:
            stored = await self._store(text)
        except ConflictError:
            await self._look_again(remembered.epoch)
            stored = await self._store(text)
        self._written, self._version = text, stored["metadata"]["resourceVersion"]
        self._written_at = now

    async def _store(self, text: str) -> Mapping[str, Any]:
        """Write what is there as it was last seen. `ConflictError`: it is not as it was."""
        meta = {"resourceVersion": self._version, "ownerReferences": [self._owner()]}
        body = {"metadata": meta, "data": {_KEY: text}}
        try:
            if self._version:
                return await self.api.patch(CONFIG_MAPS, self.namespace, self.name, body)
        except NotFoundError:
            self._version = ""
        return await self.api.create(CONFIG_MAPS, self.namespace, self._manifest(text))

    async def _look_again(self, epoch: int) -> None:
        """Somebody wrote it: that is overwritten, unless it was a later leader. Raises `ApiError`."""
        found = await self.api.get(CONFIG_MAPS, self.namespace, self.name)
        try:
            theirs = Remembered.from_json((found.get("data") or {}).get(_KEY, "")).epoch
        except ForeignMemoryError:
            theirs = 0
        if theirs > epoch:
            raise ConflictError(f"{self.name} was written by a later leader, of epoch {theirs}; ours is {epoch}")
        self._version = found["metadata"]["resourceVersion"]

    def _manifest(self, text: str) -> Mapping[str, Any]:
        return {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": self.name, "ownerReferences": [self._owner()]},
            "data": {_KEY: text},
        }

    def _owner(self) -> Mapping[str, str]:
        return {"apiVersion": API_VERSION, "kind": "BalancingPolicy", "name": self.policy, "uid": self.uid}
