"""The client of Pulsar follows what policies name and Secrets hold, and whether it can ask is told."""

from __future__ import annotations

import asyncio
import base64
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import pytest

from faulty_api import until
from policy_environment import PolicyEnvironment, refit, run_scenario
from pulsar_admin import FakePulsar
from strategy_testing.clusters import cluster
from trimtab_operator.aio import ended
from trimtab_operator.kube.fence import Fence
from trimtab_operator.pulsar.bridge import connection
from trimtab_operator.pulsar.bridge.connection import Bridge
from trimtab_operator.pulsar.bridge.sync.loop import ClusterSync, SyncIntervals
from trimtab_operator.pulsar.client.http import Admin
from trimtab_operator.resources.pulsar import PulsarSpec
from trimtab_operator.resources.urls import AllowedUrls
from trimtab_operator.state.cluster import ClusterState
from trimtab_operator.state.pulsar_link import NOT_ASKED, PulsarLink
from trimtab_operator.state.settings import Settings
from trimtab_operator.status.conditions import linked
from trimtab_testbed.servers.kube import ControlPlane

LOAD = cluster(bundles=1, a=0.5, b=0.5)
TOKEN = {"token": {"secretKeyRef": {"name": "pulsar", "key": "token"}}}


class Running:
    """A bridge before a fake cluster; `opened` counts how often its parts were made, `calls` what they wrote."""

    def __init__(self, env: PolicyEnvironment, fake: FakePulsar) -> None:
        self.env, self.fake, self.opened, self.ended = env, fake, 0, 0
        self.cluster, self.link = env.cluster, env.cluster.link
        refit(self.cluster, clock=time.monotonic, now=time.time)
        refit(self.cluster, urls=AllowedUrls.of(["127.0.0.1"]))
        self.bridge = Bridge(self.cluster, Fence(), self._parts)

    def _parts(self, _context: ClusterState, _admin: Admin) -> Mapping[str, Callable[[], Awaitable[None]]]:
        self.opened += 1
        return {"part": self._part}

    async def _part(self) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            self.ended += 1

    def take(self) -> None:
        """What the policy's loop does with the policy as it is now."""
        settings = Settings.of(self.env.policy())
        self.cluster.policies.claims["main"], self.cluster.policies.settings["main"] = settings.claim, settings

    def name(self, **pulsar: Any) -> None:
        """Have the policy name the cluster so."""
        self.env.edit(pulsar={"adminUrl": self.fake.url, "timeout": "1s", **pulsar})
        self.take()

    def put(self, token: str, released: str = "true") -> None:
        """Create the Secret, or replace what it holds."""
        path = f"/api/v1/namespaces/{self.env.namespace}/secrets"
        meta = {"name": "pulsar", "labels": {"trimtab.dev/credentials": released}}
        body = {"metadata": meta, "data": {"token": base64.b64encode(token.encode()).decode()}}
        if any(item["metadata"]["name"] == "pulsar" for item in self.env.rest.get(path)["items"]):
            self.env.rest.patch(f"{path}/pulsar", body)
        else:
            self.env.rest.create(path, {"apiVersion": "v1", "kind": "Secret", **body})

    async def problem(self, words: str) -> None:
        await until(f"the link says {words!r}", lambda: words in self.link.problem)

    async def answers(self) -> None:
        await until("the link is fine", lambda: self.link.spec is not None and not self.link.problem)


Scenario = Callable[[Running], Awaitable[None]]
Run = Callable[..., None]


@pytest.fixture
def run(trimtab_crds: ControlPlane, kube_namespace: str, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs a scenario with a bridge that runs, in shortened times."""
    for name, seconds in (
        ("SPEC_INTERVAL", 0.05),
        ("PROBE_INTERVAL", 0.2),
        ("STORE_WITHIN", 0.5),
        ("SECRETS_INTERVAL", 0.3),
        ("REFUSED_INTERVAL", 0.1),
    ):
        monkeypatch.setattr(connection, name, seconds)

    def run_policy(scenario: Scenario, **fake: Any) -> None:
        async def whole(env: PolicyEnvironment) -> None:
            async with FakePulsar(**fake) as pulsar:
                found = Running(env, pulsar)
                task = asyncio.create_task(found.bridge.run())
                try:
                    await scenario(found)
                finally:
                    await ended(task)

        run_scenario(trimtab_crds, kube_namespace, LOAD, whole)

    return run_policy


@pytest.mark.apiserver
def test_the_client_opens_when_a_policy_names_a_cluster_and_closes_when_none_does(run: Run) -> None:
    async def scenario(r: Running) -> None:
        await asyncio.sleep(0.2)
        assert (r.link.spec, r.bridge.admin, r.opened) == (None, None, 0)
        r.name()
        await r.answers()
        assert (r.opened, r.link.policy) == (1, "main")
        r.link.ids = {"a": r.fake.ids[0]}
        r.cluster.leave("main")
        await until("it is closed", lambda: r.bridge.admin is None)
        assert (r.link.spec, r.link.ids, r.ended) == (None, None, 1)

    run(scenario)


@pytest.mark.apiserver
def test_a_changed_policy_opens_the_client_again(run: Run) -> None:
    async def scenario(r: Running) -> None:
        r.name()
        await r.answers()
        r.name(requestsPerSecond=7)
        await until("it is opened again", lambda: r.opened == 2)
        assert r.ended == 1

    run(scenario)


@pytest.mark.apiserver
def test_a_cluster_that_does_not_answer_is_reported_and_asked_again(run: Run) -> None:
    async def scenario(r: Running) -> None:
        r.fake.deaf |= set(r.fake.ids)
        r.name()
        await r.problem("no answer within 1 s")
        r.fake.deaf.clear()
        await r.answers()
        assert r.opened == 1, "the same client goes on"

    run(scenario)


@pytest.mark.apiserver
def test_a_url_that_is_not_allowed_is_reported_and_no_secret_is_read(run: Run) -> None:
    async def scenario(r: Running) -> None:
        refit(r.cluster, urls=AllowedUrls.of([]))
        r.name(auth=TOKEN)
        await r.problem("--allow-url 127.0.0.1")
        assert r.fake.requests == []

    run(scenario)


@pytest.mark.apiserver
def test_a_new_token_in_the_secret_counts_without_an_edit(run: Run) -> None:
    async def scenario(r: Running) -> None:
        r.name(auth=TOKEN)
        await r.problem("spec.pulsar.auth.token: Secret pulsar does not exist")
        r.put("the old one")
        await r.problem("401")
        assert "the old one" not in r.link.problem
        r.put("the new one")
        await r.answers()
        r.put("the new one", released="false")
        await r.problem("is not released for this")
        assert r.bridge.admin is None

    run(scenario, token="the new one")


@pytest.mark.apiserver
def test_a_secret_that_no_issuer_gives_is_reported_by_its_field(run: Run) -> None:
    async def scenario(r: Running) -> None:
        where = {"secretKeyRef": {"name": "pulsar", "key": "token"}}
        r.put("schlüssel")
        r.name(auth={"oauth2": {"issuerUrl": r.fake.url, "clientId": where, "clientSecret": where}})
        await r.problem("spec.pulsar.auth.oauth2.clientSecret: Secret pulsar, key token: it has")
        assert "schlüssel" not in r.link.problem
        assert r.fake.requests == []

    run(scenario)


@pytest.mark.apiserver
def test_whether_the_cluster_answers_is_read_again_after_a_defect(
    run: Run, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(r: Running) -> None:
        r.name()
        await r.answers()
        with monkeypatch.context() as broken:
            broken.setattr(Admin, "brokers", defect)
            await until("it is logged", lambda: "bridge probe ended, starting it again in 1 s" in caplog.text)
        r.fake.deaf |= set(r.fake.ids)
        await r.problem("no answer within 1 s")

    async def defect(_: Admin) -> frozenset[str]:
        raise KeyError("a defect")

    run(scenario)


@pytest.mark.parametrize(
    ("problem", "condition"),
    [("", ("True", "Linked")), (NOT_ASKED, ("Unknown", "NotAsked")), ("refused", ("False", "SourceUnavailable"))],
)
def test_the_condition_says_whether_the_cluster_answers(problem: str, condition: tuple[str, str]) -> None:
    link = PulsarLink(spec=PulsarSpec(admin_url="http://pulsar:8080"), problem=problem)
    (found,) = linked([], link, 2, 0.0)
    assert (found["status"], found["reason"]) == condition
    assert linked([found], PulsarLink(), 3, 0.0) == []


@pytest.mark.apiserver
def test_brokers_that_answer_only_from_their_caches_are_not_linked(run: Run) -> None:
    """Without ZooKeeper, brokers still list each other, and answer all that they have read before."""

    async def scenario(r: Running) -> None:
        r.name()
        await r.answers()
        r.fake.storeless = True
        await r.problem("their metadata store (ZooKeeper) does not")
        (found,) = linked([], r.link, 1, time.time())
        assert (found["status"], found["reason"]) == ("False", "SourceUnavailable")
        r.fake.storeless = False
        await r.answers()
        r.fake.stalled = True
        await r.problem("their metadata store (ZooKeeper) does not")
        r.fake.stalled = False
        await r.answers()

    run(scenario)


@pytest.mark.apiserver
def test_one_slow_read_of_the_metadata_store_is_no_problem(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(r: Running) -> None:
        r.name()
        await r.answers()
        r.fake.storeless = True
        begun = r.fake.count("trimtab-looks")
        await until("the store was read", lambda: r.fake.count("trimtab-looks") > begun)
        r.fake.storeless = False
        again = r.fake.count("trimtab-looks")
        await until("it was read again", lambda: r.fake.count("trimtab-looks") > again + 1)
        assert "ZooKeeper" not in caplog.text

    run(scenario)


@pytest.mark.apiserver
@pytest.mark.parametrize(("stalled", "rate"), [(True, 1000), (False, 2)])
def test_a_slow_sync_is_blamed_on_the_rate_only_if_the_rate_makes_it_slow(
    run: Run, caplog: pytest.LogCaptureFixture, rate: int, *, stalled: bool
) -> None:
    async def scenario(r: Running) -> None:
        r.name(requestsPerSecond=rate)
        await r.answers()
        admin = r.bridge.admin
        assert admin is not None
        r.link.ids = {f"broker-{number}": broker for number, broker in enumerate(r.fake.ids)}
        sync = ClusterSync(r.cluster, admin, SyncIntervals(owners=0.4))
        if stalled:
            await sync.sync_owners()  # they were fine before
        r.fake.stalled = stalled
        await sync.sync_owners()
        told = [record.getMessage() for record in caplog.records if "reading all owners takes" in record.getMessage()]
        assert len(told) == 1
        assert ("ZooKeeper" in told[0], "requestsPerSecond" in told[0]) == (stalled, not stalled)

    run(scenario, extensible=True)
