"""What does not let us in is told with the field, the Secret and what to do; other problems are told as they are."""

from __future__ import annotations

from typing import Any

import pytest

from trimtab_operator.pulsar.client.errors import (
    PulsarError,
    PulsarUnavailableError,
    SplitRefusedError,
    reason_of,
    refusal,
    remedy,
)
from trimtab_operator.resources.pulsar import PulsarAuth

TOKEN = {"token": {"secretKeyRef": {"name": "pulsar", "key": "jwt"}}}
CLIENT = {
    "oauth2": {
        "issuerUrl": "https://issuer.example",
        "clientId": {"secretKeyRef": {"name": "client", "key": "id"}},
        "clientSecret": {"secretKeyRef": {"name": "client", "key": "word"}},
    }
}
PAIR = {
    "certificate": {"secretKeyRef": {"name": "who", "key": "tls.crt"}},
    "key": {"secretKeyRef": {"name": "who", "key": "tls.key"}},
}
CA = {"tls": {"ca": {"secretKeyRef": {"name": "ca", "key": "ca.crt"}}}}
MAPPED_CA = {"tls": {"ca": {"configMapKeyRef": {"name": "ca", "key": "ca.crt"}}}}
PAGE = (
    "<html><head><title>Error 401 Authentication required</title></head><body><h2>HTTP ERROR 401</h2><table>"
    "<tr><th>URI:</th><td>/admin/v2/brokers</td></tr><tr><th>STATUS:</th><td>401</td></tr>"
    "<tr><th>MESSAGE:</th><td>Authentication required</td></tr></table></body></html>"
)
NOT_ALLOWED = '{"reason":"Unauthorized to validateBothSuperuserAndBrokerOperation for clientAppId [somebody]"}'
STRANGER = (
    "GET /admin/v2/brokers: Cannot connect to host b:8443 ssl:True [SSLCertVerificationError: "
    "(1, '[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed: {} (_ssl.c:1006)')]"
)


def auth(**fields: Any) -> PulsarAuth:
    return PulsarAuth.model_validate(fields)


def told(body: str, status: int = 401) -> str:
    """What the bridge says of an answer."""
    return str(refusal("brokers", status, body, "GET /admin/v2/brokers"))


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("Message: java.lang.ClassCastException: a bundle", SplitRefusedError),
        ("Message: Invalid bundle for split", SplitRefusedError),
        ("Message: java.util.concurrent.TimeoutException\nStacktrace: at SplitManager.split", PulsarUnavailableError),
        ("Message: BadVersionException: can't split the bundle", PulsarUnavailableError),
        ("Message: something else", PulsarUnavailableError),
    ],
)
def test_a_failure_of_a_split_that_may_pass_is_no_refusal(text: str, kind: type[PulsarError]) -> None:
    assert type(refusal("split", 500, text, "PUT split")) is kind


def test_of_a_page_only_its_message_is_reported() -> None:
    assert reason_of(PAGE) == "Authentication required"
    assert told(PAGE) == "GET /admin/v2/brokers: 401 Authentication required"


@pytest.mark.parametrize(
    ("who", "words"),
    [
        (TOKEN, ["do not accept", "spec.pulsar.auth.token (Secret pulsar, key jwt)", "put a valid one there"]),
        (CLIENT, ["do not accept tokens of https://issuer.example", "oauth2.audience"]),
        ({"tls": PAIR}, ["do not accept", "spec.pulsar.auth.tls.certificate (Secret who, key tls.crt)"]),
        (CA, ["require authentication", "in spec.pulsar.auth"]),
    ],
    ids=["token", "oauth2", "certificate", "nothing"],
)
def test_brokers_that_know_no_one_by_it(who: dict[str, Any], words: list[str]) -> None:
    found = remedy(told(PAGE), auth(**who))

    assert [word for word in words if word not in found] == []


@pytest.mark.parametrize(
    ("who", "where"),
    [
        (TOKEN, "token (Secret pulsar, key jwt)"),
        (CLIENT, "oauth2.clientId (Secret client, key id)"),
        ({"tls": PAIR}, "tls.certificate (Secret who, key tls.crt)"),
    ],
    ids=["token", "oauth2", "certificate"],
)
@pytest.mark.parametrize("status", [401, 403])
def test_brokers_that_do_not_allow_it(who: dict[str, Any], where: str, status: int) -> None:
    found = remedy(told(NOT_ALLOWED, status), auth(**who))

    assert "superUserRoles" in found
    assert f"spec.pulsar.auth.{where}" in found


def test_a_server_that_is_not_trusted() -> None:
    unknown = STRANGER.format("unable to get local issuer certificate")
    other = STRANGER.format("Hostname mismatch, certificate is not valid for 'b'.")

    assert "tls.ca (Secret ca, key ca.crt) is not the authority" in remedy(unknown, auth(**CA))
    assert "tls.ca (ConfigMap ca, key ca.crt) is not the authority" in remedy(unknown, auth(**MAPPED_CA))
    assert "name a Secret or ConfigMap with the right one in spec.pulsar.auth.tls.ca" in remedy(unknown, None)
    assert "for another name" in remedy(other, auth(**CA))


def test_an_issuer_that_does_not_take_the_client() -> None:
    found = remedy("issuer https://issuer.example: 401 invalid_client", auth(**CLIENT))

    assert "oauth2.clientId (Secret client, key id)" in found
    assert "oauth2.clientSecret (Secret client, key word)" in found


@pytest.mark.parametrize(
    "problem",
    [
        "GET /admin/v2/brokers: no answer within 10 s",
        "GET /admin/v2/brokers: 404 Cluster does not exist",
        "issuer https://issuer.example: Cannot connect to host issuer.example:443",
        "spec.pulsar.auth.token: Secret pulsar does not exist in namespace messaging; create it",
    ],
)
def test_other_problems_say_it_all(problem: str) -> None:
    assert remedy(problem, auth(**TOKEN)) == ""
