"""What is remembered is stored when something happened, not whenever an average moved a little."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, strategies as st

from policy_environment import PolicyEnvironment, RunPolicy
from strategy_testing.clusters import cluster
from trimtab_operator.state.strategy_state import STORE_EVERY, PolicyState, PolicyStateStore, drifted
from trimtab_strategies.model import Memory


@pytest.mark.parametrize(
    ("before", "after", "little"),
    [
        ({"ema": 0.5}, {"ema": 0.51}, True),
        ({"ema": 0.5}, {"ema": 0.53}, False),
        ({"usage": 80.0}, {"usage": 81.0}, True),
        ({"usage": 80.0}, {"usage": 84.0}, False),
        ({"hits": 1}, {"hits": 2}, False),
        ({"hits": 1}, {"hits": 1}, True),
        ({"a": 0.5}, {"b": 0.5}, False),
        ([0.5], [0.5, 0.5], False),
        ({"moved": 1.7e9}, {"moved": 1.7e9 + 599}, True),
        ({"moved": 1.7e9}, {"moved": 1.7e9 + 601}, False),
        ({"of": "x"}, {"of": "y"}, False),
        ({"ema": 0.5}, {"ema": None}, False),
    ],
)
def test_fractions_may_drift_and_nothing_else(before: Any, after: Any, little: Any) -> None:
    assert drifted(before, after) is little


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
)


@given(JSON)
def test_what_is_the_same_has_not_changed(value: Any) -> None:
    assert drifted(value, json.loads(json.dumps(value)))


@pytest.mark.apiserver
def test_an_idle_cycle_writes_nothing_but_one_status(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        await env.cycle()
        await env.cycle()
        for level in (0.501, 0.502, 0.503):
            env.requests.clear()
            env.source = type(env.source)(cluster(bundles=4, a=level, b=0.5, c=0.5))
            await env.cycle()
            assert {verb: n for verb, n in env.requests.items() if verb in {"create", "patch", "delete"}} == {
                "patch": 1
            }

        env.clock += STORE_EVERY
        before = env.memory()
        await env.cycle()
        assert env.memory() != before, "in the end what drifted is stored, too"

    run_policy(cluster(bundles=4, a=0.5, b=0.5, c=0.5), scenario)


@pytest.mark.apiserver
def test_each_move_of_a_steady_stream_is_stored_immediately(run_policy: RunPolicy) -> None:
    """Whenever a move is recorded, one of an hour ago is dropped, so the record keeps its length."""

    async def scenario(env: PolicyEnvironment) -> None:
        store = PolicyStateStore(env.cluster.api, env.namespace, "stream", env.loop.uid, clock=lambda: 0.0)
        reader = PolicyStateStore(env.cluster.api, env.namespace, "stream", env.loop.uid)
        state = PolicyState(moves=tuple((1.8e9 + 60 * k, 1) for k in range(60)))
        await store.save(state)

        for k in (60, 61):
            state = state.after(Memory(), 1, 1.8e9 + 60 * k)
            await store.save(state)
            assert len(state.moves) == 60
            assert await reader.load() == state

    run_policy(cluster(a=0.5, b=0.5), scenario)
