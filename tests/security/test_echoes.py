"""Servers like to quote what they refuse. Nothing secret of it is repeated, wherever and however it is quoted."""

from __future__ import annotations

import html
import json
import re
from collections.abc import Callable
from urllib.parse import quote

import pytest

from guarded_server import GuardedServer
from trimtab_pipeline.api import Credentials
from trimtab_pipeline.prometheus.client import PrometheusClient, PrometheusError

TOKEN = "canary-7d1f-0b44-92ae-c51b-e8d6"
PASSWORD = 'canary"pass\\word<&>\u00fc%+/=-3fe1'
BEARER = Credentials(bearer_token=TOKEN)
BASIC = Credentials(username="me", password=PASSWORD)
PIECE = 6
"""Letters of a secret in a row that are too many."""
CUTS = (*range(0, 124, 4), *range(250, 305, 4))
"""Letters before the quotation: the message's end falls before, into and behind it."""


def go_json(body: dict[str, str]) -> str:
    """JSON as Go writes it: safe in a page, and otherwise in UTF-8."""
    text = json.dumps(body, ensure_ascii=False)
    return re.sub("[<>&]", lambda found: f"\\u{ord(found[0]):04x}", text)


Echo = Callable[[str], tuple[int, str]]
ECHOES: dict[str, Echo] = {
    "an error of Prometheus": lambda text: (422, json.dumps({"status": "error", "error": text})),
    "a refusal in JSON": lambda text: (401, json.dumps({"message": text})),
    "a refusal as a page": lambda text: (403, f"<p>{html.escape(text)}</p>"),
    "a refusal as a page of Go": lambda text: (403, html.escape(text).replace("&quot;", "&#34;")),
    "a refusal in JSON of Go": lambda text: (401, go_json({"message": text})),
    "a refusal as it came": lambda text: (401, text),
    "a redirect": lambda text: (302, f"http://login.example.com/?back={quote(text, safe='')}"),
    "a body that is not JSON": lambda text: (200, text),
    "a success that is none": lambda text: (200, json.dumps({"oops": text})),
    "no vector": lambda text: (200, json.dumps({"status": "success", "note": text, "data": {"resultType": "scalar"}})),
    "a value that is none": lambda text: (
        200,
        json.dumps(
            {"status": "success", "data": {"resultType": "vector", "result": [{"metric": {}, "value": [1, text]}]}}
        ),
    ),
}


def pieces(*secrets: str) -> set[str]:
    return {secret[k : k + PIECE] for secret in secrets for k in range(len(secret) - PIECE + 1)}


@pytest.mark.parametrize("kind", ECHOES)
@pytest.mark.parametrize("credentials", [BEARER, BASIC], ids=["bearer", "password"])
def test_no_piece_of_a_secret_is_reported_however_it_is_quoted_and_wherever_the_message_ends(
    credentials: Credentials, kind: str
) -> None:
    secrets = (TOKEN, PASSWORD) if credentials is BEARER else (PASSWORD, credentials.authorization()[6:])
    said = credentials.password or credentials.authorization()
    answers = [ECHOES[kind](f"{'x' * before} {said} was not welcome") for before in CUTS]
    with GuardedServer(lambda _: answers.pop()) as server, PrometheusClient(server.url, 5, credentials) as prometheus:
        while answers:
            with pytest.raises(PrometheusError) as caught:
                prometheus.query("up", 1.0)
            told = str(caught.value)
            assert not [piece for piece in pieces(*secrets) if piece in told], told


def test_warnings_are_kept_without_what_they_repeat() -> None:
    warning = f"store-3 refused Bearer {TOKEN}"
    result = [{"metric": {"pod": "a"}, "value": [1, "2"]}]
    body = {"status": "success", "data": {"resultType": "vector", "result": result}, "warnings": [warning]}
    with (
        GuardedServer(lambda _: (200, json.dumps(body))) as server,
        PrometheusClient(server.url, 5, BEARER) as prometheus,
    ):
        assert prometheus.query("up", 1.0).warnings == ("store-3 refused Bearer ***",)


def test_a_redirect_is_not_followed_to_anybody() -> None:
    with GuardedServer() as other, GuardedServer(lambda _: (307, other.url)) as server:
        with PrometheusClient(server.url, 5, BEARER) as prometheus, pytest.raises(PrometheusError, match="it leads to"):
            prometheus.query("up", 1.0)
        assert not other.asked
