"""Splits by Pulsar that a former leader has begun: the new one continues them, and fails none."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from policy_environment import PolicyEnvironment
from pulsar_in_memory import InMemoryPulsar
from pulsar_splits import PulsarSplitOperator, ask
from trimtab_operator.pulsar.client.errors import SplitRefusedError
from trimtab_operator.splits.controller import SplitController
from trimtab_operator.splits.declarative import DeclarativeSplitExecutor
from trimtab_operator.splits.pulsar import ChosenSplitExecutor
from trimtab_operator.state.policies import Claim

pytestmark = pytest.mark.apiserver


def test_a_new_leader_leaves_a_split_until_the_policies_say_who_carries_it_out(divide: Callable[..., None]) -> None:
    async def scenario(env: PolicyEnvironment, operator: PulsarSplitOperator) -> None:
        declarative = DeclarativeSplitExecutor(env.cluster.api, env.namespace, env.cluster.now)
        chosen = ChosenSplitExecutor(env.cluster, lambda: operator.admin, declarative)
        operator.splits = SplitController(env.cluster, chosen)
        spec, env.cluster.link.spec = env.cluster.link.spec, None
        env.edit(pulsar={"adminUrl": "http://pulsar:8080"})
        ask(env, 0.5)

        await operator.round()
        assert set(env.bundles()) == set(env.names.values()), "no child was created"
        env.cluster.policies.claims["main"] = Claim("main", "", idle=True)
        await operator.round()
        assert set(env.bundles()) == set(env.names.values()), "the policy is invalid"

        env.cluster.link.spec = spec
        assert (await operator.finish())["phase"] == "Completed"
        assert operator.mirrored() == operator.truth()

    divide(scenario)


@pytest.mark.parametrize("positions", [(0.5,), (0.3, 0.5)])
def test_a_split_that_a_former_leader_has_asked_for_is_not_refused(
    divide: Callable[..., None], positions: tuple[float, ...]
) -> None:
    async def scenario(env: PolicyEnvironment, operator: PulsarSplitOperator) -> None:
        operator.admin.inner = _UnderWay(operator.pulsar)
        ask(env, *positions)

        status = await operator.finish()

        assert status["phase"] == "Completed", status
        assert operator.mirrored() == operator.truth()

    divide(scenario)


class _UnderWay:
    """A cluster that refuses the first request to split a bundle, because it still carries out an earlier one."""

    def __init__(self, inner: InMemoryPulsar) -> None:
        self._inner, self._earlier = inner, list[tuple[str, Sequence[int]]]()
        self._refused, self._reads = False, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    async def split(self, bundle: str, positions: Sequence[int]) -> None:
        """See `Admin`."""
        if self._refused:
            await self._inner.split(bundle, positions)
        else:
            self._refused = len(positions) == 1
            self._earlier = [(bundle, positions)]
            raise SplitRefusedError(f"{bundle} not found under namespace", status=500)

    async def boundaries(self, namespace: str) -> tuple[int, ...]:
        """See `Admin`. The earlier request is carried out before the third call after the refusal."""
        self._reads += self._refused
        for bundle, positions in self._earlier if self._reads == 3 else ():
            await self._inner.split(bundle, positions)
        return await self._inner.boundaries(namespace)
