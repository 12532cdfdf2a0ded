"""The store keeps up with a real API server through gaps, broken streams, 410 and objects it can't read."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from faulty_api import FaultyApi, expired_watch, status, until
from manifests import bundle
from trimtab_operator.kube.client import BUNDLES, Api
from trimtab_operator.kube.records import BundleRecord, bundle_record
from trimtab_operator.kube.store import RESUMES, Store
from trimtab_testbed.servers.kube import ControlPlane

pytestmark = pytest.mark.apiserver

Change = tuple[str | None, str | None]


class Environment:
    """A store that runs behind a bad line; `direct` is a way to the server around it."""

    def __init__(self, store: Store[BundleRecord], proxy: FaultyApi, direct: Api, namespace: str) -> None:
        self.store, self.proxy, self.direct, self.namespace = store, proxy, direct, namespace
        self.changes: list[Change] = []
        store.subscribe(lambda old, new: self.changes.append((old and old.owner, new and new.owner)))

    async def create(self, name: str, owner: str = "x") -> None:
        await self.direct.create(BUNDLES, self.namespace, bundle(name, owner=owner))

    async def give(self, name: str, owner: str) -> None:
        await self.direct.patch(BUNDLES, self.namespace, name, {"spec": {"owner": owner}})

    async def delete(self, name: str) -> None:
        await self.direct.delete(BUNDLES, self.namespace, name)

    def owners(self) -> dict[str, str]:
        return {name: record.owner for name, record in self.store.items.items()}

    async def shows(self, owners: dict[str, str], within: float = 15.0) -> None:
        await until(f"{owners}, but {self.owners()}", lambda: self.owners() == owners, within)


Scenario = Callable[[Environment], Awaitable[None]]
RunScenario = Callable[[Scenario], None]


@pytest.fixture
def run_scenario(trimtab_crds: ControlPlane, kube_namespace: str, tmp_path: Path) -> RunScenario:
    """Runs a scenario beside a store that has bundles `a` and `b`, both with the desired owner x, and is synced."""

    async def whole(scenario: Scenario) -> None:
        async with (
            FaultyApi(trimtab_crds, tmp_path) as proxy,
            Api.connect(str(proxy.kubeconfig), patience=0.5) as api,
            Api.connect(str(trimtab_crds.kubeconfig)) as direct,
        ):
            store = Store(api, BUNDLES, bundle_record, namespace=kube_namespace, watch_seconds=20)
            env = Environment(store, proxy, direct, kube_namespace)
            await env.create("a")
            await env.create("b")
            running = asyncio.create_task(store.run())
            try:
                async with asyncio.timeout(10):
                    await store.synced.wait()
                await until("the first watch", lambda: proxy.watches() == 1)
                await scenario(env)
                assert not running.done()
            finally:
                running.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await running

    return lambda scenario: asyncio.run(whole(scenario))


def test_changes_arrive_and_subscribers_are_notified(run_scenario: RunScenario) -> None:
    async def scenario(env: Environment) -> None:
        assert env.changes == [(None, "x"), (None, "x")]
        await env.give("a", "y")
        await env.delete("b")
        await env.shows({"a": "y"})
        assert env.changes[2:] == [("x", "y"), ("x", None)]
        assert env.store.age() < 5

    run_scenario(scenario)


def test_a_broken_stream_is_resumed_where_it_broke(run_scenario: RunScenario) -> None:
    async def scenario(env: Environment) -> None:
        env.proxy.cut()
        await env.delete("b")
        await env.create("c")
        await env.shows({"a": "x", "c": "x"})
        assert env.store.counters.lists == 1
        assert env.changes[2:] == [("x", None), (None, "x")]

    run_scenario(scenario)


@pytest.mark.parametrize("gone", [status(410, "Expired"), expired_watch])
def test_what_was_deleted_during_a_gap_is_noticed(gone: Callable[..., object], run_scenario: RunScenario) -> None:
    async def scenario(env: Environment) -> None:
        env.proxy.faults["watch"] = [gone]  # type: ignore[list-item]
        env.proxy.refusing = True
        env.proxy.cut()
        await env.delete("b")
        await env.give("a", "y")
        await env.create("c")
        env.proxy.refusing = False
        await env.shows({"a": "y", "c": "x"})
        assert env.store.counters.lists == 2
        assert env.store.counters.gone == 1
        assert sorted(env.changes[2:], key=str) == [("x", "y"), ("x", None), (None, "x")]

    run_scenario(scenario)


def test_a_list_that_finds_nothing_new_notifies_no_one(run_scenario: RunScenario) -> None:
    async def scenario(env: Environment) -> None:
        env.proxy.faults["watch"] = [expired_watch]
        env.proxy.cut()
        await until("a second list", lambda: env.store.counters.lists == 2)
        assert len(env.changes) == 2

    run_scenario(scenario)


def test_a_watch_that_can_never_be_resumed_leads_to_a_list(run_scenario: RunScenario) -> None:
    async def scenario(env: Environment) -> None:
        env.proxy.faults["watch"] = [status(400, "BadRequest")] * RESUMES
        env.proxy.cut()
        await env.delete("b")
        await env.shows({"a": "x"})
        assert env.store.counters.lists == 2

    run_scenario(scenario)


def test_an_object_that_cannot_be_read_is_left_out_and_counted(run_scenario: RunScenario) -> None:
    async def scenario(env: Environment) -> None:
        env.store._convert = lambda raw: bundle_record({**raw, "spec": {}} if raw["metadata"]["name"] == "b" else raw)
        await env.give("b", "y")
        await env.give("a", "z")
        await env.shows({"a": "z"})
        assert env.store.counters.unreadable == 1

    run_scenario(scenario)


def test_a_subscriber_that_fails_does_not_affect_others(run_scenario: RunScenario) -> None:
    async def scenario(env: Environment) -> None:
        def fail(_old: BundleRecord | None, _new: BundleRecord | None) -> None:
            raise RuntimeError("cannot bear it")

        env.store._subscribers.insert(0, fail)
        await env.give("a", "y")
        await env.shows({"a": "y", "b": "x"})
        assert env.changes[-1] == ("x", "y")

    run_scenario(scenario)


def test_items_cannot_be_written_from_outside(run_scenario: RunScenario) -> None:
    async def scenario(env: Environment) -> None:
        with pytest.raises(TypeError):
            env.store.items["a"] = env.store.items["b"]  # type: ignore[index]

    run_scenario(scenario)


def test_a_store_of_the_whole_cluster_tells_namespaces_apart(trimtab_crds: ControlPlane, kube_namespace: str) -> None:
    other = f"{kube_namespace}-other"
    trimtab_crds.rest.create_namespace(other)

    async def scenario() -> None:
        async with Api.connect(str(trimtab_crds.kubeconfig)) as api:
            for namespace, labels in ((kube_namespace, {"test": kube_namespace}), (other, {"test": kube_namespace})):
                made = bundle("b")
                await api.create(BUNDLES, namespace, {**made, "metadata": {**made["metadata"], "labels": labels}})
            await api.create(BUNDLES, other, bundle("without-label"))
            store = Store(api, BUNDLES, bundle_record, namespace="", label_selector=f"test={kube_namespace}")
            running = asyncio.create_task(store.run())
            async with asyncio.timeout(10):
                await store.synced.wait()
            assert set(store.items) == {f"{kube_namespace}/b", f"{other}/b"}
            running.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await running

    asyncio.run(scenario())


def test_a_store_that_never_listed_is_infinitely_old(trimtab_crds: ControlPlane) -> None:
    async def scenario() -> None:
        async with Api.connect(str(trimtab_crds.kubeconfig)) as api:
            store = Store(api, BUNDLES, bundle_record, namespace="none")
            assert store.age() == float("inf")
            assert not store.synced.is_set()

    asyncio.run(scenario())


def test_the_store_gets_over_a_restart_of_the_api_server(own_control_plane: ControlPlane) -> None:
    plane = own_control_plane
    plane.rest.create_namespace("one")

    async def scenario() -> None:
        async with Api.connect(str(plane.kubeconfig), patience=30) as api:
            await api.create(BUNDLES, "one", bundle("a"))
            store = Store(api, BUNDLES, bundle_record, namespace="one")
            running = asyncio.create_task(store.run())
            async with asyncio.timeout(10):
                await store.synced.wait()
            await asyncio.to_thread(plane.stop_apiserver, kill=True)
            await asyncio.to_thread(plane.start_apiserver)
            await api.create(BUNDLES, "one", bundle("b"))
            await until("b after the restart", lambda: set(store.items) == {"a", "b"}, 30)
            running.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await running

    asyncio.run(scenario())


def test_a_store_in_which_nothing_happens_stays_current(trimtab_crds: ControlPlane, kube_namespace: str) -> None:
    async def quiet() -> None:
        async with Api.connect(str(trimtab_crds.kubeconfig)) as api:
            store = Store(api, BUNDLES, bundle_record, namespace=kube_namespace, watch_seconds=2)
            running = asyncio.create_task(store.run())
            try:
                async with asyncio.timeout(10):
                    await store.synced.wait()
                await asyncio.sleep(6)
                assert store.age() < 4
                assert (store.counters.lists, store.counters.failures) == (1, 0)
            finally:
                running.cancel()
                await asyncio.gather(running, return_exceptions=True)

    asyncio.run(quiet())
