"""Readers of the answers of Pulsar's brokers and token issuers: the real client gets prepared answers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any

from fuzz_target import BETWEEN, Target
from trimtab_operator.pulsar.bridge.sync.namespaces import isolation_of
from trimtab_operator.pulsar.client import api
from trimtab_operator.pulsar.client.auth import Client, ClientCredentials
from trimtab_operator.pulsar.client.dynamic_config import switched_on
from trimtab_operator.pulsar.client.errors import PulsarError, remedy
from trimtab_operator.pulsar.client.http import Admin
from trimtab_operator.pulsar.client.transport import Budget, Transport
from trimtab_pipeline.api import NO_CREDENTIALS
from trimtab_pipeline.prometheus.response_limits import json_of

BROKER, BUNDLE, TOPIC = "broker-0:8080", "t/n/0x00000000_0xffffffff", "persistent://t/n/a"
CODES = (200, 204, 307, 400, 401, 404, 409, 412, 429, 500, 503)
HOSTS = {"broker-0": "broker-0", "broker-1": "broker-1.pulsar"}

Call = Callable[[Admin], Awaitable[object]]


class CannedAnswer:
    """The parts of aiohttp's response that the client uses."""

    def __init__(self, status: int, location: str, body: bytes) -> None:
        self.status, self.headers, self.content = status, {"Location": location}, self
        self._body = body

    async def iter_chunked(self, size: int) -> AsyncIterator[bytes]:
        for at in range(0, len(self._body), size):
            yield self._body[at : at + size]

    def close(self) -> None:
        """Nothing is open."""


class CannedSession:
    """The part of aiohttp's session that the client uses: each request gets the same answer."""

    def __init__(self, answer: CannedAnswer) -> None:
        self._answer = answer

    @asynccontextmanager
    async def request(self, *_: Any, **__: Any) -> AsyncIterator[CannedAnswer]:
        yield self._answer


async def _policies(admin: Admin) -> None:
    api.boundaries((await admin.policies("t/n")).get("bundles"))


async def _isolation(admin: Admin) -> None:
    isolation_of("t/n", await admin.isolation("pulsar"), HOSTS)


async def _runtime(admin: Admin) -> None:
    switched_on(await admin.runtime(BROKER))


CALLS: Mapping[str, Call] = {
    "clusters": lambda admin: admin.clusters(),
    "brokers": lambda admin: admin.brokers(),
    "leader": lambda admin: admin.leader(),
    "load_manager": lambda admin: admin.load_manager(),
    "namespaces": lambda admin: admin.namespaces("t"),
    "boundaries": lambda admin: admin.boundaries("t/n"),
    "policies": _policies,
    "isolation": _isolation,
    "owned": lambda admin: admin.owned(BROKER),
    "owner": lambda admin: admin.owner(BUNDLE, BROKER),
    "reported": lambda admin: admin.reported(BROKER),
    "positions": lambda admin: admin.topic_positions(BUNDLE),
    "stats": lambda admin: admin.topic_stats(TOPIC),
    "loads": lambda admin: admin.message_rate(BROKER),
    "lookup": lambda admin: admin.lookup(TOPIC),
    "runtime": _runtime,
    "overrides": lambda admin: admin.overrides(),
    "unload": lambda admin: admin.unload(BUNDLE, BROKER),
    "origin": lambda admin: admin.origin("broker-1:8080"),
}


def read_brokers(data: bytes) -> None:
    """An answer of a broker. Two bytes choose call and status. A redirect's target (a line) and the body follow."""
    call = list(CALLS.values())[data[0] % len(CALLS) if data else 0]
    status = CODES[data[1] % len(CODES) if len(data) > 1 else 0]
    location, _, body = data[2:].partition(b"\n")
    session: Any = CannedSession(CannedAnswer(status, location.decode("latin-1"), body))
    scheme = "https" if len(data) > 2 and data[2:3] == b"s" else "http"
    transport = Transport(session, f"{scheme}://{BROKER}", 5.0, Budget(1e9))
    transport.list_brokers((BROKER,))
    try:
        asyncio.run(_called(call, Admin(transport)))
    except PulsarError as error:
        remedy(str(error), None)
        raise


async def _called(call: Call, admin: Admin) -> None:
    await call(admin)


def _brokers() -> list[bytes]:
    bodies: Mapping[str, object] = {
        "clusters": ["standalone"],
        "brokers": [BROKER, "broker-1:8080"],
        "leader": {"brokerId": BROKER, "serviceUrl": "http://broker-0:8080"},
        "load_manager": {"loadManagerClassName": "org.apache.pulsar.ExtensibleLoadManagerImpl"},
        "namespaces": ["t/n"],
        "boundaries": {"boundaries": ["0x00000000", "0x80000000", "0xffffffff"], "numBundles": 2},
        "policies": {"bundles": {"boundaries": ["0x00000000", "0xffffffff"]}, "anti_affinity_group": "a"},
        "isolation": {
            "dedicated": {
                "namespaces": ["t/.*"],
                "primary": ["broker-0"],
                "secondary": ["broker-1.*"],
                "auto_failover_policy": {"policy_type": "min_available", "parameters": {"min_limit": "1"}},
            }
        },
        "owned": {BUNDLE: {"broker_assignment": "shared", "is_controlled": False, "is_active": True}},
        "owner": {"topicHashPositions": {}},
        "reported": {"bundles": [BUNDLE]},
        "positions": {"topicHashPositions": {TOPIC: 17}},
        "stats": {"msgRateIn": 1.0},
        "loads": {"t/n": {"0x00000000_0xffffffff": {"persistent": {TOPIC: {"msgRateIn": 1.5, "publishers": [{}]}}}}},
        "lookup": {"httpUrl": "http://broker-0:8080", "httpUrlTls": "https://broker-0:8443"},
        "runtime": {"loadBalancerSheddingEnabled": "true", "loadBalancerAutoBundleSplitEnabled": "false"},
        "overrides": {"loadBalancerSheddingEnabled": "false"},
        "unload": {"reason": "Failed to find ownership"},
        "origin": {"httpUrlTls": "https://broker-1:8443"},
    }
    numbers = {name: number for number, name in enumerate(CALLS)}
    good = [bytes([numbers[name], 0]) + b"\n" + json.dumps(body).encode() for name, body in bodies.items()]
    moved = bytes([numbers["owner"], 2]) + b"http://broker-0:8080/admin/v2/x?y=1\n"
    page = b"<html><table><tr><th>MESSAGE:</th><td>no such bundle</td></tr></table></html>"
    return [*good, moved, bytes([numbers["unload"], 9]) + b"\n" + page]


def read_issuer(data: bytes) -> None:
    """The discovery document of an issuer, and its answer with a token."""
    for part in data.split(BETWEEN)[:2]:
        try:
            found = json_of(part)
        except ValueError:  # `_json` reports it
            continue
        answer = found if isinstance(found, dict) else {}
        identity = ClientCredentials(Client("https://issuer.example", "id", "secret"), NO_CREDENTIALS, str)
        for read in (identity._endpoint, lambda answer, identity=identity: identity._read(answer, 0.0)):
            with suppress(PulsarError):
                read(answer)


def _issuer() -> list[bytes]:
    document = {"issuer": "https://issuer.example/", "token_endpoint": "https://issuer.example/token"}
    token = {"access_token": "abc.def.ghi", "token_type": "Bearer", "expires_in": 3600}
    return [BETWEEN.join(json.dumps(one).encode() for one in (document, token))]


TARGETS = (
    Target("pulsar", read_brokers, (PulsarError,), _brokers),
    Target("issuer", read_issuer, (), _issuer),
)
