"""What a policy can get out of Secrets: those of its own namespace that were released for that, as values."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any

import pytest

from policy_scene import Play, PolicyScene
from trimtab_strategies.testing import cluster
from trimtab_testbed.servers.kube_rest import KubeApiError

pytestmark = pytest.mark.apiserver

LEVEL = cluster(bundles=2, a=0.5, b=0.5, c=0.5)
CANARY = "canary-4b1c77"
URL = "http://prometheus.monitoring.svc:9090"


def source(**auth: Any) -> dict[str, Any]:
    return {"prometheus": {"url": URL, "auth": auth}}


def token(secret: str = "prometheus") -> dict[str, Any]:  # the name of a Secret
    return {"bearerToken": {"secret": secret, "key": "token"}}


def put(scene: PolicyScene, labels: Mapping[str, str], namespace: str = "", **entries: str) -> None:
    data = {key: base64.b64encode(value.encode()).decode() for key, value in entries.items()}
    meta = {"name": "prometheus", "labels": dict(labels)}
    path = f"/api/v1/namespaces/{namespace or scene.namespace}/secrets"
    scene.rest.create(path, {"apiVersion": "v1", "kind": "Secret", "metadata": meta, "data": data})


def told(scene: PolicyScene) -> str:
    (message,) = (c["message"] for c in scene.status()["conditions"] if c["type"] == "Valid")
    return str(message)


def everything(scene: PolicyScene) -> str:
    """All that was written to the API server, except Secrets."""
    kinds = ("balancingpolicies", "brokers", "bundles", "topicnamespaces")
    ours = [scene.rest.get(scene.path(kind)) for kind in kinds]
    core = [scene.rest.get(f"/api/v1/namespaces/{scene.namespace}/{kind}") for kind in ("configmaps", "events")]
    return str([*ours, *core])


@pytest.mark.parametrize(
    "labels",
    [
        {},
        {"trimtab.dev/credentials": "false"},
        {"trimtab.dev/credentials": "True"},
        {"trimtab.dev/credentials": ""},
        {"trimtab.dev/credential": "true"},
    ],
    ids=str,
)
def test_a_secret_that_no_one_released_is_neither_kept_nor_reported_nor_used(
    labels: dict[str, str], play: Play
) -> None:
    async def story(scene: PolicyScene) -> None:
        put(scene, labels, token=CANARY)
        await scene.reconcile()
        assert scene.condition("Valid") == ("False", "InvalidPolicy")
        assert "is not released for this: label it trimtab.dev/credentials=true" in told(scene)
        assert CANARY not in everything(scene)
        assert scene.loop.sources._known is None
        assert not scene.context.sources.settings  # type: ignore[attr-defined]

    play(LEVEL, story, source=source(**token()))


def test_a_release_that_is_taken_back_counts_from_the_next_cycle(play: Play) -> None:
    async def story(scene: PolicyScene) -> None:
        put(scene, {"trimtab.dev/credentials": "true"}, token=CANARY)
        await scene.reconcile()
        assert scene.condition("Valid") == ("True", "Valid")
        path = f"/api/v1/namespaces/{scene.namespace}/secrets/prometheus"
        scene.rest.patch(path, {"metadata": {"labels": {"trimtab.dev/credentials": None}}})
        await scene.cycle()
        assert scene.condition("Valid") == ("False", "InvalidPolicy")
        assert (scene.loop.sources._source, scene.loop.sources._known) == (None, None)

    play(LEVEL, story, source=source(**token()))


@pytest.mark.parametrize("name", ["other/prometheus", "../other/secrets/prometheus", "prometheus?x=", "Prometheus", ""])
def test_the_api_server_refuses_names_that_could_lead_to_another_namespace(name: str, play: Play) -> None:
    async def story(scene: PolicyScene) -> None:
        with pytest.raises(KubeApiError, match=r"auth\.bearerToken\.secret"):
            scene.create_policy("other", source=source(**token(name)))

    play(LEVEL, story)


def test_a_secret_of_another_namespace_is_not_found(play: Play) -> None:
    async def story(scene: PolicyScene) -> None:
        scene.rest.create_namespace(other := f"{scene.namespace}-other")
        put(scene, {"trimtab.dev/credentials": "true"}, other, token=CANARY)
        await scene.reconcile()
        assert f"Secret prometheus does not exist in namespace {scene.namespace}" in told(scene)

    play(LEVEL, story, source=source(**token()))


@pytest.mark.parametrize("part", ["ca", "certificate", "key"])
def test_a_secret_that_names_a_file_of_the_operator_means_nothing(part: str, play: Play) -> None:
    """Else a policy could have the operator prove itself by its own key to a server of the policy's choice."""

    async def story(scene: PolicyScene) -> None:
        pem = "-----BEGIN X-----"
        values = dict.fromkeys(("ca", "certificate", "key"), pem) | {part: scene.kubeconfig}
        put(scene, {"trimtab.dev/credentials": "true"}, **values)
        await scene.reconcile()
        assert f"auth.tls.{part}: Secret prometheus, key {part}: its value is no PEM text" in told(scene)
        assert scene.kubeconfig not in everything(scene)

    tls = {name: {"secret": "prometheus", "key": name} for name in ("ca", "certificate", "key")}
    play(LEVEL, story, source=source(tls=tls))
