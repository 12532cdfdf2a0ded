"""A small blocking client of the Kubernetes API, for set-up and checks in tests.

It uses only the standard library, so a test's view of the cluster shares no code with the client under test.
"""

from __future__ import annotations

import json
import select
import ssl
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from http import HTTPStatus
from http.client import HTTPResponse, HTTPSConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

MERGE_PATCH = "application/merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"  # JSON is YAML

_CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
_FIELD_MANAGER = "trimtab-testbed"
_PATIENCE = 10.0
"""Seconds for which a request is repeated while the server is too busy or sets up its storage (429)."""
_SERVED_WITHIN = 30.0
"""Seconds within which the server must serve new CRDs."""


class KubeApiError(RuntimeError):
    """The API server refused a request. status: HTTP status. reason: Kubernetes' name for it, such as `NotFound`."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(f"{status} {reason}: {message}")
        self.status, self.reason = status, reason


class KubeRest:
    """Requests to the API server at `url` with a bearer `token`, trusting the authority `ca` (PEM file).

    Connections are kept for later requests of any thread until `close`: opening one takes several times as long as most
    answers.
    """

    def __init__(self, url: str, *, token: str, ca: Path) -> None:
        self._idle: list[HTTPSConnection] = []
        self._url, self._token = url, token
        self._context = ssl.create_default_context(cafile=ca)

    def close(self) -> None:
        """Close the kept connections; the next request opens a new one."""
        while self._idle:
            self._idle.pop().close()

    def __del__(self) -> None:
        """Close the kept connections, if the caller did not."""
        self.close()

    def get(self, path: str) -> Any:
        """Read `path`, e.g. ``/api/v1/namespaces``."""
        return self._send("GET", path)

    def create(self, path: str, body: Mapping[str, Any]) -> Any:
        """Create an object in the collection `path`. Unknown fields are refused, as by kubectl."""
        return self._send("POST", _strictly(path), body)

    def patch(self, path: str, body: Mapping[str, Any]) -> Any:
        """Merge `body` into the object (or its ``/status``) at `path`. Unknown fields are refused."""
        return self._send("PATCH", _strictly(path), body, MERGE_PATCH)

    def delete(self, path: str) -> Any:
        """Delete the object or collection at `path`."""
        return self._send("DELETE", path)

    def follow(self, path: str, version: str, done: threading.Event) -> Iterator[Any]:
        """Events of the collection `path` after resourceVersion `version`, until `done` is set.

        `done` takes effect within a second. An event of type ERROR is the last one. All events come over one
        connection: opening one takes so long on a busy machine that events would be late. Raises `OSError`,
        `http.client.HTTPException` or `KubeApiError` when the watch breaks.
        """
        headers = {"Authorization": f"Bearer {self._token}"}
        with closing(self._opened()) as connection:
            while not done.is_set():
                query = f"{path}?watch=1&resourceVersion={version}&timeoutSeconds=1"
                connection.request("GET", query, headers=headers)
                response = connection.getresponse()
                if response.status != HTTPStatus.OK:
                    raise _api_error(response)
                for line in response:
                    event = json.loads(line)
                    yield event
                    if event["type"] == "ERROR":
                        return
                    version = event["object"]["metadata"]["resourceVersion"]

    def create_namespace(self, name: str) -> None:
        """Create the Kubernetes namespace `name`."""
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        self.create("/api/v1/namespaces", body)

    def apply_crds(self, crds: Iterable[Mapping[str, Any]]) -> None:
        """Create or update CustomResourceDefinitions. Wait until each is Established and its objects can be listed."""
        applied = list(crds)
        for crd in applied:
            path = f"{_CRDS}/{crd['metadata']['name']}?fieldManager={_FIELD_MANAGER}&force=true"
            self._send("PATCH", path, crd, APPLY_PATCH)
        deadline = time.monotonic() + _SERVED_WITHIN
        for crd in applied:
            while not self._serves(crd):
                if time.monotonic() > deadline:
                    raise TimeoutError(f"{crd['metadata']['name']} was not served within {_SERVED_WITHIN:g} s")
                time.sleep(0.05)

    def _serves(self, crd: Mapping[str, Any]) -> bool:
        live = self.get(f"{_CRDS}/{crd['metadata']['name']}")
        conditions = {c["type"]: c["status"] for c in live.get("status", {}).get("conditions") or []}
        if conditions.get("Established") != "True":
            return False
        spec = crd["spec"]
        try:  # shortly after Established it may still answer 404
            self.get(f"/apis/{spec['group']}/{spec['versions'][0]['name']}/{spec['names']['plural']}?limit=1")
        except KubeApiError as error:
            if error.status != HTTPStatus.NOT_FOUND:
                raise
            return False
        return True

    def _send(self, method: str, path: str, body: Any = None, content_type: str = "application/json") -> Any:
        """Send a request. Repeat it while the answer is 429, as client-go does: the server has not carried it out."""
        deadline = time.monotonic() + _PATIENCE
        while True:
            try:
                return self._send_once(method, path, body, content_type)
            except KubeApiError as error:
                if error.status != HTTPStatus.TOO_MANY_REQUESTS or time.monotonic() > deadline:
                    raise
            time.sleep(0.1)

    def _send_once(self, method: str, path: str, body: Any, content_type: str) -> Any:
        data = None if body is None else json.dumps(body).encode()
        headers = {"Authorization": f"Bearer {self._token}", "Content-Type": content_type}
        connection = self._connection()
        try:
            connection.request(method, path, data, headers)
            response = connection.getresponse()
            refused = _api_error(response) if response.status >= HTTPStatus.BAD_REQUEST else None
            answer = None if refused else json.load(response)
        except BaseException:
            connection.close()  # the rest of an answer would be read as the next answer
            raise
        self._idle.append(connection)
        if refused:
            raise refused
        return answer

    def _connection(self) -> HTTPSConnection:
        """A kept connection that the server has not closed, or a new one."""
        while self._idle:
            connection = self._idle.pop()
            if _is_quiet(connection):
                return connection
            connection.close()
        return self._opened()

    def _opened(self) -> HTTPSConnection:
        return HTTPSConnection(urlsplit(self._url).netloc, context=self._context, timeout=30)


def _is_quiet(connection: HTTPSConnection) -> bool:
    """Whether a connection is open. If there is anything to read before a request, the server has closed it."""
    if connection.sock is None:
        return False
    poll = select.poll()
    poll.register(connection.sock, select.POLLIN)
    return not poll.poll(0)


def _strictly(path: str) -> str:
    return path if "fieldValidation=" in path else f"{path}{'&' if '?' in path else '?'}fieldValidation=Strict"


def _api_error(error: HTTPResponse) -> KubeApiError:
    text = error.read().decode(errors="replace")
    try:
        status = json.loads(text)
    except ValueError:
        return KubeApiError(error.status, error.reason, text[:500])
    return KubeApiError(error.status, status.get("reason", error.reason), status.get("message", text[:500]))
