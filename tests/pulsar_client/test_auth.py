"""Who asks Pulsar: OAuth 2 client credentials, which are renewed."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from aiohttp import web

from faulty_api import until
from pulsar_admin import FakePulsar
from trimtab_operator.pulsar.client import auth
from trimtab_operator.pulsar.client.auth import Client, ClientCredentials
from trimtab_operator.pulsar.client.errors import PulsarRefusedError, PulsarUnavailableError
from trimtab_operator.pulsar.client.http import connected
from trimtab_pipeline.api import NO_CREDENTIALS, Credentials
from trimtab_testbed.servers.certificates import Authority

SECRET = "s3cret&word"


@dataclass
class Issuer:
    """A token server: `life` seconds of each token, what it was posted, and how it fails; or it `hangs`.

    name: what it calls itself, at its `url`.
    """

    life: float = 3600.0
    status: int = 200
    endpoint: str = ""
    name: str = "{url}/realm"
    hangs: bool = False
    posted: list[dict[str, str]] = field(default_factory=list)
    url: str = ""

    async def handle(self, request: web.BaseRequest) -> web.Response:
        if request.path == "/realm/.well-known/openid-configuration":
            told = {"issuer": self.name.format(url=self.url), "token_endpoint": self.endpoint or f"{self.url}/token"}
            return web.json_response({key: value for key, value in told.items() if value != "-"})
        form = {name: str(value) for name, value in (await request.post()).items()}
        self.posted.append(form)
        if self.hangs:
            await asyncio.sleep(60)
        if self.status != 200:
            return web.Response(status=self.status, text=f"no: {form['client_secret']}")
        return web.json_response({"access_token": f"token-{len(self.posted)}", "expires_in": self.life})


@asynccontextmanager
async def issuing(issuer: Issuer, tls: ssl.SSLContext | None = None) -> AsyncIterator[None]:
    runner = web.ServerRunner(web.Server(issuer.handle), shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls).start()
    issuer.url = f"{'https' if tls else 'http'}://127.0.0.1:{runner.addresses[0][1]}"
    try:
        yield
    finally:
        await runner.cleanup()


class Clock:
    """Seconds that a test moves."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


async def shown(who: ClientCredentials, token: str) -> None:
    """Wait until `token` is what requests are made with."""
    async with asyncio.timeout(10):
        while (await who.headers())["Authorization"] != f"Bearer {token}":  # noqa: ASYNC110  the issuer's doing
            await asyncio.sleep(0.01)


def names() -> set[str]:
    """Of the tasks that run."""
    return {task.get_name() for task in asyncio.all_tasks()}


Scenario = Callable[[ClientCredentials, Issuer, Clock], Any]


def run_scenario(scenario: Scenario, issuer: Issuer | None = None, admit: Callable[[str], str] = str) -> None:
    async def run_policy() -> None:
        found, clock = issuer or Issuer(), Clock()
        async with issuing(found):
            client = Client(f"{found.url}/realm/", "trimtab", SECRET, "urn:sn:pulsar", "admin")
            await scenario(ClientCredentials(client, NO_CREDENTIALS, admit, clock), found, clock)

    asyncio.run(run_policy())


def test_a_token_is_asked_for_once_and_renewed_before_it_ends() -> None:
    async def scenario(who: ClientCredentials, issuer: Issuer, clock: Clock) -> None:
        assert await who.headers() == await who.headers() == {"Authorization": "Bearer token-1"}
        assert issuer.posted == [
            {
                "grant_type": "client_credentials",
                "client_id": "trimtab",
                "client_secret": SECRET,
                "audience": "urn:sn:pulsar",
                "scope": "admin",
            }
        ]
        clock.now += 3539
        assert (await who.headers())["Authorization"] == "Bearer token-1"
        clock.now += 2
        assert (await who.headers())["Authorization"] == "Bearer token-1", "no request waits while it is valid"
        await shown(who, "token-2")

    run_scenario(scenario)


def test_a_token_is_used_to_its_end_when_the_issuer_does_not_answer() -> None:
    async def scenario(who: ClientCredentials, issuer: Issuer, clock: Clock) -> None:
        await who.headers()
        issuer.status = 503
        clock.now += 3550
        for _ in range(3):
            assert (await who.headers())["Authorization"] == "Bearer token-1"
            await until("the issuer was asked", lambda: len(issuer.posted) == 2)
            await asyncio.sleep(0.05)
        assert len(issuer.posted) == 2, "the issuer is not asked again at once"
        clock.now += 60
        with pytest.raises(PulsarUnavailableError, match="503"):
            await who.headers()

    run_scenario(scenario)


def test_an_issuer_that_hangs_holds_up_no_one_whose_token_is_valid(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(who: ClientCredentials, issuer: Issuer, clock: Clock) -> None:
        async with FakePulsar(token="token-1") as fake, connected(fake.url, identity=who, timeout=1.0) as admin:
            await who.headers()
            issuer.hangs = True
            clock.now += 3550
            assert await admin.brokers() == await admin.brokers() == set(fake.ids)
            await until("the issuer was asked", lambda: len(issuer.posted) == 2)
            issuer.hangs, fake.token = False, "token-3"
            await until("that is given up", lambda: "token of the issuer" not in names())
            clock.now += auth.RETRY_AFTER
            await shown(who, "token-3")
            assert await admin.brokers() == set(fake.ids)

    monkeypatch.setattr(auth, "ISSUER_TIMEOUT", 1.0)
    run_scenario(scenario)


def test_an_issuer_that_hangs_is_reported_instead_of_pulsar_and_no_other_broker_is_tried(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario(who: ClientCredentials, issuer: Issuer, clock: Clock) -> None:
        async with FakePulsar(token="token-1") as fake, connected(fake.url, identity=who, timeout=0.1) as admin:
            await admin.brokers()
            issuer.hangs = True
            clock.now += 3600
            found = await asyncio.gather(*(admin.brokers() for _ in range(3)), return_exceptions=True)
            assert [str(error) for error in found] == [f"issuer {issuer.url}/realm/: no answer within 1 s"] * 3
            assert len(issuer.posted) == 2, "all wait for one"
            assert len(fake.requests) == 1
            issuer.hangs, fake.token = False, "token-3"
            clock.now += auth.RETRY_AFTER
            await admin.brokers()
            assert fake.requests[-1][0] == fake.ids[0]

    monkeypatch.setattr(auth, "ISSUER_TIMEOUT", 1.0)
    run_scenario(scenario)


def test_a_client_that_is_closed_asks_the_issuer_no_more() -> None:
    async def scenario(who: ClientCredentials, issuer: Issuer, clock: Clock) -> None:
        async with FakePulsar(token="token-1") as fake, connected(fake.url, identity=who) as admin:
            await admin.brokers()
            issuer.hangs = True
            clock.now += 3550
            await who.headers()
            await until("the issuer was asked", lambda: len(issuer.posted) == 2)
            assert "token of the issuer" in names()
        assert "token of the issuer" not in names()

    run_scenario(scenario)


def test_a_401_has_the_token_renewed_but_not_over_and_over() -> None:
    async def scenario(who: ClientCredentials, _: Issuer, clock: Clock) -> None:
        first = await who.headers()
        assert not await who.refused(first), "it is brand new: another one would fare no better"
        clock.now += 30
        assert await who.refused(first)
        assert (await who.headers())["Authorization"] == "Bearer token-2"

    run_scenario(scenario)


@pytest.mark.slow
def test_brokers_that_go_on_refusing_have_tokens_asked_for_less_and_less() -> None:
    async def scenario(who: ClientCredentials, issuer: Issuer, clock: Clock) -> None:
        for _ in range(1440):
            await who.refused(await who.headers())
            clock.now += 5
        assert 20 < len(issuer.posted) < 35, "two hours of refusals: soon one in five minutes"
        for last in (len(issuer.posted) + 1, len(issuer.posted) + 2):
            clock.now += 3550
            await shown(who, f"token-{last}")
        clock.now += 5
        assert await who.refused(await who.headers()), "the last was never refused: that is over"

    run_scenario(scenario)


def test_requests_that_were_under_way_with_the_old_token_are_made_again_with_the_new_one() -> None:
    async def scenario(who: ClientCredentials, issuer: Issuer, clock: Clock) -> None:
        async with FakePulsar(token="token-2") as fake, connected(fake.url, identity=who) as admin:
            old = await who.headers()
            clock.now += 30
            found = await asyncio.gather(*(admin.without_budget().brokers() for _ in range(8)))
            assert found == [set(fake.ids)] * 8
            assert len(issuer.posted) == 2
            assert await who.refused(old), "the last of them was answered late"
            assert (await who.headers())["Authorization"] == "Bearer token-2"

    run_scenario(scenario)


@pytest.mark.parametrize("hangs", [False, True], ids=["fails", "hangs"])
def test_a_token_that_one_call_is_refused_with_does_for_others_when_there_is_no_new_one(
    monkeypatch: pytest.MonkeyPatch,
    hangs: bool,  # noqa: FBT001
) -> None:
    async def scenario(who: ClientCredentials, issuer: Issuer, clock: Clock) -> None:
        token = await who.headers()
        issuer.status, issuer.hangs = 503, hangs
        clock.now += 30
        refused = asyncio.create_task(who.refused(token))
        await until("the issuer was asked", lambda: len(issuer.posted) == 2)
        async with asyncio.timeout(0.5):
            assert await who.headers() == token, "no other request waits"
        assert not await refused
        assert await who.headers() == token

    monkeypatch.setattr(auth, "ISSUER_TIMEOUT", 1.0)
    run_scenario(scenario)


def test_what_the_issuer_refuses_is_reported_without_the_secret() -> None:
    async def scenario(who: ClientCredentials, issuer: Issuer, _: Clock) -> None:
        issuer.status = 401
        with pytest.raises(PulsarRefusedError) as caught:
            await who.headers()
        assert "401 no: ***" in str(caught.value)
        assert SECRET not in str(caught.value) + repr(who)

    run_scenario(scenario)


def test_the_secret_is_not_sent_to_an_endpoint_that_is_not_allowed() -> None:
    def admit(url: str) -> str:
        if "evil" in url:
            raise ValueError(f"{url} is not among the URLs that policies may name")
        return url

    async def scenario(who: ClientCredentials, issuer: Issuer, _: Clock) -> None:
        with pytest.raises(PulsarRefusedError, match=r"evil\.example is not among"):
            await who.headers()
        assert issuer.posted == []

    run_scenario(scenario, Issuer(endpoint="http://evil.example"), admit)


@pytest.mark.parametrize(
    ("issuer", "told"),
    [
        (
            Issuer(name="https://evil.example/realm"),
            "names itself https://evil.example/realm: issuerUrl must be the same",
        ),
        (Issuer(name="{url}/other"), "names itself http://127.0.0.1:[0-9]+/other: "),
        (Issuer(name="-"), "names itself -: |names itself nothing: "),
        (Issuer(endpoint="-"), "names no token_endpoint: check what issuerUrl leads to"),
    ],
)
def test_an_issuer_that_calls_itself_otherwise_is_sent_no_secret(issuer: Issuer, told: str) -> None:
    async def scenario(who: ClientCredentials, found: Issuer, _: Clock) -> None:
        with pytest.raises(PulsarRefusedError, match=told):
            await who.headers()
        assert found.posted == []

    run_scenario(scenario, issuer)


@pytest.mark.parametrize("name", ["{url}/realm/", "HTTP://127.0.0.1:9/realm"])
def test_an_issuer_may_be_known_by_a_short_name_and_end_with_a_slash_or_not(name: str) -> None:
    async def run_policy() -> Any:
        issuer = Issuer(name=name)
        async with issuing(issuer):
            admit = {issuer.url: issuer.url, f"{issuer.url}/token": f"{issuer.url}/token"}
            url = issuer.url if "{url}" in name else "http://127.0.0.1:9"

            def whole(asked: str) -> str:
                return admit.get(asked, asked).replace("http://127.0.0.1:9/", f"{issuer.url}/")

            return await ClientCredentials(Client(f"{url}/realm", "trimtab", SECRET), NO_CREDENTIALS, whole).headers()

    assert asyncio.run(run_policy()) == {"Authorization": "Bearer token-1"}


@pytest.mark.parametrize("life", [-1.0, float("nan"), float("inf")])
def test_a_token_whose_life_does_not_end_is_reported(life: float) -> None:
    async def scenario(who: ClientCredentials, _: Issuer, __: Clock) -> None:
        with pytest.raises(PulsarUnavailableError, match=f"expires_in {life:g} must be above 0 s"):
            await who.headers()

    run_scenario(scenario, Issuer(life=life))


def test_an_issuer_that_is_asked_by_https_does_not_lead_to_http(authority: Authority, tls: ssl.SSLContext) -> None:
    async def run_policy() -> None:
        issuer, plain = Issuer(), Issuer()
        credentials = Credentials(ca=authority.certificate.read_text())
        async with issuing(plain), issuing(issuer, tls):
            issuer.endpoint = f"{plain.url}/token"
            who = ClientCredentials(Client(f"{issuer.url}/realm", "trimtab", SECRET), credentials, str)
            with pytest.raises(PulsarRefusedError, match=r"token_endpoint http://.*/token must be https, too"):
                await who.headers()
            assert (plain.posted, issuer.posted) == ([], [])
            issuer.endpoint = ""
            who = ClientCredentials(Client(f"{issuer.url}/realm", "trimtab", SECRET), credentials, str)
            assert await who.headers() == {"Authorization": "Bearer token-1"}

    asyncio.run(run_policy())


def test_a_request_that_was_refused_is_created_again_with_a_new_token() -> None:
    async def scenario(who: ClientCredentials, _: Issuer, clock: Clock) -> None:
        async with FakePulsar(token="token-2") as fake, connected(fake.url, identity=who) as admin:
            await who.headers()
            clock.now += 30
            assert await admin.brokers() == set(fake.ids)
            fake.token = "something else"
            with pytest.raises(PulsarRefusedError, match="401"):
                await admin.brokers()

    run_scenario(scenario)
