"""Real brokers that speak only TLS and require authentication, reached with credentials from real Secrets.

Each test starts with wrong Secrets. The error names the field, the Secret and the fix, and a corrected Secret takes
effect without a restart.
"""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
import logging
import math
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from faulty_api import until
from guarded_server import Asked, GuardedServer
from policy_environment import PolicyEnvironment, refit, run_scenario
from real_pulsar.clients import topics_of
from real_pulsar.cluster import PulsarCluster
from real_pulsar.security import SUPERUSER, TlsSecurity
from strategy_testing.clusters import cluster
from trimtab_operator.aio import ended
from trimtab_operator.kube.fence import Fence
from trimtab_operator.pulsar.bridge import connection
from trimtab_operator.pulsar.bridge.connection import Bridge
from trimtab_operator.pulsar.client.http import Admin
from trimtab_operator.resources.urls import AllowedUrls
from trimtab_operator.state.cluster import ClusterState
from trimtab_operator.state.settings import Settings
from trimtab_operator.status.conditions import linked
from trimtab_testbed.servers.certificates import Authority
from trimtab_testbed.servers.kube import ControlPlane

LOAD = cluster(bundles=1, a=0.5)
CA = {"ca": {"secretKeyRef": {"name": "authority", "key": "ca.crt"}}}
PATIENCE = 40.0

_numbers = itertools.count(1)


@dataclass
class Secured:
    """A bridge between an environment and the cluster. shown: all secret texts that a Secret contained."""

    env: PolicyEnvironment
    cluster: PulsarCluster
    bridge: Bridge
    shown: set[str] = field(default_factory=set)

    @property
    def tls(self) -> TlsSecurity:
        """The credentials that the brokers require."""
        assert isinstance(self.cluster.guard, TlsSecurity)
        return self.cluster.guard

    def put(self, name: str, *, secret: bool = True, **entries: str) -> None:
        """Create a Secret, or replace its content. secret: texts that must not appear anywhere."""
        if secret:
            self.shown |= set(entries.values())
        path = f"/api/v1/namespaces/{self.env.namespace}/secrets"
        data = {key.replace("_", "."): base64.b64encode(text.encode()).decode() for key, text in entries.items()}
        if any(item["metadata"]["name"] == name for item in self.env.rest.get(path)["items"]):
            self.env.rest.patch(f"{path}/{name}", {"data": data})
            return
        meta = {"name": name, "labels": {"trimtab.dev/credentials": "true"}}
        self.env.rest.create(path, {"apiVersion": "v1", "kind": "Secret", "metadata": meta, "data": data})

    def told(self) -> str:
        """Text of the policy's condition; empty if it does not exist."""
        return "".join(str(found["message"]) for found in linked([], self.env.cluster.link, 1, time.time()))

    async def says(self, *words: str) -> None:
        """Wait until the condition contains all of these words."""
        try:
            await until(words[0], lambda: all(word in self.told() for word in words), PATIENCE)
        except AssertionError as error:
            raise AssertionError(f"{error}; it says: {self.told()}") from None

    async def lets_in(self) -> Admin:
        """The client, once the brokers answer it."""
        await self.says("Pulsar answers at https://")
        assert self.bridge.admin is not None
        return self.bridge.admin

    def hops(self, call: str) -> float:
        """Redirects of such calls."""
        registry = self.env.cluster.metrics.registry
        return registry.get_sample_value("trimtab_pulsar_requests_total", {"call": call, "code": "307"}) or 0


Scenario = Callable[[Secured], Awaitable[None]]
RunPolicy = Callable[[Scenario, Mapping[str, Any]], None]


def _nothing(_context: ClusterState, _admin: Admin) -> Mapping[str, Callable[[], Awaitable[None]]]:
    return {}


@pytest.fixture
def run_policy(
    trimtab_crds: ControlPlane,
    kube_namespace: str,
    guarded_cluster: PulsarCluster,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> RunPolicy:
    """Runs a scenario with a policy whose `spec.pulsar.auth` is given, and looks for secrets in all that was logged."""
    for name in ("SPEC_INTERVAL", "PROBE_INTERVAL", "SECRETS_INTERVAL", "REFUSED_INTERVAL"):
        monkeypatch.setattr(connection, name, 0.3)
    caplog.set_level(logging.DEBUG)

    def run(scenario: Scenario, auth: Mapping[str, Any]) -> None:
        async def whole(env: PolicyEnvironment) -> None:
            async with _secured(env, guarded_cluster) as secured:
                await scenario(secured)
                logged = caplog.text + secured.told()
                assert [text for text in secured.shown if text in logged or text.replace("\n", "\\n") in logged] == []

        pulsar = {"adminUrl": guarded_cluster.urls[0], "auth": auth}
        run_scenario(trimtab_crds, kube_namespace, LOAD, whole, pulsar=pulsar)

    return run


@asynccontextmanager
async def _secured(env: PolicyEnvironment, brokers: PulsarCluster) -> AsyncIterator[Secured]:
    context = env.cluster
    refit(context, clock=time.monotonic, urls=AllowedUrls.of(["127.0.0.1"]))
    settings = Settings.of(env.policy())
    context.policies.claims["main"], context.policies.settings["main"] = settings.claim, settings
    leading = Fence()
    leading.extend(math.inf)
    bridge = Bridge(context, leading, _nothing)
    secured = Secured(env, brokers, bridge)
    secured.put("authority", secret=False, ca_crt=secured.tls.authority.certificate.read_text())
    task = asyncio.create_task(bridge.run())
    try:
        yield secured
    finally:
        await ended(task)


async def _works(secured: Secured) -> None:
    """All kinds of requests: the brokers, one broker's configuration, all owners, and a bundle that moves there and
    back, for which a broker redirects to the leader and on to the owner.
    """
    admin, ids, namespace = await secured.lets_in(), secured.cluster.ids, f"secured/ns-{next(_numbers)}"
    rest = secured.cluster.rest()
    rest.create_namespace(namespace, 2)
    bundle = rest.bundles(namespace)[0]
    (topic,) = topics_of(bundle, 1, persistent=False)
    first = rest.lookup(topic)
    other = next(broker for broker in ids if broker != first)

    assert await admin.brokers() == set(ids)
    assert len({(await admin.runtime(broker))["webServicePortTls"] for broker in ids}) == len(ids)
    assert len(await admin.boundaries(namespace)) == 3
    assert {await admin.owner(bundle, broker) for broker in ids} == {first}
    for destination in (other, first):
        await admin.unload(bundle, destination)
        assert await admin.lookup(topic) == destination
    assert secured.hops("unload") >= 1


def test_a_token_and_an_authority_from_secrets(run_policy: RunPolicy, tmp_path: Path) -> None:
    async def scenario(secured: Secured) -> None:
        right = secured.tls.authority.certificate.read_text()
        secured.put("authority", secret=False, ca_crt=Authority(tmp_path / "other").certificate.read_text())
        secured.put("pulsar", token=secured.tls.keys.token(SUPERUSER, life=-60))
        await secured.says("CERTIFICATE_VERIFY_FAILED", "spec.pulsar.auth.tls.ca (Secret authority, key ca.crt)")

        secured.put("authority", secret=False, ca_crt=right)
        await secured.says(
            "401 Authentication required", "spec.pulsar.auth.token (Secret pulsar, key token)", "valid one"
        )

        secured.put("pulsar", token=secured.tls.keys.token("somebody"))
        await secured.says("[somebody]", "spec.pulsar.auth.token (Secret pulsar, key token)", "superUserRoles")

        secured.put("pulsar", token=secured.tls.keys.token(SUPERUSER))
        await _works(secured)

    run_policy(scenario, {"token": {"secretKeyRef": {"name": "pulsar", "key": "token"}}, "tls": CA})


@pytest.fixture
def issuer(guarded_cluster: PulsarCluster) -> Iterator[GuardedServer]:
    """An OAuth 2 issuer with HTTPS, which gives the client `trimtab` tokens for the brokers, valid for a minute
    each.
    """
    guard = guarded_cluster.guard
    assert isinstance(guard, TlsSecurity)

    def answer(asked: Asked) -> tuple[int, str]:
        if asked.path.endswith("/openid-configuration"):
            return 200, json.dumps({"issuer": server.url, "token_endpoint": f"{server.url}/token"})
        if asked.parameters.get("client_secret") != "a-word-of-the-client":
            return 401, json.dumps({"error": "invalid_client", "error_description": str(asked.parameters)})
        return 200, json.dumps({"access_token": guard.keys.token(SUPERUSER, life=60), "expires_in": 60})

    server = GuardedServer(answer=answer, tls=guard.authority.server("issuer"))
    with server:
        yield server


def test_client_credentials_of_an_issuer(run_policy: RunPolicy, issuer: GuardedServer) -> None:
    async def scenario(secured: Secured) -> None:
        secured.put("client", word="not-the-word-of-the-client")
        secured.put("name", secret=False, id="trimtab")
        await secured.says("401", "invalid_client", "spec.pulsar.auth.oauth2.clientSecret (Secret client, key word)")

        secured.put("client", word="a-word-of-the-client")
        await _works(secured)
        last = issuer.asked[-1]
        assert (last.path, last.parameters["audience"]) == ("/token", "urn:trimtab:brokers")

    where = {
        "clientId": {"secretKeyRef": {"name": "name", "key": "id"}},
        "clientSecret": {"secretKeyRef": {"name": "client", "key": "word"}},
    }
    run_policy(scenario, {"oauth2": {"issuerUrl": issuer.url, "audience": "urn:trimtab:brokers", **where}, "tls": CA})


def test_a_certificate_of_a_client(run_policy: RunPolicy) -> None:
    async def scenario(secured: Secured) -> None:
        for role, words in (("somebody", ["[somebody]", "tls.certificate (Secret who, key tls.crt)"]), (SUPERUSER, [])):
            certificate, key = secured.tls.authority.client(role)
            secured.put("who", tls_crt=certificate.read_text(), tls_key=key.read_text())
            if words:
                await secured.says(*words)
        await _works(secured)

    pair = {
        "certificate": {"secretKeyRef": {"name": "who", "key": "tls.crt"}},
        "key": {"secretKeyRef": {"name": "who", "key": "tls.key"}},
    }
    run_policy(scenario, {"tls": {**CA, **pair}})
