"""The client: what it sends, how it fails, and what it tries again. Against a real API server, behind a bad line."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from faulty_api import FaultyApi, status
from manifests import bundle, topic_namespace
from trimtab_operator.kube.client import (
    BUNDLES,
    CONFIG_MAPS,
    POLICIES,
    TOPIC_NAMESPACES,
    Api,
    ApiUnavailableError,
    ConflictError,
    ConnectionSettingsError,
    GoneError,
    NotFoundError,
    RefusedError,
    ResourceRef,
)
from trimtab_operator.kube.connection import USER_AGENT
from trimtab_testbed.servers.kube import ControlPlane

pytestmark = pytest.mark.apiserver

Environment = tuple[Api, FaultyApi, str]
RunScenario = Callable[[Callable[[Api, FaultyApi, str], Awaitable[None]]], None]


@pytest.fixture
def run_scenario(trimtab_crds: ControlPlane, kube_namespace: str, tmp_path: Path) -> RunScenario:
    """Runs a coroutine function on (api, proxy, namespace); the client gives up after two seconds."""

    @asynccontextmanager
    async def env() -> AsyncIterator[Environment]:
        async with FaultyApi(trimtab_crds, tmp_path) as proxy, Api.connect(str(proxy.kubeconfig), patience=2.0) as api:
            yield api, proxy, kube_namespace

    def run(scenario: Callable[[Api, FaultyApi, str], Awaitable[None]]) -> None:
        async def whole() -> None:
            async with env() as (api, proxy, namespace):
                await scenario(api, proxy, namespace)

        asyncio.run(whole())

    return run


async def names(api: Api, namespace: str, **how: Any) -> list[list[str]]:
    """Names per page."""
    return [[i["metadata"]["name"] for i in page.items] async for page in api.list(BUNDLES, namespace, **how)]


def test_an_object_is_created_read_changed_and_deleted(run_scenario: RunScenario) -> None:
    async def scenario(api: Api, proxy: FaultyApi, namespace: str) -> None:
        made = await api.create(BUNDLES, namespace, bundle(owner="x"))
        assert (await api.get(BUNDLES, namespace, "b"))["metadata"]["uid"] == made["metadata"]["uid"]
        await api.patch(BUNDLES, namespace, "b", {"spec": {"owner": "y"}})
        done = await api.patch(BUNDLES, namespace, "b", {"status": {"owner": "y"}}, subresource="status")
        assert (done["spec"]["owner"], done["status"]["owner"]) == ("y", "y")
        await api.delete(BUNDLES, namespace, "b")
        with pytest.raises(NotFoundError, match='"b" not found'):
            await api.get(BUNDLES, namespace, "b")
        assert proxy.agents == {USER_AGENT}

    run_scenario(scenario)


def test_a_patch_with_an_old_resource_version_is_a_conflict(run_scenario: RunScenario) -> None:
    async def scenario(api: Api, _: FaultyApi, namespace: str) -> None:
        made = await api.create(BUNDLES, namespace, bundle())
        version = {"metadata": {"resourceVersion": made["metadata"]["resourceVersion"]}}
        await api.patch(BUNDLES, namespace, "b", {**version, "spec": {"owner": "x"}})
        with pytest.raises(ConflictError) as conflict:
            await api.patch(BUNDLES, namespace, "b", {**version, "spec": {"owner": "y"}})
        assert conflict.value.reason == "Conflict"
        assert (await api.get(BUNDLES, namespace, "b"))["spec"]["owner"] == "x"

    run_scenario(scenario)


def test_a_name_that_is_taken_is_a_conflict_with_a_reason(run_scenario: RunScenario) -> None:
    async def scenario(api: Api, _: FaultyApi, namespace: str) -> None:
        await api.create(BUNDLES, namespace, bundle())
        with pytest.raises(ConflictError) as conflict:
            await api.create(BUNDLES, namespace, bundle())
        assert conflict.value.reason == "AlreadyExists"

    run_scenario(scenario)


def test_an_invalid_object_is_refused_at_once_with_the_servers_words(run_scenario: RunScenario) -> None:
    async def scenario(api: Api, proxy: FaultyApi, namespace: str) -> None:
        with pytest.raises(RefusedError, match=r"must be below range\.upper") as refusal:
            await api.create(BUNDLES, namespace, bundle(lower="0x50000000"))
        assert refusal.value.status == 422
        with pytest.raises(RefusedError, match=r'unknown field "spec\.bundels"'):
            await api.create(TOPIC_NAMESPACES, namespace, topic_namespace(bundels=4))
        assert len(proxy.seen) == 2

    run_scenario(scenario)


def test_a_list_comes_in_pages_of_one_snapshot(run_scenario: RunScenario) -> None:
    async def scenario(api: Api, _: FaultyApi, namespace: str) -> None:
        for i in range(5):
            await api.create(BUNDLES, namespace, bundle(f"b{i}", owner="x" if i % 2 else "y"))
        assert await names(api, namespace, limit=2) == [["b0", "b1"], ["b2", "b3"], ["b4"]]
        versions = {page.resource_version async for page in api.list(BUNDLES, namespace, limit=2)}
        assert len(versions) == 1
        assert await names(api, namespace, field_selector="spec.owner=x") == [["b1", "b3"]]

    run_scenario(scenario)


def test_a_busy_server_is_asked_again_after_the_time_it_names(run_scenario: RunScenario) -> None:
    async def scenario(api: Api, proxy: FaultyApi, namespace: str) -> None:
        proxy.faults["request"] = [status(429, "TooManyRequests", **{"Retry-After": "1"})]
        began = time.monotonic()
        await api.create(BUNDLES, namespace, bundle())
        assert time.monotonic() - began >= 1.0
        assert len(proxy.seen) == 2

    run_scenario(scenario)


@pytest.mark.parametrize("code", [500, 502, 503, 504])
def test_a_failing_server_is_asked_again(code: int, run_scenario: RunScenario) -> None:
    async def scenario(api: Api, proxy: FaultyApi, namespace: str) -> None:
        proxy.faults["request"] = [status(code), status(code)]
        assert await names(api, namespace) == [[]]
        assert len(proxy.seen) == 3

    run_scenario(scenario)


def test_patience_is_bounded_when_connections_are_refused(run_scenario: RunScenario) -> None:
    async def scenario(api: Api, proxy: FaultyApi, namespace: str) -> None:
        proxy.refusing = True
        began = time.monotonic()
        with pytest.raises(ApiUnavailableError, match="bundles/b"):
            await api.get(BUNDLES, namespace, "b")
        assert time.monotonic() - began < 2.5
        assert 3 <= len(proxy.seen) <= 14  # aiohttp asks once more itself when a GET meets a closed connection

    run_scenario(scenario)


def test_a_connection_that_comes_back_in_time_is_not_noticed(run_scenario: RunScenario) -> None:
    async def scenario(api: Api, proxy: FaultyApi, namespace: str) -> None:
        proxy.refusing = True
        asyncio.get_running_loop().call_later(0.5, setattr, proxy, "refusing", False)  # noqa: FBT003
        await api.create(BUNDLES, namespace, bundle())

    run_scenario(scenario)


def test_credentials_that_expired_are_read_again(run_scenario: RunScenario) -> None:
    async def scenario(api: Api, proxy: FaultyApi, namespace: str) -> None:
        proxy.faults["request"] = [status(401, "Unauthorized")]
        assert await names(api, namespace) == [[]]
        proxy.faults["request"] = [status(401, "Unauthorized"), status(401, "Unauthorized")]
        with pytest.raises(RefusedError, match="401"):
            await names(api, namespace)

    run_scenario(scenario)


def test_only_a_list_waits_for_a_kind_that_is_not_served_yet(run_scenario: RunScenario) -> None:
    async def scenario(api: Api, proxy: FaultyApi, namespace: str) -> None:
        proxy.faults["request"] = [status(404, "NotFound")]
        assert await names(api, namespace) == [[]]
        proxy.faults["request"] = [status(404, "NotFound")]
        with pytest.raises(NotFoundError):
            await api.patch(POLICIES, namespace, "main", {})
        assert proxy.faults["request"] == []

    run_scenario(scenario)


def test_a_kind_that_never_comes_is_not_found(run_scenario: RunScenario) -> None:
    async def scenario(api: Api, _: FaultyApi, namespace: str) -> None:
        unknown = ResourceRef("trimtab.dev", "v1alpha1", "sheds", "Shed")
        with pytest.raises(NotFoundError):
            [page async for page in api.list(unknown, namespace)]

    run_scenario(scenario)


def test_a_watch_tells_what_changed_since(run_scenario: RunScenario) -> None:
    async def scenario(api: Api, _: FaultyApi, namespace: str) -> None:
        made = await api.create(BUNDLES, namespace, bundle())
        await api.patch(BUNDLES, namespace, "b", {"spec": {"owner": "x"}})
        await api.delete(BUNDLES, namespace, "b")
        seen = [e async for e in api.watch(BUNDLES, namespace, made["metadata"]["resourceVersion"], seconds=1)]
        assert [event.type for event in seen if event.type != "BOOKMARK"] == ["MODIFIED", "DELETED"]

    run_scenario(scenario)


def test_a_watch_from_too_long_ago_is_gone(run_scenario: RunScenario) -> None:
    async def scenario(api: Api, proxy: FaultyApi, namespace: str) -> None:
        proxy.faults["watch"] = [status(410, "Expired")]
        with pytest.raises(GoneError):
            [event async for event in api.watch(BUNDLES, namespace, "1", seconds=1)]

    run_scenario(scenario)


def test_a_silent_watch_is_given_up(run_scenario: RunScenario) -> None:
    async def scenario(api: Api, _: FaultyApi, namespace: str) -> None:
        [page] = [page async for page in api.list(BUNDLES, namespace)]
        with pytest.raises(ApiUnavailableError):
            [e async for e in api.watch(BUNDLES, namespace, page.resource_version, seconds=30, silence=0.3)]

    run_scenario(scenario)


def test_each_request_is_observed(trimtab_crds: ControlPlane, kube_namespace: str) -> None:
    observed: list[tuple[str, str]] = []

    def observe(verb: str, code: str, seconds: float) -> None:
        assert 0 < seconds < 10
        observed.append((verb, code))

    async def scenario() -> None:
        async with Api.connect(str(trimtab_crds.kubeconfig), observe=observe) as api:
            await names(api, kube_namespace)
            with pytest.raises(NotFoundError):
                await api.get(CONFIG_MAPS, kube_namespace, "none")

    asyncio.run(scenario())
    assert observed == [("list", "200"), ("get", "404")]


def test_credentials_are_those_of_the_kubeconfig(trimtab_crds: ControlPlane) -> None:
    async def scenario() -> dict[str, Any]:
        async with Api.connect(str(trimtab_crds.kubeconfig)) as api:
            return await api.credentials()

    given = asyncio.run(scenario())
    assert (given["server"], given["scheme"]) == (trimtab_crds.url, "Bearer")
    assert given["token"]
    assert Path(given["ca_path"]).read_bytes() == trimtab_crds.ca.read_bytes()


@pytest.mark.parametrize("text", [None, "clusters: [", "{}", "just words"])
def test_a_kubeconfig_that_is_no_use_is_named(text: str | None, tmp_path: Path) -> None:
    path = tmp_path / "kubeconfig"
    if text is not None:
        path.write_text(text)

    async def scenario() -> None:
        async with Api.connect(str(path)):
            pass

    with pytest.raises(ConnectionSettingsError, match=str(path)):
        asyncio.run(scenario())


def test_no_way_to_a_server_says_what_to_set(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "absent"))

    async def scenario() -> None:
        async with Api.connect():
            pass

    with pytest.raises(ConnectionSettingsError, match="set KUBECONFIG or --kubeconfig"):
        asyncio.run(scenario())
