"""The state of one policy while its loop runs: loaded once per start, and stored after each change.

`moved_lately` finds moves in Bundles. The state may lack some of them, because the leader died before it stored them,
or because the answer to a write was lost. Without them the policy would exceed the hourly cap.
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

    state: the current state, even if it could not be stored; None before the first `recall`. aside: number of approved
    moves that were written since the current cycle began.
    """

    cluster: ClusterState
    store: PolicyStateStore
    publisher: StatusPublisher
    read: Callable[[], Mapping[str, Any]]
    state: PolicyState | None = None
    aside: int = field(default=0)

    async def recall(self) -> PolicyState:
        """The stored state, with the leader's epoch. Without leader election, each start raises the epoch by one.

        Raises `ApiError`.
        """
        if self.state is None:
            try:
                found = await self.store.load()
            except UnreadableContentError as error:
                await self.publisher.state_reset(f"the policy begins without its stored state: {error}")
                found = PolicyState()
            found = self._caught_up(found)
            await self.keep(replace(found, epoch=self.cluster.process.epoch or found.epoch + 1))
        return self.state or PolicyState()

    async def recall_moves(self) -> PolicyState:
        """Like `recall`, with all moves that Bundles record. Reads every Bundle. Raises `ApiError`."""
        self.state = self._caught_up(await self.recall())
        return self.state

    def _caught_up(self, state: PolicyState) -> PolicyState:
        return state.caught_up(
            moved_lately(self.cluster.stores.bundles.items.values(), self.read(), self.cluster.now())
        )

    async def keep(self, state: PolicyState) -> PolicyState:
        """Set `state`, then store it. If it can't be stored, it stays set, because the moves in it were made."""
        self.state = state
        try:
            await self.store.save(state)
        except ApiError as error:
            await self.publisher.state_reset(f"the state is not stored and would not survive a restart: {error}")
        return state


def moved_lately(bundles: Iterable[BundleRecord], policy: Mapping[str, Any], now: float) -> list[float]:
    """Epoch seconds of the last move of each bundle that `policy` (JSON) moved within the hour before `now`."""
    meta = policy["metadata"]
    born = epoch(meta.get("creationTimestamp"))  # a policy of the same name may have existed before
    moved = (b.assigned_at for b in bundles if b.policy == meta["name"] and b.reason in CAPPED)
    return [at for at in moved if 0 <= now - at < HOUR and not at < born]
