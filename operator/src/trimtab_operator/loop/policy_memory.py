"""The state of one policy while its loop runs: recalled once per start, and stored after each change.

`moved_lately` counts moves that bundles carry and the stored state lacks, because the leader died in between. Without
them a new leader would exceed the hourly cap.
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
from trimtab_operator.state.ownership_changes import BALANCING, EVACUATIONS, HOUR
from trimtab_operator.state.strategy_state import PolicyState, PolicyStateStore
from trimtab_operator.status.publisher import StatusPublisher

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
            bundles, cluster = self.cluster.stores.bundles.items.values(), self.cluster
            found = found.caught_up(moved_lately(bundles, self.read(), cluster.now()))
            await self.keep(replace(found, epoch=cluster.process.epoch or found.epoch + 1))
        return self.state or PolicyState()

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
    return [at for at in moved if now - at < HOUR and not at < born]
