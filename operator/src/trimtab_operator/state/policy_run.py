"""`PolicyRun`: what one turn of a policy's loop works with, from start to end."""

from __future__ import annotations

from dataclasses import dataclass, replace

from trimtab_operator.actuators import Actuator
from trimtab_operator.state.settings import Settings
from trimtab_operator.state.strategy_state import PolicyState
from trimtab_pipeline.api import LoadSource
from trimtab_strategies.model import Memory


@dataclass(frozen=True, slots=True)
class PolicyRun:
    """The policy's settings, the actuator that writes in its name, its source of load, and what it remembers."""

    settings: Settings
    actuator: Actuator
    source: LoadSource
    remembered: PolicyState

    @property
    def memory(self) -> Memory:
        """What the strategies remember."""
        return self.remembered.memory_for(self.settings.strategies)

    @property
    def forgetful(self) -> PolicyRun:
        """The same turn, in which the strategies remember nothing."""
        return replace(self, remembered=replace(self.remembered, strategies=Memory()))
