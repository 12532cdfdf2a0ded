"""The client of Pulsar's admin REST: who is asked, with what, and what refusals mean."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from aiohttp import web

from pulsar_admin import FakePulsar
from trimtab_operator.pulsar.client.api import LoadManager
from trimtab_operator.pulsar.client.auth import Bearer
from trimtab_operator.pulsar.client.errors import (
    InactiveDestinationError,
    PulsarError,
    PulsarRefusedError,
    PulsarUnavailableError,
    SameBrokerError,
    StaleBundleError,
    UnknownError,
)
from trimtab_operator.pulsar.client.http import Admin, connected
from trimtab_operator.pulsar.client.transport import Guards
from trimtab_operator.resources.urls import AllowedUrls
from trimtab_pipeline.api import Credentials

TOKEN = "a-long-secret-token"


def asked(fake: FakePulsar, scenario: Callable[[Admin, FakePulsar], Awaitable[Any]], **options: Any) -> Any:
    """Run `scenario` with a client of `fake`."""

    async def run_scenario() -> Any:
        async with fake, connected(fake.url, **options) as admin:
            return await scenario(admin, fake)

    return asyncio.run(run_scenario())


async def refused(doing: Awaitable[Any]) -> PulsarError:
    with pytest.raises(PulsarError) as caught:
        await doing
    return caught.value


def test_an_unload_follows_to_the_owner_with_its_method_and_names_the_destination() -> None:
    async def scenario(admin: Admin, fake: FakePulsar) -> None:
        (bundle,) = fake.add("t/n", 1, fake.ids[2])
        await admin.unload(bundle, fake.ids[1])
        assert [(broker, method) for broker, method, path in fake.requests if "unload" in path] == [
            (fake.ids[0], "PUT"),
            (fake.ids[2], "PUT"),
        ]
        assert fake.owners[bundle] == fake.ids[1]

    asked(FakePulsar(), scenario)


@pytest.mark.parametrize("manager", [LoadManager.MODULAR, LoadManager.EXTENSIBLE])
def test_refusals_of_an_unload_can_be_distinguished(manager: LoadManager) -> None:
    async def scenario(admin: Admin, fake: FakePulsar) -> list[type[PulsarError]]:
        (bundle,) = fake.add("t/n", 1, fake.ids[0])
        stale, text = "t/n/0x00000000_0x40000000", "an unexpected error"
        fake.failures.append((500, text))
        wrong = [(stale, ""), (bundle, "10.9.9.9:8080"), (bundle, fake.ids[1]), ("t/gone/0x00000000_0xffffffff", "")]
        found = [type(await refused(admin.unload(*asked_for))) for asked_for in wrong]
        if manager is LoadManager.EXTENSIBLE:
            found.append(type(await refused(admin.unload(bundle, fake.ids[0]))))
        return found

    errors = asked(FakePulsar(extensible=manager is LoadManager.EXTENSIBLE), scenario)

    assert errors[:4] == [StaleBundleError, InactiveDestinationError, PulsarUnavailableError, UnknownError]
    assert errors[4:] == ([SameBrokerError] if manager is LoadManager.EXTENSIBLE else [])


def test_what_a_broker_owns_is_read_without_the_systems_own_bundles() -> None:
    async def scenario(admin: Admin, fake: FakePulsar) -> None:
        mine, other = fake.add("t/n", 2, fake.ids[1], fake.ids[0])
        assert await admin.owned(fake.ids[1]) == {mine}
        assert await admin.owned(fake.ids[0]) == {other}
        assert isinstance(await refused(admin.owned("10.9.9.9:8080")), UnknownError)

    asked(FakePulsar(), scenario)


def test_any_broker_tells_who_serves_a_bundle_and_the_one_it_names_is_not_asked() -> None:
    async def scenario(admin: Admin, fake: FakePulsar) -> list[str]:
        mine, nobodys = fake.add("t/n", 2, fake.ids[1], "")
        fake.deaf.add(fake.ids[1])
        assert isinstance(await refused(admin.owner(mine, fake.ids[1])), PulsarUnavailableError)
        assert isinstance(await refused(admin.owner("t/n/0x00000000_0x10000000", fake.ids[0])), StaleBundleError)
        assert await admin.reported(fake.ids[0]) == frozenset()
        return [await admin.owner(mine, fake.ids[0]), await admin.owner(nobodys, fake.ids[2])]

    fake = FakePulsar()
    assert asked(fake, scenario, timeout=0.5) == [fake.ids[1], ""]


@pytest.mark.parametrize("manager", [LoadManager.MODULAR, LoadManager.EXTENSIBLE])
def test_the_load_manager_is_found_out(manager: LoadManager) -> None:
    async def scenario(admin: Admin, _: FakePulsar) -> LoadManager:
        return await admin.load_manager()

    assert asked(FakePulsar(extensible=manager is LoadManager.EXTENSIBLE), scenario) is manager


def test_the_version_of_each_broker_is_read_and_one_that_has_no_such_call_has_none() -> None:
    async def scenario(admin: Admin, fake: FakePulsar) -> list[str]:
        first, second, _ = fake.ids
        fake.versions[second] = "3.0.4"
        versions = [await admin.version(first), await admin.version(second)]
        fake.astray.add("version")
        return [*versions, await admin.version(first)]

    assert asked(FakePulsar(), scenario) == ["4.0.8", "3.0.4", ""]


@pytest.mark.parametrize("host", ["127.0.0.2", "127.0.0.1"], ids=["another host", "another port"])
def test_a_redirect_to_a_stranger_is_not_followed_and_the_token_stays_here(host: str) -> None:
    seen: list[str] = []

    async def stranger(request: web.BaseRequest) -> web.Response:
        seen.append(request.headers.get("Authorization", ""))
        return web.json_response({})

    async def run_scenario() -> PulsarError:
        runner = web.ServerRunner(web.Server(stranger))
        await runner.setup()
        await web.TCPSite(runner, host, 0).start()
        async with FakePulsar(size=1, token=TOKEN) as fake:
            fake.owners["t/n/0x00000000_0xffffffff"] = f"{host}:{runner.addresses[0][1]}"
            fake.spaces["t/n"] = (0, 0xFFFFFFFF)
            async with connected(fake.url, identity=Bearer(Credentials(TOKEN))) as admin:
                error = await refused(admin.unload("t/n/0x00000000_0xffffffff"))
        await runner.cleanup()
        return error

    error = asyncio.run(run_scenario())

    assert isinstance(error, PulsarRefusedError)
    assert "which Pulsar does not list as a broker" in str(error)
    assert seen == []


def test_a_listed_broker_that_the_administrator_does_not_allow_is_not_asked() -> None:
    async def scenario(admin: Admin, fake: FakePulsar) -> None:
        allowed.append(AllowedUrls.of([fake.ids[0]]))
        (bundle,) = fake.add("t/n", 1, fake.ids[1])
        error = await refused(admin.unload(bundle, fake.ids[2]))
        assert "--allow-url 127.0.0.1" in str(error)
        assert "--allow-url 127.0.0.1" in str(await refused(admin.runtime(fake.ids[2])))
        assert isinstance(await refused(admin.runtime("10.9.9.9:8080")), UnknownError), "nor one that is not listed"
        assert {broker for broker, _, _ in fake.requests} == {fake.ids[0]}

    allowed = [AllowedUrls.of(["127.0.0.1"])]
    guards = Guards(admit=lambda url: allowed[-1].admit(url, "messaging", secrets=True))
    asked(FakePulsar(), scenario, guards=guards)


def test_writes_pass_the_fence_and_reads_do_not() -> None:
    told: list[str] = []

    def fence(what: str) -> None:
        told.append(what)
        raise RuntimeError("this process does not lead")

    async def scenario(admin: Admin, fake: FakePulsar) -> None:
        (bundle,) = fake.add("t/n", 1, fake.ids[0])
        assert await admin.boundaries("t/n")
        with pytest.raises(RuntimeError, match="does not lead"):
            await admin.unload(bundle)
        assert fake.count("unload") == 0

    asked(FakePulsar(), scenario, guards=Guards(fence=fence))

    assert told == ["PUT /admin/v2/namespaces/t/n/0x00000000_0xffffffff/unload"]


def test_a_refused_token_is_not_repeated_in_what_is_said() -> None:
    fresh: list[None] = []

    async def scenario(admin: Admin, _: FakePulsar) -> PulsarError:
        return await refused(admin.brokers())

    identity = Bearer(Credentials(TOKEN), lambda: fresh.append(None))
    error = asked(FakePulsar(token="another"), scenario, identity=identity)

    assert (type(error), error.status) == (PulsarRefusedError, 401)
    assert str(error) == "GET /admin/v2/brokers: 401 not Bearer ***"
    assert fresh == [None], "there may be a new one where it came from"


def test_a_broker_that_does_not_answer_is_given_up_in_time() -> None:
    async def scenario(admin: Admin, fake: FakePulsar) -> PulsarError:
        fake.deaf.add(fake.ids[1])
        await admin.owned(fake.ids[0])
        return await refused(admin.owned(fake.ids[1]))

    error = asked(FakePulsar(), scenario, timeout=0.3)

    assert isinstance(error, PulsarUnavailableError)
    assert "no answer within 0.3 s" in str(error)


def test_when_the_broker_that_is_asked_falls_silent_another_is_asked_next() -> None:
    async def scenario(admin: Admin, fake: FakePulsar) -> None:
        await admin.brokers()
        fake.deaf.add(fake.ids[0])
        assert isinstance(await refused(admin.brokers()), PulsarUnavailableError)
        assert await admin.brokers() == set(fake.ids)

    asked(FakePulsar(), scenario, timeout=0.3)


def test_looks_wait_for_the_budget_and_what_is_under_way_does_not() -> None:
    waited: list[float] = []

    async def scenario(admin: Admin, fake: FakePulsar) -> None:
        (bundle,) = fake.add("t/n", 1, fake.ids[0])
        loop = asyncio.get_running_loop()
        begun = loop.time()
        for _ in range(15):
            await admin.brokers()
        assert loop.time() - begun >= 0.5, "10 at once, then 5 more at 10 a second"
        waits = len(waited)
        await admin.without_budget().brokers()
        await admin.unload(bundle, fake.ids[1])
        assert len(waited) == waits

    asked(FakePulsar(), scenario, requests_per_second=10.0, guards=Guards(waited=waited.append))

    assert sum(waited) > 0


def test_every_hop_is_observed_by_call_and_status() -> None:
    seen: list[tuple[str, str]] = []

    async def scenario(admin: Admin, fake: FakePulsar) -> None:
        (bundle,) = fake.add("t/n", 1, fake.ids[1])
        await admin.unload(bundle, fake.ids[2])

    asked(FakePulsar(), scenario, guards=Guards(observe=lambda call, code, _: seen.append((call, code))))

    assert seen == [("unload", "307"), ("brokers", "200"), ("unload", "204")]
