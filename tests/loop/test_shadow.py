"""A policy in mode Shadow: it decides beside the policy that acts, compares, and writes only what is its own."""

from __future__ import annotations

from typing import Any

import pytest

from plan_clusters import HOT_NONE_EMPTY, LEVEL
from policy_environment import WINDOW, PolicyEnvironment, RunPolicy, eager
from splitting_clusters import large
from trimtab_operator.loop.policy_loop import DISCOVER_WITHIN, PolicyLoop
from trimtab_operator.loop.preview import preview
from trimtab_strategies.model import Reason

pytestmark = pytest.mark.apiserver

SHADOW = {**eager(), "mode": "Shadow"}
STILL = {
    "mode": "Auto",
    "shedder": {"type": "OverloadShedder", "overloadShedder": {"overloadThreshold": 100}},
}
"""A policy that acts, and finds nothing to do."""

KINDS = ("balancingpolicies", "bundles", "brokers", "bundlesplits", "topicnamespaces")


def everything(env: PolicyEnvironment) -> dict[str, str]:
    """The resourceVersion of each object of the namespace that the operator may write."""
    found = {f"{kind}/{name}": version for kind in KINDS for name, version in env.versions(kind).items()}
    for path in (
        f"/api/v1/namespaces/{env.namespace}/configmaps",
        f"/apis/events.k8s.io/v1/namespaces/{env.namespace}/events",
    ):
        for item in env.rest.get(path)["items"]:
            about = item.get("regarding", {}).get("name", "")
            meta = item["metadata"]
            found[f"{path.rpartition('/')[2]}/{about or meta['name']}"] = meta["resourceVersion"]
    return found


async def turn(env: PolicyEnvironment, loop: PolicyLoop, *, after: float = WINDOW) -> set[str]:
    """A turn of one policy's loop, in which a cycle is due; the objects that it wrote."""
    env.clock += after
    await env.seen()
    before = everything(env)
    await loop.reconcile()
    await env.seen()
    after_it = everything(env)
    return {name for name, version in after_it.items() if before.get(name) != version} | (
        before.keys() - after_it.keys()
    )


def spec_of(env: PolicyEnvironment, name: str) -> Any:
    return env.policy(name)["metadata"]["generation"], env.policy(name)["spec"]


def test_it_moves_virtual_bundles_and_writes_only_its_own_status_and_config_maps(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        await env.cycle()
        shadow = env.add_policy("other", **SHADOW)
        owners, asked = env.desired_owners(), spec_of(env, "other")

        written = await turn(env, shadow) | await turn(env, shadow)

        own = {"balancingpolicies/other", "configmaps/trimtab-memory-other", "configmaps/trimtab-shadow-other"}
        assert written - {"events/other"} == own
        assert spec_of(env, "other") == asked
        assert env.desired_owners() == owners
        found = env.status("other")["shadow"]
        assert found["policy"] == "main"
        assert found["shadow"]["moves"] > 0 == found["acting"]["moves"]
        assert found["displaced"] == found["shadow"]["moves"]
        assert found["shadow"]["range"] < found["acting"]["range"]
        assert found["summary"].startswith(f"{found['shadow']['moves']} : 0 moves")
        assert env.condition("Acting", "other") == ("False", "Shadow")
        assert env.condition("ShadowBetter", "other") == ("Unknown", "TooEarly")
        assert env.condition("Ready", "other") == env.condition("Ready") == ("True", "Cycled")

    run_policy(HOT_NONE_EMPTY, scenario, **STILL)


def test_its_next_cycle_sees_its_own_moves_as_landed(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        await env.cycle()
        shadow = env.add_policy("other", **SHADOW)
        await turn(env, shadow)
        before = env.status("other")
        assert before["proposal"]["total"] > 0

        for _ in range(3):
            await turn(env, shadow)

        after = env.status("other")
        assert after["proposal"]["cpuBefore"]["highest"] < before["proposal"]["cpuBefore"]["highest"]
        assert after["lastCycle"]["outcome"] == Reason.BALANCED
        assert env.condition("Balanced", "other") == ("True", "Balanced")

    run_policy(HOT_NONE_EMPTY, scenario, **STILL)


def test_what_really_moved_counts_for_the_policy_that_acts_and_nothing_counts_twice(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        shadow = env.add_policy("other", **{**SHADOW, **STILL, "mode": "Shadow"})
        await env.reconcile()
        await turn(env, shadow, after=0)
        moves = len({name for name, owner in env.desired_owners().items() if owner != env.owners()[name]})
        assert moves == env.status()["lastCycle"]["moved"] > 0
        await env.land()

        await turn(env, shadow)

        found = env.status("other")["shadow"]
        assert (found["acting"]["moves"], found["shadow"]["moves"]) == (0, 0), "they were made before it began"
        assert found["displaced"] == 0
        env.give(next(name for name, owner in env.owners().items() if owner == "a"), "c")
        await env.land()
        await turn(env, shadow)
        found = env.status("other")["shadow"]
        assert (found["acting"]["moves"], found["shadow"]["moves"], found["displaced"]) == (1, 0, 1)
        assert "configmaps/trimtab-shadow-other" not in await turn(env, shadow), "nothing has moved since"
        text = env.cluster.metrics.text().decode()
        assert 'trimtab_shadow_moves{policy="other",side="acting"} 1.0' in text
        assert 'trimtab_broker_usage_ratio{broker="a",policy="main",resource="cpu"}' in text
        assert 'trimtab_broker_usage_ratio{broker="a",policy="other"' not in text
        assert not [
            line for line in text.splitlines() if 'moves_total{policy="other"' in line and not line.endswith(" 0.0")
        ]

    run_policy(HOT_NONE_EMPTY, scenario)


def test_virtual_owners_and_figures_survive_a_restart(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        await env.cycle()
        shadow = env.add_policy("other", **SHADOW)
        await turn(env, shadow)
        await turn(env, shadow, after=700)
        before = env.status("other")["shadow"]
        assert before["displaced"] > 0

        again = PolicyLoop("other", shadow.uid, env.cluster, shadow.read)
        await turn(env, again)

        after = env.status("other")["shadow"]
        same = ("since", "displaced", "begun")
        assert {key: after[key] for key in same} == {key: before[key] for key in same}
        assert after["shadow"]["moves"] == before["shadow"]["moves"]
        assert after["hours"] >= before["hours"]

    run_policy(HOT_NONE_EMPTY, scenario, **STILL)


def test_an_edit_of_either_policy_begins_the_comparison_anew(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        await env.cycle()
        shadow = env.add_policy("other", **SHADOW)
        await turn(env, shadow)
        await turn(env, shadow)
        assert env.status("other")["shadow"]["begun"] == "the shadow is new"
        since = env.status("other")["shadow"]["since"]

        env.edit(limits={"coolDown": "45m"})
        await env.cycle()
        await turn(env, shadow)

        found = env.status("other")["shadow"]
        assert found["since"] > since
        assert found["begun"] == "the shadow or policy main was edited"

    run_policy(HOT_NONE_EMPTY, scenario, **STILL)


def test_bundles_of_a_lost_broker_get_virtual_owners_and_are_no_moves(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        await env.cycle()
        shadow = env.add_policy("other", **{**STILL, "mode": "Shadow"})
        await turn(env, shadow)
        env.rest.patch(env.path("brokers", "c", "status"), {"status": {"ready": False}})

        await turn(env, shadow)
        await turn(env, shadow)

        found = env.status("other")["shadow"]
        assert found["shadow"]["moves"] == 0
        assert found["displaced"] == 1

    run_policy(HOT_NONE_EMPTY, scenario, **STILL)


def test_a_third_shadow_is_refused_naming_the_two_that_run(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        await env.cycle()
        shadows = [env.add_policy(name, **SHADOW) for name in ("one", "three", "two")]
        for loop in shadows:
            await turn(env, loop)
        for loop in shadows:
            await turn(env, loop)

        refused = [name for name in ("one", "three", "two") if env.condition("Valid", name)[0] == "False"]
        assert len(refused) == 1
        assert env.condition("Ready", refused[0]) == ("False", "InvalidPolicy")
        assert "2 policies in mode Shadow already" in env.message("Valid", refused[0])
        assert env.condition("Ready") == ("True", "Cycled")

    run_policy(LEVEL, scenario, **STILL)


def test_a_shadow_of_other_brokers_is_refused_naming_them(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        await env.cycle()
        shadow = env.add_policy("other", **SHADOW, brokers={"names": ["a"]})

        await turn(env, shadow)

        assert env.condition("Valid", "other") == ("False", "InvalidPolicy")
        assert "the policy that acts, main: only one of the two selects b;" in env.message("Valid", "other")

    run_policy(LEVEL, scenario, **STILL)


def test_a_shadow_without_a_policy_beside_it_says_so_and_waits_for_it_a_moment_first(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        await env.reconcile()
        assert env.status().get("conditions") is None

        await turn(env, env.loop, after=DISCOVER_WITHIN + 1)

        assert env.condition("Ready") == ("False", "NoActingPolicy")
        assert env.condition("ShadowBetter") == ("Unknown", "NoActingPolicy")
        assert "shadow" not in env.status()

    run_policy(LEVEL, scenario, **SHADOW)


def test_a_shadow_that_acts_later_drops_its_comparison(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        await env.cycle()
        shadow = env.add_policy("other", **SHADOW)
        await turn(env, shadow)
        assert "trimtab_shadow_since_timestamp_seconds" in env.cluster.metrics.text().decode()
        env.edit(mode="Shadow")
        await turn(env, env.loop)
        env.rest.patch(env.path("balancingpolicies", "other"), {"spec": {"mode": "Auto"}})

        await turn(env, shadow)

        assert "shadow" not in env.status("other")
        assert env.condition("ShadowBetter", "other") == ("", "")
        assert env.condition("Acting", "other") == ("True", "Acting")
        assert 'trimtab_shadow_moves{policy="other"' not in env.cluster.metrics.text().decode()

    run_policy(HOT_NONE_EMPTY, scenario, **STILL)


def test_an_approval_of_a_shadow_is_refused_with_a_hint(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        await env.cycle()
        shadow = env.add_policy("other", **SHADOW)
        await turn(env, shadow)
        body = {"metadata": {"annotations": {"trimtab.dev/rebalance": "approve"}}}
        env.rest.patch(env.path("balancingpolicies", "other"), body)

        await turn(env, shadow)

        assert env.condition("CommandTaken", "other") == ("False", "Refused")
        assert "spec.mode is Shadow: it moves nothing" in env.message("CommandTaken", "other")

    run_policy(LEVEL, scenario, **STILL)


def test_a_preview_shows_what_the_next_virtual_cycle_would_do(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        await env.cycle()
        shadow = env.add_policy("other", **SHADOW)
        first = await preview(env.cluster, "other")
        await turn(env, shadow)
        assert len(first.plan.moves) == env.status("other")["proposal"]["total"] > 0
        assert first.gate.restraint is not None
        assert first.gate.restraint.reason is Reason.SHADOW

        second = await preview(env.cluster, "other")

        assert len(second.plan.moves) < len(first.plan.moves)
        assert second.plan.before[0, 0] < first.plan.before[0, 0] - 5

    run_policy(HOT_NONE_EMPTY, scenario, **STILL)


def test_it_splits_nothing(run_policy: RunPolicy) -> None:
    hot = large({0: {"topics": 10, "throughput": 200}}, bundles={"a": [1] * 4, "b": [1]}, a=0.8, b=0.2, c=0.1)
    rule = {"type": "BundleSplitterTask"}

    async def scenario(env: PolicyEnvironment) -> None:
        assert (await preview(env.cluster, "main")).plan.splits
        await env.cycle()
        shadow = env.add_policy("other", **{**STILL, "mode": "Shadow", "split": rule})

        written = await turn(env, shadow)

        assert not [name for name in written if name.startswith("bundlesplits/")]
        assert env.status("other")["proposal"].get("totalSplits", 0) == 0

    run_policy(hot, scenario, **{**STILL, "mode": "DryRun", "split": rule})
