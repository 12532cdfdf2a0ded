"""`trimtab explain` and `trimtab why-not` against the real API server."""

from __future__ import annotations

import json

import pytest
import yaml

from explained_decisions import LEVEL_PAIR
from manifests import bundle, topic_namespace
from plan_clusters import HOT_OF_FOUR
from policy_environment import PolicyEnvironment, RunPolicy, eager
from run_verb import Said, Verb, run_verb
from trimtab_operator.decision_log.store import DECISIONS
from trimtab_operator.kube.conditions import timestamp

pytestmark = pytest.mark.apiserver


@pytest.fixture
def ask(capsys: pytest.CaptureFixture[str]) -> Verb:
    """Runs a verb against the environment; exit code, output and errors."""

    async def run(env: PolicyEnvironment, *words: str) -> Said:
        return await run_verb(env, capsys, [*words, "-n", env.namespace])

    return run


def test_a_person_learns_why_bundles_moved_and_why_others_did_not(run_policy: RunPolicy, ask: Verb) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        await env.reconcile()
        [name] = [n for n, owner in env.desired_owners().items() if owner != env.owners()[n]]
        full = {short: whole for whole, short in env.names.items()}[name]

        code, out, _ = await ask(env, "explain", "broker", "a")
        assert code == 0
        first, _, why = out.splitlines()[0].partition(": ")
        assert first == "a gives 1 bundle away, 30.0 points of its CPU"
        assert why == "a was at 90.0 % CPU, 35.0 points above the 55.0 % from which ThresholdShedder relieves a broker."
        code, out, _ = await ask(env, "explain", "bundle", full)
        assert out.startswith(f"{name} is moving from a to {env.desired_owners()[name]}: a was at 90.0 % CPU")

        await env.land()
        _, out, _ = await ask(env, "why-not", name)
        assert (await ask(env, "why-not", "bundle", name))[1].startswith(f"{name} moved from a to ")
        assert out.startswith(f"{name} moved from a to "), "it has landed since, which no cycle has seen yet"

        still = next(n for n, owner in env.owners().items() if owner == "d")
        env.rest.patch(env.path("bundles", still), {"spec": {"pinned": True}})
        code, out, _ = await ask(env, "why-not", still, "--to", "b", "-o", "json")
        data = json.loads(out)
        assert (data["reason"], data["answer"]) == ("Pinned", f"{still} stays on d: a person pinned it to its owner.")
        assert data["decision"]["policy"] == "main"
        code, out, _ = await ask(env, "why-not", "d", "-o", "yaml")
        assert yaml.safe_load(out)["reason"] == "Overloaded"

    run_policy(HOT_OF_FOUR, scenario, **eager(maxMovesPerCycle=1))


def test_an_approved_proposal_is_told_as_carried_out_before_the_next_cycle(
    run_policy: RunPolicy, ask: Verb, capsys: pytest.CaptureFixture[str]
) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        await env.reconcile()
        _, out, _ = await ask(env, "explain", "broker", "a")
        assert "it is proposed, and not approved yet" in out

        async def operate() -> None:
            await env.reconcile(after=0.5)
            await env.land()

        words = ["approve", "main", "--wait", "-n", env.namespace]
        code, _, err = await run_verb(env, capsys, words, operate)
        assert code == 0, err
        _, out, _ = await ask(env, "explain", "broker", "a")
        assert out.startswith("a gives 1 bundle away")
        assert "approve" not in out

    run_policy(HOT_OF_FOUR, scenario, **eager(maxMovesPerCycle=1) | {"mode": "Approve"})


def test_a_person_s_move_is_told_as_theirs(run_policy: RunPolicy, ask: Verb) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        await env.reconcile()
        [name] = [n for n, owner in env.desired_owners().items() if owner != env.owners()[n]]
        await env.land()
        there = env.owners()[name]

        env.clock += 10
        await ask(env, "move", name, "a")
        _, asked_for, _ = await ask(env, "explain", "bundle", name)
        await env.land()
        env.rest.patch(env.path("bundles", name, "status"), {"status": {"since": timestamp(env.cluster.now())}})
        await env.cycle()
        _, landed, _ = await ask(env, "explain", "bundle", name)
        env.rest.patch(env.path("bundles", name), {"spec": {"owner": "zz"}})
        _, nowhere, _ = await ask(env, "explain", "bundle", name)

        assert asked_for.startswith(f"{name} was requested to move by a person (trimtab move) from {there} to a at ")
        assert landed.startswith(f"{name} was moved by a person (trimtab move) from {there} to a at ")
        assert "; it is on a now" in landed.splitlines()[0]
        assert "; it is on a now, as there is no broker zz" in nowhere.splitlines()[0]
        records = DECISIONS.read(env.rest.get(f"/api/v1/namespaces/{env.namespace}/configmaps/trimtab-decisions-main"))
        assert [(m.source, m.destination) for r in records for m in r.manual_moves if m.name == name] == [(there, "a")]

    run_policy(HOT_OF_FOUR, scenario, **eager(maxMovesPerCycle=1))


def test_a_bundle_that_can_get_no_owner_says_what_its_namespace_has_to_do_with_it(
    run_policy: RunPolicy, ask: Verb
) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        [twin, *_] = env.names.values()
        spec = env.bundles()[twin]["spec"]
        space, ends = spec["topicNamespace"], spec["range"]
        others = {"newcomer": space, "stray": "nowhere", "of-second": "second"}
        for name, of in others.items():
            env.rest.create(env.path("bundles"), bundle(name, **ends, topicNamespace=of))
        env.rest.create(env.path("topicnamespaces"), topic_namespace("second"))
        cut = {"type": "Ready", "status": "False", "reason": "AlreadyCut", "lastTransitionTime": "2026-01-01T00:00:00Z"}
        env.rest.patch(env.path("topicnamespaces", "second", "status"), {"status": {"conditions": [cut]}})
        await env.reconcile()

        said = {name: (await ask(env, "explain", "bundle", name))[1].splitlines()[0] for name in others}

        assert said["newcomer"] == f"newcomer has no owner: another bundle covers some of its hashes ({twin})."
        assert said["stray"].endswith("(not before there is a TopicNamespace nowhere).")
        assert said["of-second"].endswith(
            "(not while its TopicNamespace second is AlreadyCut: another one describes it)."
        )

    run_policy(LEVEL_PAIR, scenario)


def test_names_that_are_wrong_and_questions_that_come_too_early_are_told_so(run_policy: RunPolicy, ask: Verb) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        code, _, err = await ask(env, "explain", "broker", "aa")
        assert code == 2
        assert "no Broker aa in namespace" in err
        code, _, err = await ask(env, "why-not", "public-a-0x00000000-0x80000001")
        assert (code, "did you mean public-a-0x00000000-0x80000000" in err) == (2, True)
        code, _, err = await ask(env, "explain", "bundle", "public/a")
        assert (code, "tenant/namespace/0x" in err) == (2, True)

        code, out, err = await ask(env, "explain", "broker", "a")
        assert (code, out) == (1, "")
        assert "nothing was decided about a yet: policy main decides every 60s, but has not yet" in err

    run_policy(LEVEL_PAIR, scenario)
