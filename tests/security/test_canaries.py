"""A running operator: it connects to no server outside the allow-list, and writes no secret.

Secrets with a mark go through success and each failure; then everything that was written is searched for them.
"""

from __future__ import annotations

import base64
import json
import secrets
import socket
import tempfile
import urllib.parse
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from guarded_server import Asked, GuardedServer
from small_cluster import API, NAMESPACE, SmallCluster, until
from trimtab_testbed.servers.certificates import Authority

pytestmark = [pytest.mark.apiserver, pytest.mark.prometheus, pytest.mark.spark]

MARK = secrets.token_hex(6)
TOKEN, TENANT, PASSWORD = (f"canary-{MARK}-{what}" for what in ("token", "tenant", "password"))
PIECE = 10
"""Letters of a secret in a row that count as told: enough not to be there by chance."""


@dataclass
class Answers:
    """What a server before the real Prometheus says at the moment; it repeats what it was asked with."""

    prometheus: str
    now: str = "well"
    asked: list[Asked] = field(default_factory=list)

    def __call__(self, asked: Asked) -> tuple[int, str]:
        """Answer one request."""
        self.asked.append(asked)
        seen = json.dumps(dict(asked.headers))
        return {
            "well": lambda: (200, self._forwarded(asked)),
            "warning": lambda: (200, json.dumps({**json.loads(self._forwarded(asked)), "warnings": [seen]})),
            "refused": lambda: (401, f"who is {seen}?"),
            "broken": lambda: (200, f"<html>{seen}"),
            "wrong": lambda: (422, json.dumps({"status": "error", "error": seen})),
            "moved": lambda: (307, f"http://127.0.0.1:1/?{urllib.parse.urlencode(asked.headers)}"),
        }[self.now]()

    def _forwarded(self, asked: Asked) -> str:
        form = urllib.parse.urlencode(asked.parameters).encode()
        try:
            with urllib.request.urlopen(self.prometheus + asked.path, form, timeout=10) as answer:
                return str(answer.read().decode())
        except urllib.error.HTTPError as error:
            with error:
                return str(error.read().decode())


@pytest.fixture
def answers(stage: SmallCluster) -> Iterator[Answers]:
    """See `Answers`; policy and Secret are gone afterwards."""
    yield Answers(stage.prometheus.url)
    stage.drop_policy()
    stage.rest.delete(f"/api/v1/namespaces/{NAMESPACE}/secrets/canaries")


def release(stage: SmallCluster, authority: Authority) -> list[str]:
    """A Secret with all kinds of secrets; what must not be found, piece by piece."""
    certificate, key = (path.read_text() for path in authority.client("trimtab"))
    entries = {"token": TOKEN, "tenant": TENANT, "password": PASSWORD, "user": "me", "crt": certificate, "key": key}
    entries["ca"] = authority.certificate.read_text()
    data = {name: base64.b64encode(text.encode()).decode() for name, text in entries.items()}
    meta = {"name": "canaries", "labels": {"trimtab.dev/credentials": "true"}}
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": meta, "data": data}
    stage.rest.create(f"/api/v1/namespaces/{NAMESPACE}/secrets", secret)
    basic = base64.b64encode(f"me:{PASSWORD}".encode()).decode()
    whole = [TOKEN, TENANT, PASSWORD, basic, data["token"], data["password"], "".join(key.splitlines()[1:-1])]
    return [text[k : k + PIECE] for text in whole for k in range(7, len(text) - PIECE + 1)]


def entry(key: str) -> dict[str, str]:
    return {"secretKeyRef": {"name": "canaries", "key": key}}


BEARER = {"bearerToken": entry("token"), "headers": [{"name": "X-Scope-OrgID", **entry("tenant")}]}
BASIC = {"basic": {"username": entry("user"), "password": entry("password")}}
TLS = {"tls": {"ca": entry("ca"), "certificate": entry("crt"), "key": entry("key")}}


def turn_to(stage: SmallCluster, url: str, auth: dict[str, Any]) -> None:
    """Edit the policy's source."""
    auth = {"bearerToken": None, "headers": None, "basic": None, "tls": None, **auth}
    stage.edit_policy(source={"prometheus": {"url": url, "auth": auth}})


def told(stage: SmallCluster, words: str) -> None:
    """Wait until the policy's conditions say so."""
    until(words, lambda: any(words in c["message"] for c in stage.status().get("conditions", [])), within=60)


def measured(stage: SmallCluster) -> None:
    stage.wait_condition("Ready", "True", within=60)
    stage.wait_cycles(1)


def test_no_secret_is_found_in_anything_that_was_written(
    stage: SmallCluster, answers: Answers, authority: Authority
) -> None:
    pieces = release(stage, authority)
    with GuardedServer(answers) as plain:
        stage.apply_policy()
        turn_to(stage, plain.url, BEARER)
        measured(stage)
        for now, words in {
            "refused": "answered 401",
            "broken": "not JSON",
            "wrong": "answered 422",
            "moved": "answered 307",
        }.items():
            answers.now = now
            told(stage, words)
        answers.now = "warning"
        told(stage, "***")
        answers.now = "well"
        turn_to(stage, plain.url, BASIC)
        measured(stage)
        assert {"Authorization", "X-Scope-OrgID"} <= set(answers.asked[0].headers)
    told(stage, "refused the connection")
    with GuardedServer(answers, tls=authority.server("prometheus"), clients=authority.certificate) as guarded:
        turn_to(stage, guarded.url, TLS)
        measured(stage)
    stranger = Authority(authority.certificate.parent / "other").server("prometheus")
    with GuardedServer(answers, tls=stranger) as nobody:
        turn_to(stage, nobody.url, {**TLS, **BEARER})
        told(stage, "certificate that can't be trusted")

    written = everything(stage)
    assert all("policy" in written[where] for where in ("objects", "log")), "what is searched is what was written"
    found = {where: piece for where, text in written.items() for piece in pieces if piece in text}
    assert not found
    assert [piece for piece in pieces if piece in secret_data(stage)], (
        "the search would find a secret where there is one"
    )


def secret_data(stage: SmallCluster) -> str:
    return json.dumps(stage.rest.get(f"/api/v1/namespaces/{NAMESPACE}/secrets/canaries")["data"])


def everything(stage: SmallCluster) -> dict[str, str]:
    """All that the operator has written or shows, by where it is."""
    collections = [
        *(f"{API}/{kind}" for kind in ("balancingpolicies", "brokers", "bundles", "bundlesplits", "topicnamespaces")),
        *(f"/api/v1/namespaces/{NAMESPACE}/{kind}" for kind in ("configmaps", "events", "pods")),
        f"/apis/events.k8s.io/v1/namespaces/{NAMESPACE}/events",
        f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases",
    ]
    process = Path(f"/proc/{stage.operator.pid}")
    scratch = [
        path
        for folder in Path(tempfile.gettempdir()).glob("trimtab-spark-*")
        for path in folder.rglob("*")
        if path.is_file()
    ]
    return {
        "objects": json.dumps([stage.rest.get(path) for path in collections]),
        "log": stage.operator.log,
        **{page: stage.operator.page(page)[1] for page in ("metrics", "readyz", "healthz", "")},
        "process": (process / "cmdline").read_text() + (process / "environ").read_text(),
        **{str(path): path.read_bytes().decode("latin-1") for path in scratch},
        **{str(path): kept(path) for path in (stage.dir / "history").rglob("*") if path.is_file()},
    }


def kept(path: Path) -> str:
    """What a file of the history holds, uncompressed."""
    raw = path.read_bytes().decode("latin-1")
    if path.suffix != ".parquet":
        return raw
    return raw + str(pq.read_schema(path).metadata) + str(pq.ParquetFile(path).read().to_pylist())


def test_a_running_operator_makes_no_connection_to_what_is_not_listed(stage: SmallCluster) -> None:
    """Its list is 127.0.0.1, which `localhost` would lead to."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        url = f"http://localhost:{listening.getsockname()[1]}"
        stage.apply_policy(source={"prometheus": {"url": url}})
        try:
            message = stage.wait_condition("Valid", "False", "InvalidPolicy")
            assert f"{url} is not among the URLs that policies may name (http://127.0.0.1" in message
            listening.settimeout(5)
            with pytest.raises(TimeoutError):
                listening.accept()
        finally:
            stage.drop_policy()
