"""What is read of brokers and issuers, and by which way they are asked."""

from __future__ import annotations

import asyncio
import base64
import itertools
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import pytest
from aiohttp import web

from raw_server import OK, RawServer
from trimtab_operator.pulsar.client import auth, transport
from trimtab_operator.pulsar.client.auth import Client, ClientCredentials
from trimtab_operator.pulsar.client.errors import PulsarError, PulsarRefusedError, PulsarUnavailableError
from trimtab_operator.pulsar.client.http import Admin, connected
from trimtab_operator.pulsar.client.wire import route_to
from trimtab_pipeline.api import NO_CREDENTIALS

DEEP = b"[" * 100_000
BIG = b" " * 65536


def sized(body: bytes, status: bytes = b"200 OK") -> Callable[[], Iterable[bytes]]:
    return lambda: [b"HTTP/1.1 %s\r\nContent-Length: %d\r\n\r\n" % (status, len(body)), body]


def endless(status: bytes = b"200 OK") -> Callable[[], Iterable[bytes]]:
    return lambda: itertools.chain([b"HTTP/1.1 %s\r\n\r\n" % status], itertools.repeat(BIG))


def asked(pieces: Callable[[], Iterable[bytes]], timeout: float = 20.0, pause: float = 0.0) -> tuple[PulsarError, int]:
    """What comes of asking a server for its brokers that sends `pieces`, and how many bytes went out."""

    async def run_scenario(url: str) -> PulsarError:
        async with connected(url, timeout=timeout) as admin:
            with pytest.raises(PulsarError) as caught:
                await admin.brokers()
            return caught.value

    with RawServer(pieces, pause) as server:
        return asyncio.run(run_scenario(server.url)), server.sent


@pytest.mark.parametrize("status", [b"200 OK", b"500 Broken", b"307 Away\r\nLocation: http://127.0.0.1:9/"])
def test_an_answer_of_pulsar_without_an_end_is_given_up_at_its_bound(
    monkeypatch: pytest.MonkeyPatch, status: bytes
) -> None:
    monkeypatch.setattr(transport, "LARGEST", 2**20)
    error, sent = asked(endless(status))

    assert sent < 2**25, "what was on its way, and no more"
    if status == b"200 OK":
        assert type(error) is PulsarUnavailableError
        assert str(error) == "GET /admin/v2/brokers: the answer is larger than 1 MiB: see what the url leads to"


def test_an_answer_of_pulsar_that_trickles_is_given_up_after_the_timeout() -> None:
    error, _ = asked(lambda: itertools.chain([OK + b"\r\n"], itertools.repeat(b"1")), timeout=0.5, pause=0.05)
    assert str(error) == "GET /admin/v2/brokers: no answer within 0.5 s"


def test_json_of_any_depth_is_an_error_of_pulsars() -> None:
    error, _ = asked(sized(DEEP))
    assert type(error) is PulsarUnavailableError
    assert "GET /admin/v2/brokers: lists and objects are nested deeper than 100 levels" in str(error)
    error, _ = asked(sized(b'{"reason":' + DEEP, b"409 Conflict"))
    assert type(error) is PulsarRefusedError
    assert 'GET /admin/v2/brokers: 409 {"reason":[[[' in str(error)


def issued(pieces: Callable[[], Iterable[bytes]]) -> PulsarError:
    """What comes of asking an issuer for a token that sends `pieces`."""

    async def run_scenario(url: str) -> PulsarError:
        with pytest.raises(PulsarError) as caught:
            await ClientCredentials(Client(url, "trimtab", "s3cret"), NO_CREDENTIALS, str).headers()
        return caught.value

    with RawServer(pieces) as server:
        error = asyncio.run(run_scenario(server.url))
        assert server.sent < 2**25, "what was on its way, and no more"
        assert str(error).startswith(f"issuer {server.url}: ")
        return error


def test_an_issuer_whose_answer_has_no_end_or_any_depth_gives_no_token() -> None:
    assert f"larger than {auth.LARGEST >> 20} MiB" in str(issued(endless()))
    assert "nested deeper" in str(issued(sized(DEEP)))
    assert type(issued(endless(b"403 No"))) is PulsarRefusedError


class Proxy:
    """Answers for all servers: records each request: method, target and client."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str]] = []
        self.users: list[str] = []

    async def handle(self, request: web.BaseRequest) -> web.Response:
        self.asked.append((request.method, str(request.raw_path)))
        self.users.append(request.headers.get("Proxy-Authorization", ""))
        found: Any = ["a.example:8080"]
        if "openid" in request.raw_path:
            found = {"issuer": "http://issuer.example", "token_endpoint": "http://issuer.example/token"}
        elif request.raw_path.endswith("/token"):
            found = {"access_token": "t"}
        return web.json_response(found)


Scenario = Callable[[Admin, ClientCredentials], Awaitable[Any]]


def by_proxy(monkeypatch: pytest.MonkeyPatch, scenario: Scenario, url: str, **environment: str) -> Proxy:
    """Run `scenario` with clients of Pulsar at `url` and of an issuer, behind a proxy that `environment` names."""
    proxy = Proxy()

    async def run_scenario() -> None:
        runner = web.ServerRunner(web.Server(proxy.handle))
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        for name, value in environment.items():
            monkeypatch.setenv(name, value.format(proxy=f"127.0.0.1:{runner.addresses[0][1]}"))
        who = ClientCredentials(Client("http://issuer.example", "trimtab", "s3cret"), NO_CREDENTIALS, str)
        async with connected(url, timeout=5.0) as admin:
            await scenario(admin, who)
        await runner.cleanup()

    asyncio.run(run_scenario())
    return proxy


async def both(admin: Admin, who: ClientCredentials) -> None:
    assert await admin.brokers() == {"a.example:8080"}
    assert await who.headers() == {"Authorization": "Bearer t"}


def test_pulsar_and_issuers_are_asked_by_the_proxy_of_the_environment(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    """What ``~/.netrc`` holds is not sent along: who asks is what the policy says."""
    netrc = tmp_path / "netrc"
    netrc.write_text("default login somebody password else\n")
    monkeypatch.setenv("NETRC", str(netrc))
    proxy = by_proxy(monkeypatch, both, "http://pulsar.example:8080", http_proxy="http://me:p%40ss@{proxy}")

    assert proxy.asked == [
        ("GET", "http://pulsar.example:8080/admin/v2/brokers"),
        ("GET", "http://issuer.example/.well-known/openid-configuration"),
        ("POST", "http://issuer.example/token"),
    ]
    assert set(proxy.users) == {f"Basic {base64.b64encode(b'me:p@ss').decode()}"}


def test_https_is_asked_through_a_tunnel_of_the_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(admin: Admin, _: ClientCredentials) -> None:
        with pytest.raises(PulsarUnavailableError):
            await admin.brokers()  # the proxy answers the CONNECT, and then knows no TLS

    proxy = by_proxy(monkeypatch, scenario, "https://pulsar.example", https_proxy="http://me:x@{proxy}")

    assert proxy.asked[0] == ("CONNECT", "pulsar.example:443")
    assert proxy.users[0] == f"Basic {base64.b64encode(b'me:x').decode()}"


def test_what_no_proxy_names_is_asked_directly(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(admin: Admin, _: ClientCredentials) -> None:
        with pytest.raises(PulsarUnavailableError):
            await admin.brokers()

    environment = {"http_proxy": "http://{proxy}", "no_proxy": "*.svc,127.0.0.0/8"}
    assert by_proxy(monkeypatch, scenario, "http://127.0.0.1:9", **environment).asked == []


def test_a_proxy_that_is_none_of_http_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(admin: Admin, _: ClientCredentials) -> None:
        with pytest.raises(PulsarRefusedError, match=r"proxy socks5://proxy:1080 .* must be http"):
            await admin.brokers()

    by_proxy(monkeypatch, scenario, "http://pulsar.example", all_proxy="socks5://me:secret@proxy:1080")


@pytest.mark.parametrize("proxy", ["http://proxy.corp:abc", "http://proxy:99999", "user:secret@proxy:3128", "http://"])
def test_a_proxy_that_is_no_url_is_refused_without_repeating_it(monkeypatch: pytest.MonkeyPatch, proxy: str) -> None:
    monkeypatch.setenv("http_proxy", proxy)
    with pytest.raises(PulsarRefusedError, match="HTTP_PROXY") as refused:
        route_to("http://pulsar.example:8080")
    assert "secret" not in str(refused.value)
