"""The state of one policy while its loop runs: recalled once per start, and stored after each change.

`moved_lately` finds moves that bundles carry and the state lacks, because the leader died in between, or because the
answer to the write got lost. Without them the policy would exceed the hourly cap.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from trimtab_operator.kube.client import ApiError
from trimtab_operator.kube.conditions import epoch
from trimtab_operator.kube.config_map_store import UnreadableContentError
from trimtab_operator.kube.records import BundleRecord
from trimtab_operator.state.cluster import ClusterState
from trimtab_operator.state.ownership_changes import BALANCING, HOUR
from trimtab_operator.state.strategy_state import PolicyState, PolicyStateStore
from trimtab_operator.status.publisher import StatusPublisher
from trimtab_strategies.planner.drain import EVACUATIONS

CAPPED = BALANCING | EVACUATIONS
"""Reasons of moves that the caps count."""


@dataclass(slots=True)
class PolicyMemory:
    """Keeps the `PolicyState` of one policy. read: returns the policy object as it is now (JSON).

    state: as last stored; None before the first `recall`. aside: approved moves that were written since the cycle
    that is running began.
    """

    cluster: ClusterState
    store: PolicyStateStore
    publisher: StatusPublisher
    read: Callable[[], Mapping[str, Any]]
    state: PolicyState | None = None
    aside: int = field(default=0)

    async def recall(self) -> PolicyState:
        """The state as stored, with the leader's epoch; without an election each start counts as one.

        Raises `ApiError`.
        """
        if self.state is None:
            try:
                found = await self.store.load()
            except UnreadableContentError as error:
                await self.publisher.state_reset(f"begins without memory: {error}")
                found = PolicyState()
            found = self._caught_up(found)
            await self.keep(replace(found, epoch=self.cluster.process.epoch or found.epoch + 1))
        return self.state or PolicyState()

    async def recall_moves(self) -> PolicyState:
        """The same, with all moves that bundles carry. It reads every bundle. Raises `ApiError`."""
        self.state = self._caught_up(await self.recall())
        return self.state

    def _caught_up(self, state: PolicyState) -> PolicyState:
        return state.caught_up(
            moved_lately(self.cluster.stores.bundles.items.values(), self.read(), self.cluster.now())
        )

    async def keep(self, state: PolicyState) -> PolicyState:
        """Set `state`, then store it. It stays set if it can't be stored, because the moves in it were made."""
        self.state = state
        try:
            await self.store.save(state)
        except ApiError as error:
            await self.publisher.state_reset(f"memory is not stored and would not survive a restart: {error}")
        return state


def moved_lately(bundles: Iterable[BundleRecord], policy: Mapping[str, Any], now: float) -> list[float]:
    """When (epoch seconds) each bundle that `policy` (as JSON) moved within the hour before `now` was moved last."""
    meta = policy["metadata"]
    born = epoch(meta.get("creationTimestamp"))  # a policy of the same name may have existed before
    moved = (b.assigned_at for b in bundles if b.policy == meta["name"] and b.reason in CAPPED)
    return [at for at in moved if 0 <= now - at < HOUR and not at < born]
