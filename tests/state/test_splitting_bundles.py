"""What is believed of bundles that were cut out lately, until they are measured."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from declarative_splits import SplitOperator, splits
from policy_environment import PolicyEnvironment, RunPolicy
from splitting_clusters import large, with_topics
from trimtab_operator.actuators import DryRunActuator
from trimtab_operator.observe.snapshot import observe
from trimtab_operator.state.settings import PolicyRun, Settings
from trimtab_operator.state.splitting_bundles import BELIEVED_FOR, expected, still_expected, with_expected
from trimtab_operator.state.strategy_state import PolicyState
from trimtab_strategies.hash_ring import BundleName, parse_bundle
from trimtab_strategies.model import ClusterLoad, Reason, Split

DRAWING = {"bundles": {"a": [1] * 2, "b": [1]}, "a": 0.8, "b": 0.2}
INSIDE = with_topics(large({}, **DRAWING), {0: [(k / 8, 20 if k < 2 else 5) for k in range(8)]})


def halved(load: ClusterLoad) -> tuple[Split, list[str]]:
    """The split of the first bundle in the middle, and its children."""
    space, lower, upper = parse_bundle(load.bundles.names[0])
    middle = lower + (upper - lower) // 2
    split = Split(load.bundles.names[0], "a", (middle,), Reason.BANDWIDTH)
    return split, [str(BundleName(space, lower, middle)), str(BundleName(space, middle, upper))]


def unmeasured(load: ClusterLoad, name: str) -> ClusterLoad:
    """The load with the first bundle under another name, of which nothing was measured."""
    bundles = load.bundles
    short = bundles.short.copy()
    short[0] = np.nan
    return replace(load, bundles=replace(bundles, names=(name, *bundles.names[1:]), short=short))


def test_children_carry_their_topics_part_of_their_parent() -> None:
    split, children = halved(INSIDE)
    known = expected([split], INSIDE, clock=0.0)

    assert list(known) == children
    parts = [with_expected(unmeasured(INSIDE, child), known).bundles.short[0] for child in children]
    np.testing.assert_allclose(sum(parts), INSIDE.bundles.short[0])
    assert parts[0][2] / INSIDE.bundles.short[0][2] == pytest.approx((2 * 20 + 2 * 5) / (2 * 20 + 6 * 5))


def test_what_was_measured_counts() -> None:
    split, children = halved(INSIDE)
    known = expected([split], INSIDE, clock=0.0)
    measured = replace(INSIDE, bundles=replace(INSIDE.bundles, names=(children[0], *INSIDE.bundles.names[1:])))

    assert with_expected(measured, known) is measured


def test_what_is_never_measured_is_not_trusted_for_ever() -> None:
    split, children = halved(INSIDE)
    known = expected([split], INSIDE, clock=100.0)

    assert list(still_expected(known, 100.0 + BELIEVED_FOR - 1)) == children
    assert still_expected(known, 100.0 + BELIEVED_FOR) == {}


@pytest.mark.apiserver
def test_after_a_split_a_cycle_sees_the_children_with_their_load(run_policy: RunPolicy) -> None:
    load = large({0: {"topics": 10, "throughput": 200}}, bundles={"a": [1] * 4, "b": [1]}, a=0.8, b=0.2, c=0.1)

    async def scenario(env: PolicyEnvironment) -> None:
        await env.reconcile()
        [name] = splits(env)
        await SplitOperator(env).finish(name)

        settings = Settings.of(env.policy())
        run = PolicyRun(settings, DryRunActuator(), env.source, PolicyState())
        seen = await observe(env.cluster, run)

        assert len(seen.load.bundles) == len(load.bundles) + 1
        np.testing.assert_allclose(seen.load.bundles.short.sum(axis=0), load.bundles.short.sum(axis=0))

    calm = {"type": "OverloadShedder", "overloadShedder": {"overloadThreshold": 100}}
    run_policy(load, scenario, shedder=calm, split={"type": "BundleSplitterTask"})
