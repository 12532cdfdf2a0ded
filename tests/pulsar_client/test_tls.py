"""TLS on the way to Pulsar: an authority of one's own, client certificates, and addresses of brokers behind https."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path

import pytest
from aiohttp import web

from pulsar_admin import FakePulsar
from trimtab_operator.pulsar.client.auth import Bearer
from trimtab_operator.pulsar.client.errors import PulsarError, PulsarRefusedError, PulsarUnavailableError
from trimtab_operator.pulsar.client.http import connected
from trimtab_pipeline.api import NO_CREDENTIALS, Credentials, CredentialsError
from trimtab_testbed.servers.certificates import Authority


def pem(path: Path) -> str:
    return path.read_text()


def asked(tls: ssl.SSLContext, credentials: Credentials) -> frozenset[str]:
    """What is owned by the second of two brokers that speak TLS: it is asked where the first redirects to."""

    async def run_policy() -> frozenset[str]:
        async with FakePulsar(size=2, tls=tls, extensible=True, apart=True) as fake:
            fake.add("t/n", 1, fake.ids[1])
            async with connected(fake.url, identity=Bearer(credentials)) as admin:
                return await admin.owned(fake.ids[1])

    return asyncio.run(run_policy())


@pytest.mark.parametrize("apart", [False, True], ids=["https alone", "http too"])
def test_brokers_behind_https_are_found_without_asking_what_they_serve(
    authority: Authority, tls: ssl.SSLContext, *, apart: bool
) -> None:
    async def run_policy() -> None:
        credentials = Credentials(ca=pem(authority.certificate))
        async with FakePulsar(tls=tls, apart=apart) as fake:
            mine, other, nobodys = fake.add("t/n", 3, fake.ids[1], fake.ids[2], "")
            async with connected(fake.url, identity=Bearer(credentials)) as admin:
                assert (await admin.runtime(fake.ids[2]))["clusterName"] == "fake"
                assert fake.requests[-1][0] == fake.ids[2]
                assert await admin.reported(fake.ids[1]) == {mine}
                owners = [await admin.owner(bundle, fake.ids[1]) for bundle in (mine, other, nobodys)]
                assert owners == [fake.ids[1], fake.ids[2], ""]
                await admin.unload(mine, fake.ids[2])
                assert fake.owners[mine] == fake.ids[2]
            assert fake.count("ownedNamespaces") == 0, "a modular broker may hang for that"
            assert fake.count("/lookup/") == 2, "each is found once"

    asyncio.run(run_policy())


@pytest.mark.parametrize("extensible", [False, True], ids=["modular", "extensible"])
def test_a_service_that_leads_to_a_broker_is_not_taken_for_its_address(
    authority: Authority, tls: ssl.SSLContext, *, extensible: bool
) -> None:
    """What is asked of one broker alone would else be answered by whomever the Service leads to next."""

    async def run_policy() -> None:
        credentials = Credentials(ca=pem(authority.certificate))
        async with FakePulsar(tls=tls, apart=True, extensible=extensible) as fake:
            (mine,) = fake.add("t/n", 1, fake.ids[0])
            service = fake.url.replace("127.0.0.1", "localhost")
            async with connected(service, identity=Bearer(credentials)) as admin:
                await admin.brokers()
                assert await admin.owned(fake.ids[0]) == {mine}
                assert await admin.origin(fake.ids[0]) == fake.url
                assert await admin.owned(fake.ids[1]) == frozenset()
                assert await admin.origin(fake.ids[1]) == f"https://{fake.addresses[1]}"
            assert fake.count("/lookup/") == 2, "each is found once"

    asyncio.run(run_policy())


def test_a_broker_whose_address_is_anothers_is_not_asked_there(authority: Authority, tls: ssl.SSLContext) -> None:
    """Its own namespace was taken by another broker: it has just ended."""

    async def run_policy() -> None:
        credentials = Credentials(ca=pem(authority.certificate))
        async with FakePulsar(tls=tls, apart=True) as fake:
            fake.ids[1] = "127.0.0.2:1"
            fake.addresses[1] = fake.addresses[0]
            async with connected(fake.url, identity=Bearer(credentials)) as admin:
                with pytest.raises(PulsarUnavailableError, match=r"does not name its https address"):
                    await admin.runtime(fake.ids[1])

    asyncio.run(run_policy())


def test_an_authority_of_ones_own_is_trusted_and_no_other(authority: Authority, tls: ssl.SSLContext) -> None:
    assert asked(tls, Credentials(ca=pem(authority.certificate))) == {"t/n/0x00000000_0xffffffff"}
    with pytest.raises(PulsarError, match="CERTIFICATE_VERIFY_FAILED"):
        asked(tls, NO_CREDENTIALS)


def test_a_client_certificate_is_shown(authority: Authority) -> None:
    certificate, key = map(pem, authority.client("trimtab"))
    credentials = Credentials(ca=pem(authority.certificate), certificate=certificate, key=key)
    curious = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    curious.load_cert_chain(*authority.server("broker"))
    curious.verify_mode = ssl.CERT_REQUIRED
    curious.load_verify_locations(authority.certificate)
    assert asked(curious, credentials)
    with pytest.raises(PulsarError):
        asked(curious, Credentials(ca=pem(authority.certificate)))


def test_what_is_no_certificate_is_refused_by_its_name(authority: Authority) -> None:
    with pytest.raises(CredentialsError, match="ca holds no certificate"):
        Bearer(Credentials(ca="-----BEGIN NOTHING-----\n"))
    (certificate, _), (_, other) = authority.client("one"), authority.client("other")
    with pytest.raises(CredentialsError, match="certificate and key are not a pair"):
        Bearer(Credentials(certificate=pem(certificate), key=pem(other)))


def test_by_https_another_port_of_a_listed_host_is_not_asked(authority: Authority, tls: ssl.SSLContext) -> None:
    seen: list[str] = []

    async def stranger(request: web.BaseRequest) -> web.Response:
        seen.append(request.path)
        return web.json_response({})

    async def run_policy() -> None:
        bundle = "t/n/0x00000000_0xffffffff"
        runner = web.ServerRunner(web.Server(stranger))
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls).start()
        async with FakePulsar(tls=tls, apart=True) as fake:
            fake.add("t/n", 1, f"127.0.0.1:{runner.addresses[0][1]}")
            identity = Bearer(Credentials("a-token", ca=pem(authority.certificate)))
            async with connected(fake.url, identity=identity) as admin:
                with pytest.raises(PulsarRefusedError, match="which Pulsar does not list as a broker: host and port"):
                    await admin.unload(bundle)
        await runner.cleanup()

    asyncio.run(run_policy())

    assert seen == []
