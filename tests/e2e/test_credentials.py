"""Real brokers that let nobody in without a token are asked with the one that a Secret holds at the moment."""

from __future__ import annotations

import asyncio
import base64
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import pytest

from faulty_api import until
from policy_scene import PolicyScene, played
from trimtab_operator.bridge import running
from trimtab_operator.bridge.running import Bridge
from trimtab_operator.cluster.fence import Fence
from trimtab_operator.control.context import Context
from trimtab_operator.control.cycle import ended
from trimtab_operator.control.settings import Settings
from trimtab_operator.pulsar.admin import Admin
from trimtab_operator.resources.urls import AllowedUrls
from trimtab_strategies.testing import cluster
from trimtab_testbed.control_plane import ControlPlane
from trimtab_testbed.pulsar.cluster import PulsarCluster

LOAD = cluster(bundles=1, a=0.5)
AUTH = {"token": {"secret": "pulsar", "key": "token"}}


def _put(scene: PolicyScene, token: str) -> None:
    """Create the Secret, or replace what it holds."""
    path = f"/api/v1/namespaces/{scene.namespace}/secrets"
    data = {"token": base64.b64encode(token.encode()).decode()}
    if any(item["metadata"]["name"] == "pulsar" for item in scene.rest.get(path)["items"]):
        scene.rest.patch(f"{path}/pulsar", {"data": data})
        return
    meta = {"name": "pulsar", "labels": {"trimtab.dev/credentials": "true"}}
    scene.rest.create(path, {"apiVersion": "v1", "kind": "Secret", "metadata": meta, "data": data})


def _nothing(_context: Context, _admin: Admin) -> Mapping[str, Callable[[], Awaitable[None]]]:
    return {}


def test_a_token_is_shown_and_a_new_one_in_its_secret_counts(
    trimtab_crds: ControlPlane, kube_namespace: str, guarded_cluster: PulsarCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, seconds in (("LOOK_EVERY", 0.1), ("PULSE_EVERY", 0.5), ("SECRETS_EVERY", 0.5), ("REFUSED_EVERY", 0.5)):
        monkeypatch.setattr(running, name, seconds)

    async def story(scene: PolicyScene) -> None:
        context, link = scene.context, scene.context.link
        context.clock, context.urls = time.monotonic, AllowedUrls.of(["127.0.0.1"])
        _put(scene, f"{guarded_cluster.token()}x")
        settings = Settings.of(scene.policy())
        context.claims["main"], context.policies["main"] = settings.claim, settings
        bridge = Bridge(context, Fence(), _nothing)
        task = asyncio.create_task(bridge.run())
        try:
            await until("a wrong token is refused", lambda: "401" in link.problem)
            assert guarded_cluster.token() not in link.problem
            _put(scene, guarded_cluster.token())
            await until("the right one is taken", lambda: link.spec is not None and not link.problem)
            assert bridge.admin is not None
            assert await bridge.admin.brokers() == set(guarded_cluster.ids)
            runtime: Mapping[str, Any] = await bridge.admin.runtime(guarded_cluster.ids[0])
            assert runtime["authenticationEnabled"] == "true"
        finally:
            await ended(task)

    pulsar = {"adminUrl": guarded_cluster.urls[0], "auth": AUTH}
    played(trimtab_crds, kube_namespace, LOAD, story, actuator="Pulsar", pulsar=pulsar)
