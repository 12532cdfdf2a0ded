"""Who asks, and whether it is the right server: against a server that insists, over HTTP and HTTPS."""

from __future__ import annotations

import pickle
import subprocess
import time
from pathlib import Path

import pytest

from guarded_server import Asked, GuardedServer, vector
from trimtab_pipeline.api import Credentials, CredentialsError, PrometheusSettings
from trimtab_pipeline.prometheus.client import PrometheusClient, PrometheusStatusError, PrometheusUnreachableError
from trimtab_testbed.servers.certificates import Authority

TOKEN, PASSWORD = "tok-5f3a9c", "pass-wörd-77"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


def wanting(authorization: str, *, quoting: bool = False) -> GuardedServer:
    """A server that answers who sends this, and refuses others, repeating what they sent if `quoting`."""

    def answer(asked: Asked) -> tuple[int, str]:
        sent = asked.headers.get("Authorization", "")
        return (200, vector(a=1)) if sent == authorization else (401, f"who is {sent}?" if quoting else "who?")

    return GuardedServer(answer)


def ask(server: GuardedServer, credentials: Credentials) -> list[float]:
    with PrometheusClient(server.url, 5, credentials) as client:
        values: list[float] = client.query("up", 1.0).values.to_pylist()
        return values


def test_a_bearer_token_is_sent() -> None:
    with wanting(f"Bearer {TOKEN}") as server:
        assert ask(server, Credentials(bearer_token=TOKEN)) == [1.0]


def test_a_user_and_a_password_with_an_umlaut_are_sent_as_utf_8() -> None:
    with wanting("Basic bWU6cGFzcy13w7ZyZC03Nw==") as server:
        assert ask(server, Credentials(username="me", password=PASSWORD)) == [1.0]


def test_a_wrong_password_is_refused_with_what_to_correct_and_without_the_password() -> None:
    wrong = Credentials(username="me", password="wrong-one")
    with (
        wanting("Basic other", quoting=True) as server,
        pytest.raises(PrometheusStatusError, match=r"answered 401.*correct the source's credentials") as caught,
    ):
        ask(server, wrong)
    assert wrong.authorization().split()[1] not in str(caught.value)
    assert "***" in str(caught.value)
    assert "<Credentials: username, password>" in str(caught.value)


def test_a_token_that_rotates_is_read_for_the_next_query(tmp_path: Path) -> None:
    file, expected = tmp_path / "token", [TOKEN]
    with GuardedServer(
        lambda asked: (200, vector(a=1)) if asked.headers.get("Authorization") == f"Bearer {expected[0]}" else (401, "")
    ) as server:
        file.write_text(f"{TOKEN}\n")
        with PrometheusClient(server.url, 5, Credentials(bearer_token_file=str(file))) as client:
            client.query("up", 1.0)
            expected[0] = "rotated"
            with pytest.raises(PrometheusStatusError, match="401"):
                client.query("up", 1.0)
            file.write_text("rotated\n")
            assert len(client.query("up", 1.0)) == 1


def test_a_token_file_that_is_missing_is_named(tmp_path: Path) -> None:
    credentials = Credentials(bearer_token_file=str(tmp_path / "none"))
    with (
        GuardedServer() as server,
        pytest.raises(PrometheusUnreachableError, match=r"bearer token file .*none can't be read: No such file"),
    ):
        ask(server, credentials)
    assert not server.asked


def test_a_netrc_of_the_machine_says_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / ".netrc").write_text("machine 127.0.0.1 login other password other\n")
    monkeypatch.setenv("NETRC", str(tmp_path / ".netrc"))
    with GuardedServer() as server:
        ask(server, Credentials())
    assert "Authorization" not in server.asked[0].headers


def test_a_redirect_is_reported_and_not_followed() -> None:
    with (
        GuardedServer(lambda _: (302, "https://login.example/?next=x")) as server,
        pytest.raises(
            PrometheusStatusError, match=r"302: it leads to https://login\.example/.*correct the source's url"
        ),
    ):
        ask(server, Credentials(bearer_token=TOKEN))
    assert len(server.asked) == 1


# -- TLS --


def as_files(pair: tuple[Path, Path]) -> dict[str, str]:
    return {"certificate": str(pair[0]), "key": str(pair[1])}


def as_text(pair: tuple[Path, Path]) -> dict[str, str]:
    return {"certificate": pair[0].read_text(), "key": pair[1].read_text()}


def test_a_server_with_our_authority_is_trusted_and_one_without_is_not(authority: Authority) -> None:
    with GuardedServer(lambda _: (200, vector(a=1)), tls=authority.server("one")) as server:
        assert ask(server, Credentials(ca=str(authority.certificate))) == [1.0]
        assert ask(server, Credentials(ca=authority.certificate.read_text())) == [1.0]
        with pytest.raises(
            PrometheusUnreachableError, match=r"certificate that can't be trusted.*correct the source's ca"
        ):
            ask(server, Credentials())


def test_another_authority_is_not_trusted_whatever_the_environment_says(
    authority: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(authority.certificate))
    other = Authority(tmp_path / "other")
    with (
        GuardedServer(tls=authority.server("two")) as server,
        pytest.raises(PrometheusUnreachableError, match="can't be trusted"),
    ):
        ask(server, Credentials(ca=str(other.certificate)))


@pytest.mark.parametrize("given", [as_files, as_text])
def test_a_client_proves_itself_by_its_certificate(given: object, authority: Authority) -> None:
    assert callable(given)
    known = given(authority.client("trimtab"))
    with GuardedServer(
        lambda _: (200, vector(a=1)), tls=authority.server("three"), clients=authority.certificate
    ) as server:
        assert ask(server, Credentials(ca=str(authority.certificate), **known)) == [1.0]
        with pytest.raises(PrometheusUnreachableError, match="can't be read"):
            ask(server, Credentials(ca=str(authority.certificate)))


def test_an_expired_certificate_is_reported(authority: Authority) -> None:
    folder, (certificate, key) = authority.certificate.parent, authority.server("late")
    again = (
        "x509 -req -in late.csr -CA ca.crt -CAkey ca.key -days 0 -out late.crt -extfile openssl.cnf -extensions server"
    )
    subprocess.run(["openssl", *again.split()], cwd=folder, check=True, capture_output=True)
    time.sleep(1.1)  # it is valid in the second in which it was made; OpenSSL 3.5 makes none that ended before
    with (
        GuardedServer(tls=(certificate, key)) as server,
        pytest.raises(PrometheusUnreachableError, match=r"can't be trusted \(certificate has expired"),
    ):
        ask(server, Credentials(ca=str(authority.certificate)))


def test_a_key_of_another_certificate_is_refused(authority: Authority) -> None:
    certificate, other = authority.client("one")[0], authority.client("other")[1]
    credentials = Credentials(certificate=str(certificate), key=str(other))
    with (
        GuardedServer() as server,
        pytest.raises(PrometheusUnreachableError, match="certificate and key are not a pair"),
    ):
        ask(server, credentials)


@pytest.mark.parametrize(
    ("parts", "told"),
    [
        ({"ca": "-----BEGIN nonsense"}, "ca holds no certificate in PEM form"),
        ({"ca": "/nowhere/ca.crt"}, "ca file /nowhere/ca.crt can't be read: No such file"),
        ({"certificate": "/nowhere/a.crt", "key": "/nowhere/a.key"}, "certificate file /nowhere/a.crt can't be read"),
    ],
)
def test_tls_parts_that_cant_be_used_are_named(parts: dict[str, str], told: str) -> None:
    with GuardedServer() as server, pytest.raises(PrometheusUnreachableError, match=told):
        ask(server, Credentials(**parts))


# -- what is refused before anybody is asked, and what is never shown --


@pytest.mark.parametrize(
    ("parts", "told"),
    [
        ({"bearer_token": "a", "username": "b"}, "give one"),
        ({"bearer_token": "a", "bearer_token_file": "b"}, "give one"),
        ({"certificate": "a"}, "needs its key"),
        ({"username": "a:b"}, "colon"),
        ({"bearer_token": f"{TOKEN}\n"}, "bearer token holds a line break"),
        ({"bearer_token": f"{TOKEN}é"}, "bearer token holds"),
        ({"headers": (("X-Scope-OrgID", f" {TOKEN}"),)}, "X-Scope-OrgID holds"),
        ({"headers": (("X Scope", "a"),)}, "'X Scope' is not an HTTP header name"),
    ],
)
def test_credentials_that_contradict_themselves_are_refused_unseen(parts: dict[str, str], told: str) -> None:
    with pytest.raises(CredentialsError, match=told) as caught:
        Credentials(**parts)
    assert TOKEN not in str(caught.value)


def test_a_url_with_a_password_is_refused_unseen() -> None:
    with pytest.raises(ValueError, match="holds a user name") as caught:
        PrometheusSettings(f"https://me:{PASSWORD}@prometheus:9090", "pulsar")
    assert PASSWORD not in str(caught.value)


def test_neither_settings_nor_credentials_show_what_they_hold() -> None:
    credentials = Credentials(bearer_token=TOKEN, key="KEY", certificate="CRT", headers=(("X-Scope-OrgID", "TENANT"),))
    shown = f"{credentials} {credentials!r} {PrometheusSettings('http://x', 'pulsar', credentials=credentials)!r}"
    assert not any(secret in shown for secret in (TOKEN, "TENANT", "KEY", "CRT"))
    assert "<Credentials: bearer_token, certificate, key, headers>" in shown


def test_credentials_survive_their_journey() -> None:
    credentials = Credentials(username="me", password=PASSWORD, ca="CA", headers=(("a", "b"), ("c", "d")))
    assert pickle.loads(pickle.dumps(credentials)) == credentials
