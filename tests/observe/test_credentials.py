"""Credentials of a source come from Secrets that were released for it, and what is wrong with a source is told."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from plan_clusters import LEVEL_OF_THREE
from policy_environment import PolicyEnvironment, RunPolicy
from static_sources import StaticSource
from trimtab_operator.kube.client import RefusedError
from trimtab_pipeline.api import Credentials, SourceMisconfiguredError

pytestmark = pytest.mark.apiserver

PEM = "-----BEGIN X-----\n"
TOKEN = {"bearerToken": {"secretKeyRef": {"name": "prometheus", "key": "token"}}}


def source(**auth: Any) -> dict[str, Any]:
    return {"prometheus": {"url": "http://prometheus:9090", "auth": auth}}


def put(env: PolicyEnvironment, name: str = "prometheus", *, released: str = "true", **entries: str) -> None:
    """Create the Secret, or replace what it holds."""
    path = f"/api/v1/namespaces/{env.namespace}/secrets"
    there = {item["metadata"]["name"] for item in env.rest.get(path)["items"]}
    data = {key: base64.b64encode(value.encode()).decode() for key, value in entries.items()}
    if name in there:
        env.rest.patch(f"{path}/{name}", {"data": data, "metadata": {"labels": {"trimtab.dev/credentials": released}}})
        return
    labels = {"trimtab.dev/credentials": released} if released else {}
    meta = {"name": name, "labels": labels}
    env.rest.create(path, {"apiVersion": "v1", "kind": "Secret", "metadata": meta, "data": data})


def used(env: PolicyEnvironment) -> Credentials:
    """The credentials that the source was opened with last."""
    settings: dict[str, Any] = env.cluster.sources.settings  # type: ignore[attr-defined]
    credentials: Credentials = settings[f"{env.namespace}/main"].credentials
    return credentials


def test_every_way_to_prove_oneself_is_read_from_its_secret(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        put(env, user="me\n", password="open sesame", ca=PEM + "CA", crt=PEM + "CRT", key=PEM + "KEY", org="team-a")
        await env.reconcile()
        assert env.condition("Valid") == ("True", "Valid")
        assert used(env) == Credentials(
            username="me",
            password="open sesame",
            ca=PEM + "CA",
            certificate=PEM + "CRT",
            key=PEM + "KEY",
            headers=(("X-Scope-OrgID", "team-a"), ("X-Source", "trimtab")),
        )

    def entry(key: str) -> dict[str, str]:
        return {"secretKeyRef": {"name": "prometheus", "key": key}}

    auth = {
        "basic": {"username": entry("user"), "password": entry("password")},
        "tls": {"ca": entry("ca"), "certificate": entry("crt"), "key": entry("key")},
        "headers": [
            {"name": "X-Scope-OrgID", **entry("org")},
            {"name": "X-Source", "value": "trimtab"},
        ],
    }
    run_policy(LEVEL_OF_THREE, scenario, source=source(**auth))


def test_a_token_that_changes_counts_from_the_next_cycle(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        put(env, token="first")
        await env.reconcile()
        assert used(env).bearer_token == "first"
        put(env, token="second")
        await env.cycle()
        assert used(env).bearer_token == "second"

    run_policy(LEVEL_OF_THREE, scenario, source=source(**TOKEN))


def test_a_secret_no_one_released_is_refused_with_the_label_that_releases_it(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        put(env, released="", token="do-not-send")
        await env.reconcile()
        assert env.condition("Valid") == ("False", "InvalidPolicy")
        assert "auth.bearerToken: Secret prometheus is not released" in env.message("Valid")
        assert "label it trimtab.dev/credentials=true" in env.message("Valid")
        assert "do-not-send" not in str(env.policy())
        put(env, token="do-send")
        await env.cycle()
        assert env.condition("Valid") == ("True", "Valid")
        assert used(env).bearer_token == "do-send"

    run_policy(LEVEL_OF_THREE, scenario, source=source(**TOKEN))


@pytest.mark.parametrize(
    ("entries", "words"),
    [
        (None, ["Secret prometheus does not exist", "create it"]),
        ({"other": "x"}, ["Secret prometheus has no key token; there are other"]),
        ({}, ["has no key token; it is empty"]),
        ({"token": ""}, ["key token: its value is empty"]),
        ({"token": "two\nlines"}, ["spec.source.prometheus.auth: bearer token holds a line break"]),
    ],
)
def test_a_secret_that_cant_be_used_is_a_condition_and_upkeep_goes_on(
    entries: dict[str, str] | None, words: list[str], run_policy: RunPolicy
) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        if entries is not None:
            put(env, **entries)
        unassigned = env.load.bundles.names[0]
        env.give(env.names[unassigned], "")
        await env.reconcile()
        assert env.condition("Valid") == ("False", "InvalidPolicy")
        assert env.condition("Ready") == ("False", "InvalidPolicy")
        assert all(word in env.message("Valid") for word in words), env.message("Valid")
        assert "two\nlines" not in env.message("Valid")

    run_policy(LEVEL_OF_THREE, scenario, source=source(**TOKEN))


def test_an_operator_that_may_not_read_secrets_says_so(run_policy: RunPolicy, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        get = env.cluster.api.get

        async def forbidden(ref: Any, namespace: str, name: str) -> Any:
            if ref.plural == "secrets":
                raise RefusedError("secrets is forbidden", status=403, reason="Forbidden")
            return await get(ref, namespace, name)

        monkeypatch.setattr(env.cluster.api, "get", forbidden)
        await env.reconcile()
        assert "Secret prometheus can't be read: secrets is forbidden" in env.message("Valid")

    run_policy(LEVEL_OF_THREE, scenario, source=source(**TOKEN))


def test_secrets_are_read_once_a_cycle_not_once_a_turn(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        put(env, token="x")
        await env.reconcile()
        before = env.requests["get"]
        for _ in range(3):
            await env.reconcile(after=2)
        assert env.requests["get"] == before

    run_policy(LEVEL_OF_THREE, scenario, source=source(**TOKEN))


def test_a_query_that_cant_be_used_makes_the_policy_invalid_and_says_why(run_policy: RunPolicy) -> None:
    async def scenario(env: PolicyEnvironment) -> None:
        measured = StaticSource(env.load)
        measured.error = SourceMisconfiguredError("source.prometheus.queries.cpu is refused: parse error")
        env.source = measured
        await env.reconcile()
        assert env.condition("Valid") == ("False", "InvalidPolicy")
        assert env.message("Valid") == "source.prometheus.queries.cpu is refused: parse error"
        settings = env.cluster.sources.settings[f"{env.namespace}/main"]  # type: ignore[attr-defined]
        assert settings.queries == (("cpu", "oops("), ("bundle_rate_in", "x"))

    queries = {"cpu": "oops(", "bundleRateIn": "x"}
    run_policy(LEVEL_OF_THREE, scenario, source={"prometheus": {"url": "http://prometheus:9090", "queries": queries}})
