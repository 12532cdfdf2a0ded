"""`ConfigMapStore`: keeps one value as JSON in a ConfigMap.

The API server holds the value, so a restarted operator and a new leader continue with it. `StoredFormat` turns a value
into texts by key and reads them back. A key that ends in ``.gz`` is compressed into `binaryData`; any other key is
plain text in `data`. Keys that a write leaves out keep their text.

A ConfigMap that belongs to a policy has the policy as its owner, and is deleted with it. A new policy of the same name
does not read what the old one left. Where a format is guarded or has an epoch, a write also needs the resourceVersion
of the last read: a leader never overwrites what a later leader wrote, however late its request arrives.
"""

from __future__ import annotations

import asyncio
import base64
import gzip
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from trimtab_operator.kube.client import CONFIG_MAPS, Api, ConflictError, NotFoundError, RefusedError
from trimtab_operator.resources.common import API_VERSION
from trimtab_pipeline.prometheus.response_limits import TooLargeError

T = TypeVar("T")

Text = str | Callable[[], str]
"""A text to store. A callable is called in a thread: use one where the text takes milliseconds to make."""

MOST_BYTES = 1024 * 1024
"""Bytes that the API server accepts as the content of a ConfigMap, `binaryData` decoded."""

MOST_UNPACKED = 64 * 2**20
"""Bytes of a text when it is unpacked. The largest one, of a proposal with 10,000 moves, takes about three MB."""

_COMPRESSED = ".gz"
_GZIP = 16 + zlib.MAX_WBITS


class UnreadableContentError(ValueError):
    """Stored content that Trimtab did not write, or wrote in a version that this Trimtab does not read."""


@contextmanager
def reading(what: str) -> Iterator[None]:
    """Raise `UnreadableContentError` about `what` for any error that decoding foreign JSON raises."""
    try:
        yield
    except UnreadableContentError:
        raise
    except (AttributeError, EOFError, LookupError, OverflowError, TypeError, ValueError, zlib.error) as error:
        raise UnreadableContentError(f"{what} is not what Trimtab writes ({error!r:.200})") from error


def check_version(what: str, version: object, *, known: int = 1) -> None:
    """Raise `UnreadableContentError` unless `version` is the `known` one."""
    if version != known:
        raise UnreadableContentError(f"{what} has version {version}, this Trimtab reads version {known}")


def packed(text: str) -> str:
    """`text` compressed, in base64; empty if it is empty. The same text gives the same result."""
    return base64.b64encode(gzip.compress(text.encode(), compresslevel=6, mtime=0)).decode() if text else ""


def unpacked(text: str) -> str:
    """The text that `packed` compressed. Raises ValueError, EOFError and `zlib.error` for any other.

    Raises `TooLargeError` above `MOST_UNPACKED` bytes: a mebibyte of zeros is a kibibyte when compressed.
    """
    if not text:
        return ""
    reader = zlib.decompressobj(wbits=_GZIP)
    found = reader.decompress(base64.b64decode(text), MOST_UNPACKED + 1)
    if len(found) > MOST_UNPACKED:
        raise TooLargeError(MOST_UNPACKED)
    if not reader.eof or reader.unused_data:
        raise EOFError("it ends too early, or too late")
    return found.decode()


@dataclass(frozen=True, slots=True)
class PolicyOwner:
    """The BalancingPolicy object that a ConfigMap belongs to."""

    name: str
    uid: str

    @property
    def reference(self) -> dict[str, str]:
        """The entry of `ownerReferences`."""
        return {"apiVersion": API_VERSION, "kind": "BalancingPolicy", "name": self.name, "uid": self.uid}


@dataclass(frozen=True, slots=True)
class StoredFormat(Generic[T]):
    """How values of one type are stored.

    encode:     texts by key of a value, given the value that is stored already (None unknown). It may leave out keys
                whose text is the same.
    decode:     the value of the texts. Raises ValueError for texts that `encode` did not make.
    remedy:     text that tells a person what to do about content that can't be read.
    inherit:    what a new policy takes over from a deleted one of its name; None: nothing.
    epoch:      epoch of the leader that made a value; None: it has none.
    guarded:    whether a change or deletion of the ConfigMap since it was last read or written here is a conflict. The
                caller then reads it again. A format with an epoch is guarded, and reads it by itself.
    shorten:    a smaller value to store in place of one that is too large; None: there is none.
    most_bytes: limit of the content.
    """

    encode: Callable[[T, T | None], Mapping[str, Text]]
    decode: Callable[[Mapping[str, str]], T]
    remedy: str = "delete the ConfigMap"
    inherit: Callable[[T], T] | None = None
    epoch: Callable[[T], int] | None = None
    guarded: bool = False
    shorten: Callable[[T], T | None] | None = None
    most_bytes: int = MOST_BYTES

    def read(self, config_map: Mapping[str, Any]) -> T:
        """The value in a ConfigMap as the API server returns it. Raises `UnreadableContentError`."""
        name = config_map["metadata"]["name"]
        try:
            with reading("it"):
                binary = {key: unpacked(text) for key, text in (config_map.get("binaryData") or {}).items()}
                return self.decode({**(config_map.get("data") or {}), **binary})
        except UnreadableContentError as error:
            raise UnreadableContentError(f"ConfigMap {name}: {error}; {self.remedy}") from error

    def fit(self, value: T, texts: Mapping[str, Text]) -> tuple[T, dict[str, Any]]:
        """The value to store, which is `value` or a shortened one, and its `data` and `binaryData`.

        texts: of `value`. The content exceeds `most_bytes` only if no shorter value exists.
        """
        content = _content(texts)
        while self.shorten is not None and size(content) > self.most_bytes:
            if (shorter := self.shorten(value)) is None:
                break
            value, content = shorter, _content(self.encode(shorter, None))
        return value, content


def _content(texts: Mapping[str, Text]) -> dict[str, Any]:
    content: dict[str, dict[str, str]] = {}
    for key, text in texts.items():
        made = text if isinstance(text, str) else text()
        if key.endswith(_COMPRESSED):
            content.setdefault("binaryData", {})[key] = packed(made)
        else:
            content.setdefault("data", {})[key] = made
    return content


def size(content: Mapping[str, Mapping[str, str]]) -> int:
    """Bytes of a ConfigMap's `data` and `binaryData`, as the API server counts them."""
    plain = sum(len(text.encode()) for text in content.get("data", {}).values())
    return plain + sum(len(base64.b64decode(text)) for text in content.get("binaryData", {}).values())


@dataclass(slots=True)
class ConfigMapStore(Generic[T]):
    """Reads and writes one ConfigMap. All methods raise `ApiError`.

    owner: the policy that the ConfigMap goes with; None: it stays until `delete`.
    stored: the value that the ConfigMap has, as last read or written here; None: nothing, or another policy's.
    """

    api: Api
    namespace: str
    name: str
    format: StoredFormat[T]
    owner: PolicyOwner | None = None
    stored: T | None = None
    _version: str = ""

    async def load(self) -> T | None:
        """The value that was stored last; None: nothing is stored. Raises `UnreadableContentError`."""
        self.stored, self._version = None, ""
        try:
            found = await self.api.get(CONFIG_MAPS, self.namespace, self.name)
        except NotFoundError:
            return None
        self._version = found["metadata"]["resourceVersion"]
        if self._of_another(found):
            inherit = self.format.inherit
            return None if inherit is None else inherit(await asyncio.to_thread(self.format.read, found))
        self.stored = await asyncio.to_thread(self.format.read, found)
        return self.stored

    def _of_another(self, config_map: Mapping[str, Any]) -> bool:
        owners = config_map["metadata"].get("ownerReferences") or ()
        return self.owner is not None and bool(owners) and self.owner.uid not in {owner["uid"] for owner in owners}

    async def save(self, value: T) -> T:
        """Store `value`, or a shorter one where it is too large; returns the value that was stored.

        Raises `ConflictError` where a later leader wrote the ConfigMap or a guarded one has changed, and `RefusedError`
        where the value is too large.
        """
        try:
            return await self._write(value)
        except ConflictError:
            if self.format.epoch is None:
                raise
            await self._give_way(self.format.epoch, value)
            return await self._write(value)

    async def _write(self, value: T) -> T:
        """Change the ConfigMap, or create it. `ConflictError`: it is no longer as it was last read."""
        guarded = self.format.guarded or self.format.epoch is not None
        try:
            if self._version or not guarded:
                kept, body = await self._body(value)
                meta = {"resourceVersion": self._version} if guarded else {}
                body = {**body, "metadata": {**body["metadata"], **meta}}
                return self._note(kept, await self.api.patch(CONFIG_MAPS, self.namespace, self.name, body))
        except NotFoundError:
            self.stored, self._version = None, ""
        kept, body = await self._body(value)
        manifest = {"apiVersion": CONFIG_MAPS.api_version, "kind": CONFIG_MAPS.kind, **body}
        return self._note(kept, await self.api.create(CONFIG_MAPS, self.namespace, manifest))

    async def _body(self, value: T) -> tuple[T, dict[str, Any]]:
        texts = self.format.encode(value, self.stored)  # not in the thread: a value may change meanwhile
        kept, content = await asyncio.to_thread(self.format.fit, value, texts)
        if (found := size(content)) > MOST_BYTES:
            raise RefusedError(
                f"ConfigMap {self.name} would get {found} bytes, and {MOST_BYTES} fit: allow fewer moves (spec.limits)"
            )
        meta: dict[str, Any] = {"name": self.name}
        if self.owner is None:
            meta["labels"] = {"app.kubernetes.io/managed-by": "trimtab"}
        else:
            meta["ownerReferences"] = [self.owner.reference]
        return kept, {"metadata": meta, **content}

    def _note(self, kept: T, config_map: Mapping[str, Any]) -> T:
        self.stored, self._version = kept, config_map["metadata"]["resourceVersion"]
        return kept

    async def _give_way(self, epoch: Callable[[T], int], value: T) -> None:
        """Read the ConfigMap again after a conflict: it is overwritten, unless a later leader wrote it."""
        ours = epoch(value)
        try:
            theirs = 0 if (found := await self.load()) is None else epoch(found)
        except UnreadableContentError:
            theirs = 0
        if theirs > ours:
            raise ConflictError(f"{self.name} was written by a later leader, of epoch {theirs}; ours is {ours}")

    async def delete(self) -> None:
        """Delete the ConfigMap, if there is one. Raises `ConflictError` where a guarded one has changed."""
        seen = self._version if self.format.guarded else ""
        self.stored, self._version = None, ""
        try:
            await self.api.delete(CONFIG_MAPS, self.namespace, self.name, resource_version=seen)
        except NotFoundError:
            return
