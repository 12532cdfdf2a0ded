"""Credentials of a source come from Secrets that were released for it, and what is wrong with a source is told."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from policy_scene import Play, PolicyScene
from trimtab_operator.kube.client import RefusedError
from trimtab_pipeline.api import Credentials, SourceMisconfiguredError
from trimtab_pipeline.testing import StaticSource
from trimtab_strategies.testing import cluster

pytestmark = pytest.mark.apiserver

LEVEL = cluster(bundles=2, a=0.5, b=0.5, c=0.5)
PEM = "-----BEGIN X-----\n"
TOKEN = {"bearerToken": {"secret": "prometheus", "key": "token"}}


def source(**auth: Any) -> dict[str, Any]:
    return {"prometheus": {"url": "http://prometheus:9090", "auth": auth}}


def put(scene: PolicyScene, name: str = "prometheus", *, released: str = "true", **entries: str) -> None:
    """Create the Secret, or replace what it holds."""
    path = f"/api/v1/namespaces/{scene.namespace}/secrets"
    there = {item["metadata"]["name"] for item in scene.rest.get(path)["items"]}
    data = {key: base64.b64encode(value.encode()).decode() for key, value in entries.items()}
    if name in there:
        scene.rest.patch(
            f"{path}/{name}", {"data": data, "metadata": {"labels": {"trimtab.dev/credentials": released}}}
        )
        return
    labels = {"trimtab.dev/credentials": released} if released else {}
    meta = {"name": name, "labels": labels}
    scene.rest.create(path, {"apiVersion": "v1", "kind": "Secret", "metadata": meta, "data": data})


def used(scene: PolicyScene) -> Credentials:
    """The credentials that the source was opened with last."""
    settings: dict[str, Any] = scene.context.sources.settings  # type: ignore[attr-defined]
    credentials: Credentials = settings[f"{scene.namespace}/main"].credentials
    return credentials


def told(scene: PolicyScene) -> str:
    """Message of the condition Valid."""
    (message,) = (c["message"] for c in scene.status()["conditions"] if c["type"] == "Valid")
    return str(message)


def test_every_way_to_prove_oneself_is_read_from_its_secret(play: Play) -> None:
    async def story(scene: PolicyScene) -> None:
        put(scene, user="me\n", password="open sesame", ca=PEM + "CA", crt=PEM + "CRT", key=PEM + "KEY", org="team-a")
        await scene.reconcile()
        assert scene.condition("Valid") == ("True", "Valid")
        assert used(scene) == Credentials(
            username="me",
            password="open sesame",
            ca=PEM + "CA",
            certificate=PEM + "CRT",
            key=PEM + "KEY",
            headers=(("X-Scope-OrgID", "team-a"), ("X-Source", "trimtab")),
        )

    def entry(key: str) -> dict[str, str]:
        return {"secret": "prometheus", "key": key}

    auth = {
        "basic": {"username": entry("user"), "password": entry("password")},
        "tls": {"ca": entry("ca"), "certificate": entry("crt"), "key": entry("key")},
        "headers": [
            {"name": "X-Scope-OrgID", "secret": entry("org")},
            {"name": "X-Source", "value": "trimtab"},
        ],
    }
    play(LEVEL, story, source=source(**auth))


def test_a_token_that_changes_counts_from_the_next_cycle(play: Play) -> None:
    async def story(scene: PolicyScene) -> None:
        put(scene, token="first")
        await scene.reconcile()
        assert used(scene).bearer_token == "first"
        put(scene, token="second")
        await scene.cycle()
        assert used(scene).bearer_token == "second"

    play(LEVEL, story, source=source(**TOKEN))


def test_a_secret_no_one_released_is_refused_with_the_label_that_releases_it(play: Play) -> None:
    async def story(scene: PolicyScene) -> None:
        put(scene, released="", token="do-not-send")
        await scene.reconcile()
        assert scene.condition("Valid") == ("False", "InvalidPolicy")
        assert "auth.bearerToken: Secret prometheus is not released" in told(scene)
        assert "label it trimtab.dev/credentials=true" in told(scene)
        assert "do-not-send" not in str(scene.policy())
        put(scene, token="do-send")
        await scene.cycle()
        assert scene.condition("Valid") == ("True", "Valid")
        assert used(scene).bearer_token == "do-send"

    play(LEVEL, story, source=source(**TOKEN))


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
    entries: dict[str, str] | None, words: list[str], play: Play
) -> None:
    async def story(scene: PolicyScene) -> None:
        if entries is not None:
            put(scene, **entries)
        unassigned = scene.load.bundles.names[0]
        scene.give(scene.names[unassigned], "")
        await scene.reconcile()
        assert scene.condition("Valid") == ("False", "InvalidPolicy")
        assert scene.condition("Ready") == ("False", "InvalidPolicy")
        assert all(word in told(scene) for word in words), told(scene)
        assert "two\nlines" not in told(scene)

    play(LEVEL, story, source=source(**TOKEN))


def test_an_operator_that_may_not_read_secrets_says_so(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(scene: PolicyScene) -> None:
        get = scene.context.api.get

        async def forbidden(ref: Any, namespace: str, name: str) -> Any:
            if ref.plural == "secrets":
                raise RefusedError("secrets is forbidden", status=403, reason="Forbidden")
            return await get(ref, namespace, name)

        monkeypatch.setattr(scene.context.api, "get", forbidden)
        await scene.reconcile()
        assert "Secret prometheus can't be read: secrets is forbidden" in told(scene)

    play(LEVEL, story, source=source(**TOKEN))


def test_secrets_are_read_once_a_cycle_not_once_a_turn(play: Play) -> None:
    async def story(scene: PolicyScene) -> None:
        put(scene, token="x")
        await scene.reconcile()
        before = scene.requests["get"]
        for _ in range(3):
            await scene.reconcile(after=2)
        assert scene.requests["get"] == before

    play(LEVEL, story, source=source(**TOKEN))


def test_a_query_that_cant_be_used_makes_the_policy_invalid_and_says_why(play: Play) -> None:
    async def story(scene: PolicyScene) -> None:
        measured = StaticSource(scene.load)
        measured.error = SourceMisconfiguredError("source.prometheus.queries.cpu is refused: parse error")
        scene.source = measured
        await scene.reconcile()
        assert scene.condition("Valid") == ("False", "InvalidPolicy")
        assert told(scene) == "source.prometheus.queries.cpu is refused: parse error"
        settings = scene.context.sources.settings[f"{scene.namespace}/main"]  # type: ignore[attr-defined]
        assert settings.queries == (("cpu", "oops("), ("bundle_rate_in", "x"))

    queries = {"cpu": "oops(", "bundleRateIn": "x"}
    play(LEVEL, story, source={"prometheus": {"url": "http://prometheus:9090", "queries": queries}})
