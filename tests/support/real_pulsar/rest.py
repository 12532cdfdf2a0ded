"""A small blocking client of Pulsar's admin REST, for set-up and checks in tests.

It uses only the standard library, so a test's view of the brokers shares no code with the client under test.
"""

from __future__ import annotations

import itertools
import json
import socket
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from http import HTTPStatus
from typing import Any
from urllib.parse import urlencode, urlsplit

from real_pulsar.settings import CLUSTER

_OWN = ("pulsar/", "sla-monitor/")
_HOPS = 6


class PulsarRestError(RuntimeError):
    """A broker refused a request. status: HTTP status."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(f"{status}: {message}")
        self.status = status


class PulsarRest:
    """Requests to the broker at `url`, with a bearer `token` if given. Raises `OSError` when it does not answer.

    context: TLS context; None for the default.
    """

    def __init__(self, url: str, token: str = "", context: ssl.SSLContext | None = None) -> None:
        self.url, self._token, self._manager = url, token, ""
        tls = urllib.request.HTTPSHandler(context=context)
        self._opener = urllib.request.build_opener(_NoRedirects, urllib.request.ProxyHandler({}), tls)

    def get(self, path: str) -> Any:
        """Read `path`, e.g. ``/admin/v2/clusters``; returns parsed JSON, or the text if it is not JSON."""
        return self.send("GET", path)

    def send(self, method: str, path: str, body: object = None) -> Any:
        """Send a request. Redirects (307) are followed with the same method; `urllib` does that for GET only."""
        url = self.url + path
        for _ in range(_HOPS):
            status, headers, text = self._once(method, url, body)
            if status != HTTPStatus.TEMPORARY_REDIRECT:
                break
            url = headers["Location"]
        if status >= HTTPStatus.MULTIPLE_CHOICES:
            raise PulsarRestError(status, f"{method} {path}: {text[:300]}")
        return _parsed(text)

    def brokers(self) -> set[str]:
        """Ids (``host:webPort``) of the active brokers."""
        return set(self.get(f"/admin/v2/brokers/{CLUSTER}"))

    def create_namespace(self, namespace: str, bundles: int) -> None:
        """Create the namespace ``tenant/name`` with `bundles` equal bundles, and its tenant if that is missing."""
        tenant = namespace.partition("/")[0]
        try:
            self.send("PUT", f"/admin/v2/tenants/{tenant}", {"adminRoles": [], "allowedClusters": [CLUSTER]})
        except PulsarRestError as error:
            if error.status != HTTPStatus.CONFLICT:  # it exists already
                raise
        self.send("PUT", f"/admin/v2/namespaces/{namespace}", {"bundles": {"numBundles": bundles}})

    def boundaries(self, namespace: str) -> tuple[int, ...]:
        """The edges of a namespace's bundles, from 0 to 0xffffffff."""
        return tuple(int(edge, 16) for edge in self.get(f"/admin/v2/namespaces/{namespace}/bundles")["boundaries"])

    def bundles(self, namespace: str) -> tuple[str, ...]:
        """The bundles of a namespace, each as ``tenant/name/0x.._0x..``."""
        edges = self.boundaries(namespace)
        return tuple(f"{namespace}/0x{a:08x}_0x{b:08x}" for a, b in itertools.pairwise(edges))

    def owner(self, bundle: str) -> str:
        """Id of the broker that serves the bundle; empty if none does. Works only with the modular load manager."""
        status, headers, text = self._once("GET", f"{self.url}/admin/v2/namespaces/{bundle}/topicHashPositions", None)
        if status == HTTPStatus.TEMPORARY_REDIRECT:
            return urlsplit(headers["Location"]).netloc
        if status == HTTPStatus.OK:
            return urlsplit(self.url).netloc
        if "Failed to find ownership" in text or "is being unloaded" in text:
            return ""
        raise PulsarRestError(status, f"who serves {bundle}: {text[:300]}")

    def owners(self, *namespaces: str) -> dict[str, str]:
        """Owner (broker id) by bundle, of all served bundles in these namespaces, or in all.

        With the modular load manager, a broker may never answer a request for all its bundles if it takes more bundles
        meanwhile. So with that load manager each bundle is queried on its own. A killed broker is listed until its
        session ends. It refuses connections, and its bundles are left out.
        """
        if "Modular" not in self._load_manager():
            found = {bundle: broker for broker in sorted(self.brokers()) for bundle in self._owned(broker)}
            return {b: o for b, o in found.items() if not namespaces or b.rpartition("/")[0] in namespaces}
        spaces = namespaces or tuple(self._namespaces())
        every = {bundle: self.owner(bundle) for namespace in spaces for bundle in self.bundles(namespace)}
        dead = {broker for broker in set(every.values()) - {""} if not _listens(broker)}
        return {bundle: broker for bundle, broker in every.items() if broker and broker not in dead}

    def _namespaces(self) -> Iterator[str]:
        for tenant in self.get("/admin/v2/tenants"):
            if not f"{tenant}/".startswith(_OWN):
                yield from self.get(f"/admin/v2/namespaces/{tenant}")

    def _load_manager(self) -> str:
        if not self._manager:
            self._manager = self.runtime()["loadManagerClassName"]
        return self._manager

    def _owned(self, broker: str) -> set[str]:
        if not _listens(broker):
            return set()
        found: Mapping[str, object] = self.get(f"/admin/v2/brokers/{CLUSTER}/{broker}/ownedNamespaces")
        return {bundle for bundle in found if not bundle.startswith(_OWN)}

    def lookup(self, topic: str) -> str:
        """Id of the broker that serves `topic`. Assigns an owner to its bundle if there is none."""
        found = self.get(f"/lookup/v2/topic/{topic.replace('://', '/', 1)}")
        return str(found.get("httpUrl") or found["httpUrlTls"]).partition("://")[2]

    def unload(self, bundle: str, destination: str = "") -> None:
        """Unload the bundle. destination: id of the broker that should take it."""
        wanted = f"?{urlencode({'destinationBroker': destination})}" if destination else ""
        self.send("PUT", f"/admin/v2/namespaces/{bundle}/unload{wanted}")

    def runtime(self) -> Mapping[str, str]:
        """The configuration with which this broker runs."""
        found: Mapping[str, str] = self.get("/admin/v2/brokers/configuration/runtime")
        return found

    def override(self, name: str, value: str) -> None:
        """Set a value of the dynamic configuration on all brokers."""
        self.send("POST", f"/admin/v2/brokers/configuration/{name}/{value}")

    def drop_override(self, name: str) -> None:
        """Delete a value of the dynamic configuration, so that brokers use their files again."""
        self.send("DELETE", f"/admin/v2/brokers/configuration/{name}")

    def _once(self, method: str, url: str, body: object) -> tuple[int, Mapping[str, str], str]:
        headers = {"Authorization": f"Bearer {self._token}"} if self._token else {}
        data = None if body is None else json.dumps(body).encode()
        if data is not None:
            headers["Content-Type"] = "application/json"
        request = urllib.request.Request(url, data, headers, method=method)
        try:
            with self._opener.open(request, timeout=15) as answer:
                return answer.status, dict(answer.headers), answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, dict(error.headers), error.read().decode(errors="replace")


def _listens(broker: str) -> bool:
    host, _, port = broker.rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=15).close()
    except ConnectionRefusedError:
        return False
    return True


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: object) -> None:
        return None


def _parsed(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text
