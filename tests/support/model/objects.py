"""An API server in memory: objects by number, and how each request changes them.

An object has one number per content, so two states with the same objects are equal. As on a real server, no write
may bring back a version that some process still holds. Where a write would do that, the content gets a new number.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple

from trimtab_operator.kube.errors import ConflictError, NotFoundError, RefusedError
from trimtab_operator.pulsar.client.errors import PulsarError

Raw = Mapping[str, Any]

ABSENT = 0
"""The number of an object that does not exist."""


WRITES = frozenset({"create", "patch", "delete", "unload", "override", "drop_override", "split"})
"""Requests that change something."""

Pulsar = Callable[[Raw, str, list[Any]], "tuple[Raw, Any]"]
"""How a call of Pulsar's API changes the cluster. It takes the cluster, the call and its arguments, and returns the
changed cluster and the value to answer. Raises `PulsarError`."""


class Request(NamedTuple):
    """A request. verb: get, list, create, patch or delete; for the kind `pulsar`, a call of Pulsar's admin REST API.

    body: JSON; for a call, its arguments. uid, version: preconditions of a delete, if given.
    """

    verb: str
    kind: str
    name: str = ""
    body: str = ""
    sub: str = ""
    uid: str = ""
    version: str = ""

    @property
    def writes(self) -> bool:
        """Whether the request changes something."""
        return self.verb in WRITES


class Answer(NamedTuple):
    """An answer: the number of an object, several numbers, JSON, or an error with its text."""

    objects: tuple[int, ...] = ()
    error: type[Exception] | None = None
    text: str = ""

    def failure(self) -> Exception:
        """The error to raise."""
        assert self.error is not None
        return self.error(self.text)


class Objects:
    """All objects that ever existed, by number."""

    def __init__(self, pulsar: Pulsar | None = None) -> None:
        self._pulsar = pulsar
        self._numbers: dict[tuple[str, int], int] = {}
        self._raw: list[dict[str, Any]] = [{}]
        self._memo: dict[tuple[Request, int], Any] = {}
        self._contents: list[str] = [""]

    def __getitem__(self, number: int) -> dict[str, Any]:
        return self._raw[number]

    def number(self, raw: Mapping[str, Any], again: int = 0) -> int:
        """The number of an object with this content. again: how often this content has got a new number."""
        meta = {key: value for key, value in raw["metadata"].items() if key != "resourceVersion"}
        text = json.dumps({**raw, "metadata": meta}, sort_keys=True)
        if (found := self._numbers.get((text, again))) is None:
            found = self._numbers[text, again] = len(self._raw)
            self._raw.append({**json.loads(text)})
            self._raw[found]["metadata"]["resourceVersion"] = str(found)
            self._contents.append(text)
        return found

    def serve(self, number: int, request: Request, held: Collection[int] = ()) -> tuple[int, Answer]:
        """The number of the object after `request`, and the answer. held: numbers that processes may still know."""
        key = (request, number)
        if request.kind == "pulsar":
            if key not in self._memo:
                self._memo[key] = self._call(number, request)
            called: tuple[int, Answer] = self._memo[key]
            return called
        if key not in self._memo:
            self._memo[key] = self._serve(number, request)
        found = self._memo[key]
        if isinstance(found, Answer):
            return number, found
        if found is None:
            return ABSENT, Answer((number,))
        new = self._fresh(found, number, held)
        return new, Answer((new,))

    def _call(self, number: int, request: Request) -> tuple[int, Answer]:
        assert self._pulsar is not None
        try:
            after, value = self._pulsar(self._raw[number], request.verb, json.loads(request.body))
        except PulsarError as error:
            return number, Answer(error=type(error), text=str(error))
        return self.number(after), Answer(text=json.dumps(value))

    def _fresh(self, raw: dict[str, Any], number: int, held: Collection[int]) -> int:
        creates = not number
        for again in range(100):
            if creates:
                raw["metadata"]["uid"] = f"{raw['metadata']['name']}.{again}"
                if any(self._raw[h]["metadata"].get("uid") == raw["metadata"]["uid"] for h in held if h):
                    continue
                return self.number(raw)
            new = self.number(raw, again)
            if new == number or new not in held:
                return new
        raise AssertionError("too many versions of one content are held")

    def _serve(self, number: int, request: Request) -> Answer | dict[str, Any] | None:
        """The new object, None for a deleted one, or the answer to a request that changes nothing."""
        if request.verb == "create":
            if number:
                return Answer(error=ConflictError, text=f"{request.name} already exists")
            made: dict[str, Any] = json.loads(request.body)
            made["metadata"]["generation"] = 1
            made.pop("status", None)
            return made
        if not number:
            return Answer(error=NotFoundError, text=f"{request.name} not found")
        if request.verb == "get":
            return Answer((number,))
        return self._changed(number, request)

    def _changed(self, number: int, request: Request) -> Answer | dict[str, Any] | None:
        now = self._raw[number]
        if request.verb == "delete":
            uid, version = now["metadata"].get("uid", ""), now["metadata"]["resourceVersion"]
            if request.uid not in {"", uid} or request.version not in {"", version}:
                return Answer(error=ConflictError, text=f"{request.name} is another version")
            return None
        body = json.loads(request.body)
        wanted = body.get("metadata", {}).pop("resourceVersion", "")
        if wanted and wanted != now["metadata"]["resourceVersion"]:
            return Answer(error=ConflictError, text=f"{request.name} has changed")
        if request.sub == "status":
            body = {"status": body["status"]}
        else:
            body.pop("status", None)
        new = merged(now, body)
        if epoch_of(new) < epoch_of(now) and epoch_of(new, -1) >= 0:
            return Answer(error=RefusedError, text="assignment.epoch must not decrease")
        if new.get("spec") != now.get("spec"):
            new["metadata"] = {**new["metadata"], "generation": now["metadata"]["generation"] + 1}
        return Answer((number,)) if new == now else new


def epoch_of(raw: Raw, missing: int = 0) -> int:
    """The epoch of a bundle's assignment; `missing` without an assignment."""
    assignment = (raw.get("spec") or {}).get("assignment")
    return missing if not assignment else int(assignment.get("epoch") or 0)


def merged(old: Any, patch: Any) -> Any:
    """A JSON merge patch (RFC 7386) of `old`."""
    if not isinstance(patch, Mapping):
        return patch
    new = dict(old) if isinstance(old, Mapping) else {}
    for key, value in patch.items():
        if value is None:
            new.pop(key, None)
        else:
            new[key] = merged(new.get(key), value)
    return new
