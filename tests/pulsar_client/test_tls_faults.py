"""What is wrong with TLS is told apart, in the same words by every client: real servers on 127.0.0.1."""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from guarded_server import GuardedServer
from trimtab_operator.cli.main import main
from trimtab_operator.kube.client import Api, ApiError
from trimtab_operator.kube.wire import POLICIES
from trimtab_operator.pulsar.client.auth import Bearer
from trimtab_operator.pulsar.client.errors import PulsarError, remedy
from trimtab_operator.pulsar.client.http import connected
from trimtab_operator.resources.pulsar import PulsarAuth
from trimtab_pipeline.api import Credentials
from trimtab_pipeline.credentials import lapse_of
from trimtab_pipeline.prometheus.client import PrometheusClient, PrometheusError
from trimtab_testbed.servers.certificates import Authority, openssl

OTHER_NAME = "[server]\nsubjectAltName = DNS:elsewhere.example\nauthorityKeyIdentifier = keyid\n"
MIDDLE = """\
[server]
basicConstraints = critical, CA:TRUE
keyUsage = critical, keyCertSign
subjectKeyIdentifier = hash
authorityKeyIdentifier = keyid
"""
RENEWALS = """\
[ca]
default_ca = own
[own]
database = index.txt
new_certs_dir = .
certificate = ca.crt
private_key = ca.key
default_md = sha256
rand_serial = yes
policy = any
[any]
commonName = supplied
"""
Pair = tuple[Path, Path]


def dated(authority: Authority, name: str, begins: str, ends: str) -> Pair:
    """A certificate that is valid between these times."""
    folder, (certificate, key) = authority.certificate.parent, authority.server(name)
    (folder / "index.txt").write_text("")
    (folder / "renewals.cnf").write_text(RENEWALS)
    when = ("-startdate", begins, "-enddate", ends)
    how = ("-config", "renewals.cnf", "-extfile", "openssl.cnf", "-extensions", "server", "-batch")
    openssl(folder, "ca", *how, *when, "-notext", "-in", f"{name}.csr", "-out", certificate.name)
    return certificate, key


def signed_anew(authority: Authority, name: str, section: str, by: str = "ca") -> Pair:
    """A certificate with other extensions, of another signer."""
    folder, (certificate, key) = authority.certificate.parent, authority.server(name)
    (folder / f"{name}.cnf").write_text(section)
    signer = ("-CA", f"{by}.crt", "-CAkey", f"{by}.key", "-CAcreateserial", "-days", "30")
    how = ("-extfile", f"{name}.cnf", "-extensions", "server")
    openssl(folder, "x509", "-req", "-in", f"{name}.csr", *signer, "-out", certificate.name, *how)
    return certificate, key


def self_signed(authority: Authority) -> Pair:
    folder = authority.certificate.parent
    subject = ("-subj", "/CN=alone", "-addext", "subjectAltName=IP:127.0.0.1")
    key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", "alone.key")
    openssl(folder, "req", "-x509", *key, "-out", "alone.crt", "-days", "30", *subject)
    return folder / "alone.crt", folder / "alone.key"


def with_its_root(tmp_path: Path) -> Pair:
    """Of another authority, whose own certificate the server sends along."""
    other = Authority(tmp_path / "other")
    certificate, key = other.server("chain")
    certificate.write_text(certificate.read_text() + other.certificate.read_text())
    return certificate, key


def without_the_middle(authority: Authority) -> Pair:
    signed_anew(authority, "middle", MIDDLE)
    return signed_anew(authority, "leaf", "[server]\nsubjectAltName = IP:127.0.0.1\n", by="middle")


async def _pulsar(url: str, credentials: Credentials) -> str:
    async with connected(url, identity=Bearer(credentials)) as admin:
        try:
            await admin.brokers()
        except PulsarError as error:
            return str(error)
    return ""


def told_by_operator(url: str, credentials: Credentials, ca: Path) -> str:
    """What `Linked` says of Pulsar at this URL."""
    assert ca.is_file()
    problem = asyncio.run(_pulsar(url, credentials))
    secret = {"secretKeyRef": {"name": "pulsar", "key": "pem"}}
    pair = {"certificate": secret, "key": secret} if credentials.certificate else {}
    auth = PulsarAuth.model_validate({"tls": {"ca": secret, **pair}})
    return f"{problem}; {remedy(problem, auth, url.partition(':')[0])}" if problem else ""


def told_by_measurement(url: str, credentials: Credentials, ca: Path) -> str:
    """What a read of Prometheus at this URL says."""
    assert ca.is_file()
    try:
        with PrometheusClient(url, 5, credentials) as client:
            client.query("up", 1.0)
    except PrometheusError as error:
        return str(error)
    return ""


def told_by_kubernetes(url: str, credentials: Credentials, ca: Path) -> str:
    """What a request to the API server at this URL says."""
    folder, user = ca.parent, {"token": credentials.bearer_token or "none"}
    if credentials.certificate:
        (folder / "own.crt").write_text(credentials.certificate)
        (folder / "own.key").write_text(credentials.key)
        user = {"client-certificate": "own.crt", "client-key": "own.key"}
    whole: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "it",
        "clusters": [{"name": "it", "cluster": {"server": url, "certificate-authority": str(ca)}}],
        "users": [{"name": "it", "user": user}],
        "contexts": [{"name": "it", "context": {"cluster": "it", "user": "it"}}],
    }
    if url.startswith("http:"):
        del whole["clusters"][0]["cluster"]["certificate-authority"]
    (folder / "kubeconfig").write_text(yaml.safe_dump(whole))

    async def asked() -> str:
        async with Api.connect(str(folder / "kubeconfig"), patience=0) as api:
            try:
                await api.get(POLICIES, "a", "b")
            except ApiError as error:
                return str(error)
        return ""

    return asyncio.run(asked())


CLIENTS = pytest.mark.parametrize("told", [told_by_operator, told_by_measurement, told_by_kubernetes])


@CLIENTS
@pytest.mark.parametrize(
    ("served", "words"),
    [
        ("expired", "has expired: renew it at the server"),
        ("later", "is not valid yet: compare the clocks"),
        ("name", "is for another name: use a name from the certificate in"),
        ("authority", "is not the authority that signed the server's certificate, or it lacks an intermediate"),
        ("chain", "is not the authority that signed the server's certificate: put the right one there"),
        ("alone", "is self-signed, so nothing vouches for it: put the right one there"),
        ("middle", "is not the authority that signed the server's certificate, or it lacks an intermediate"),
    ],
)
def test_each_fault_of_a_servers_certificate_is_told_by_its_own_words(
    told: Any, served: str, words: str, authority: Authority, tmp_path: Path
) -> None:
    pair = {
        "expired": lambda: dated(authority, "late", "20200101000000Z", "20200102000000Z"),
        "later": lambda: dated(authority, "soon", "20400101000000Z", "20410101000000Z"),
        "name": lambda: signed_anew(authority, "elsewhere", OTHER_NAME),
        "authority": lambda: Authority(tmp_path / "other").server("one"),
        "chain": partial(with_its_root, tmp_path),
        "alone": lambda: self_signed(authority),
        "middle": lambda: without_the_middle(authority),
    }[served]()
    ca = tmp_path / "ca.crt"
    ca.write_text(authority.certificate.read_text())
    with GuardedServer(tls=pair) as server:
        found = told(server.url, Credentials(ca=ca.read_text()), ca)
    assert words in found
    assert sum(text in found for text in ("expired", "not valid yet", "another name", "authority that signed")) <= 1


@CLIENTS
def test_a_client_certificate_that_is_refused_is_told_from_one_that_is_missing(
    told: Any, authority: Authority, tmp_path: Path
) -> None:
    ca, stranger = tmp_path / "ca.crt", Authority(tmp_path / "other").client("stranger")
    ca.write_text(authority.certificate.read_text())
    certificate, key = (path.read_text() for path in stranger)
    with GuardedServer(tls=authority.server("strict"), clients=authority.certificate) as server:
        missing = told(server.url, Credentials(ca=ca.read_text()), ca)
        refused = told(server.url, Credentials(ca=ca.read_text(), certificate=certificate, key=key), ca)
    assert "requires a client certificate" in missing
    assert "server refuses" in refused
    assert "authority that signed" not in missing + refused


@CLIENTS
def test_plain_http_on_a_port_for_tls_and_the_reverse_are_told(told: Any, authority: Authority, tmp_path: Path) -> None:
    ca = tmp_path / "ca.crt"
    ca.write_text(authority.certificate.read_text())
    with GuardedServer() as plain, GuardedServer(tls=authority.server("two")) as secure:
        by_tls = told(plain.url.replace("http:", "https:"), Credentials(ca=ca.read_text()), ca)
        by_http = told(secure.url.replace("https:", "http:"), Credentials(), ca)
    assert "the server speaks plain HTTP on this port: write http://" in by_tls
    assert "speaks TLS on this port" in by_http
    assert "write https:// in" in by_http


# -- tokens --


def jwt(**claims: object) -> str:
    head, body = (
        base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode() for part in ({"alg": "none"}, claims)
    )
    return f"{head}.{body}.c2lnbmF0dXJl"


@pytest.mark.parametrize(
    ("claims", "now", "words"),
    [
        ({"exp": 1_700_000_000}, 1_700_000_000.0, "the token expired at 2023-11-14T22:13:20Z"),
        ({"exp": 1_700_000_000}, 1_699_999_999.0, ""),
        ({"exp": 1_700_000_000.5}, 1_800_000_000.0, "the token expired at 2023-11-14T22:13:20Z"),
        ({"nbf": 1_700_000_000}, 1_699_999_999.0, "the token is not valid before 2023-11-14T22:13:20Z"),
        ({"nbf": 1_700_000_000}, 1_700_000_000.0, ""),
        ({"exp": 10**400}, 0.0, ""),
        ({"exp": True}, 5.0, ""),
        ({"exp": "1"}, 5.0, ""),
        ({"exp": -(10**20)}, 5.0, ""),
        ({}, 5.0, ""),
    ],
)
def test_a_token_says_itself_when_it_is_not_valid(claims: Mapping[str, object], now: float, words: str) -> None:
    assert lapse_of(jwt(**claims), now) == lapse_of(f"Bearer {jwt(**claims)}", now) == words


@pytest.mark.parametrize(
    "token", ["", "opaque", "a.b.c", "a.W10.c", "é.é.é", "..", "Basic dTpw", "a." + "[" * 999 + ".c"]
)
def test_what_is_no_jwt_says_nothing(token: str) -> None:
    assert lapse_of(token, 5.0) == ""


@CLIENTS
def test_a_refused_token_that_has_expired_is_told_with_its_time_and_without_the_token(
    told: Any, authority: Authority, tmp_path: Path
) -> None:
    ca, token = tmp_path / "ca.crt", jwt(sub="trimtab", exp=int(time.time()) - 60)
    ca.write_text(authority.certificate.read_text())

    answer = 401, '{"reason":"not authorized to do this"}'
    with GuardedServer(lambda _: answer, tls=authority.server("three")) as server:
        found = told(server.url, Credentials(token, ca=ca.read_text()), ca)
    ended = time.strftime("%Y-%m-%dT%H:%M", time.gmtime(time.time() - 60))[:13]
    assert f"the token expired at {ended}" in found
    assert "superUserRoles" not in found
    assert token not in found
    assert token.split(".")[1] not in found


# -- commands --


def test_migrate_gives_advice_with_its_own_options(
    authority: Authority, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ca, token = tmp_path / "ca.crt", tmp_path / "token"
    ca.write_text(authority.certificate.read_text())
    token.write_text(jwt(exp=1_700_000_000))
    asked = ["migrate", "--ca-file", str(ca), "--admin-url"]
    with GuardedServer(tls=Authority(tmp_path / "other").server("one")) as server:
        assert main([*asked, server.url]) != 0
    assert f"--ca-file {ca} is not the authority that signed the server's certificate" in capsys.readouterr().err

    with GuardedServer(lambda _: (401, "who?"), tls=authority.server("four")) as server:
        assert main([*asked, server.url]) != 0
        assert "require authentication: give --token-file" in capsys.readouterr().err
        assert main([*asked, server.url, "--token-file", str(token)]) != 0
    told = capsys.readouterr().err
    assert "the token expired at 2023-11-14T22:13:20Z" in told
    assert f"do not accept the token at --token-file {token}: put a valid one there" in told


def test_a_command_says_what_is_wrong_with_the_certificate_of_the_api_server(
    authority: Authority, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ca = tmp_path / "ca.crt"
    ca.write_text(authority.certificate.read_text())
    with GuardedServer(tls=self_signed(authority)) as server, GuardedServer() as plain:
        for url, words in ((server.url, "is self-signed"), (f"https://{plain.address}", "speaks plain HTTP")):
            told_by_kubernetes(url, Credentials(), ca)
            assert main(["status", "--kubeconfig", str(tmp_path / "kubeconfig"), "-n", "messaging"]) != 0
            assert words in capsys.readouterr().err


def test_the_text_of_an_error_names_no_address_of_memory(authority: Authority) -> None:
    with GuardedServer() as plain:
        found = asyncio.run(
            _pulsar(plain.url.replace("http:", "https:"), Credentials(ca=authority.certificate.read_text()))
        )
    assert "WRONG_VERSION_NUMBER" in found or "RECORD_LAYER" in found
    assert "SSLContext" not in found
    assert ssl.OPENSSL_VERSION_INFO >= (3,)
