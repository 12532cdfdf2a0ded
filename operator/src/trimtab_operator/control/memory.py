"""What a policy remembers between cycles and restarts: strategy memory and the times of its moves, in one ConfigMap.

It is small (a number or two per broker), so it lives in the API server, not on a disk; load history is in Parquet.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from trimtab_operator.cluster.api import CONFIG_MAPS, Api, NotFoundError
from trimtab_operator.resources.common import API_VERSION
from trimtab_strategies.model import Memory

_HOUR = 3600.0
_KEY = "memory.json"


class ForeignMemoryError(ValueError):
    """The ConfigMap holds something that is not ours; says how to remedy it."""


@dataclass(frozen=True, slots=True)
class Remembered:
    """Strategy memory of a policy, the epoch seconds of its moves in the last hour, and how often an operator began."""

    strategies: Memory = field(default_factory=Memory)
    moved_at: tuple[float, ...] = ()
    epoch: int = 0

    def moved(self, count: int, now: float) -> tuple[float, ...]:
        """Times of the moves of the last hour, with `count` made `now`."""
        return (*(t for t in self.moved_at if now - t < _HOUR), *([now] * count))

    def moved_last_hour(self, now: float) -> int:
        """How many moves the policy made within the hour before `now`."""
        return sum(now - t < _HOUR for t in self.moved_at)

    def to_json(self) -> str:
        """As stored. The same value gives the same text."""
        value = {
            "version": 1,
            "shedder": self.strategies.shedder,
            "placement": self.strategies.placement,
            "movedAt": self.moved_at,
            "epoch": self.epoch,
        }
        return json.dumps(value, sort_keys=True, default=dict)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read back; raises `ForeignMemoryError` when it is not what `to_json` wrote."""
        try:
            value = json.loads(text)
            if value["version"] != 1:
                raise ForeignMemoryError(f"memory has version {value['version']}, this Trimtab reads version 1")
            memory = Memory(shedder=value["shedder"], placement=value["placement"])
            return cls(memory, tuple(map(float, value["movedAt"])), int(value["epoch"]))
        except (KeyError, TypeError, json.JSONDecodeError) as error:
            raise ForeignMemoryError(f"memory is not what Trimtab writes ({error}); delete the ConfigMap") from error


@dataclass(slots=True)
class MemoryStore:
    """Keeps one policy's `Remembered` in the ConfigMap ``trimtab-memory-<policy>``, which the policy owns."""

    api: Api
    namespace: str
    policy: str
    uid: str
    _written: str = ""

    @property
    def name(self) -> str:
        """Name of the ConfigMap."""
        return f"trimtab-memory-{self.policy}"

    async def load(self) -> Remembered:
        """What was remembered last, or nothing yet. Raises `ForeignMemoryError`, `ApiError`."""
        try:
            found = await self.api.get(CONFIG_MAPS, self.namespace, self.name)
        except NotFoundError:
            return Remembered()
        self._written = (found.get("data") or {}).get(_KEY, "")
        return Remembered.from_json(self._written)

    async def save(self, remembered: Remembered) -> None:
        """Remember, unless nothing changed. Raises `ApiError`."""
        text = remembered.to_json()
        if text == self._written:
            return
        try:
            await self.api.patch(CONFIG_MAPS, self.namespace, self.name, {"data": {_KEY: text}})
        except NotFoundError:
            await self.api.create(CONFIG_MAPS, self.namespace, self._manifest(text))
        self._written = text

    def _manifest(self, text: str) -> Mapping[str, Any]:
        owner = {"apiVersion": API_VERSION, "kind": "BalancingPolicy", "name": self.policy, "uid": self.uid}
        return {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": self.name, "ownerReferences": [owner]},
            "data": {_KEY: text},
        }
