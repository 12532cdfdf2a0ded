"""`ConfigMapStore`: keeps one value as JSON in a ConfigMap.

The API server holds the value, so a restarted operator and a new leader continue with it. `StoredFormat` turns a value
into texts by key and reads them back. The text of a key that ends in ``.gz`` is compressed into `binaryData`; any other
text is plain in `data`. Keys that a write leaves out keep their text.

A ConfigMap that belongs to a policy has the policy as its owner, and is deleted with it. A new policy of the same name
reads only what `inherit` takes over from the old one. If a format is guarded or has an epoch, each write carries the
resourceVersion of the last read. So a leader never overwrites what a later leader wrote, however late its request
arrives.
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
"""A text to store. A callable is called in a thread: use one if the text takes milliseconds to make."""

MOST_BYTES = 1024 * 1024
"""Maximum size of a ConfigMap's content in the API server, in bytes, with `binaryData` decoded."""

MOST_UNPACKED = 64 * 2**20
"""Maximum size of an unpacked text, in bytes. The largest, a proposal with 10,000 moves, takes about three MB."""

_COMPRESSED = ".gz"
_GZIP = 16 + zlib.MAX_WBITS


class UnreadableContentError(ValueError):
    """Stored content that Trimtab did not write, or that has a version which this release can't read."""


@contextmanager
def reading(what: str) -> Iterator[None]:
    """Turn any error that decoding stored JSON raises into an `UnreadableContentError` about `what`."""
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
    """`text` compressed, in base64; empty if `text` is empty. The same text gives the same result."""
    return base64.b64encode(gzip.compress(text.encode(), compresslevel=6, mtime=0)).decode() if text else ""


def unpacked(text: str) -> str:
    """The text that `packed` compressed. Raises ValueError, EOFError or `zlib.error` for other input.

    Raises `TooLargeError` above `MOST_UNPACKED` bytes, because a mebibyte of zeros compresses to a kibibyte.
    """
    if not text:
        return ""
    reader = zlib.decompressobj(wbits=_GZIP)
    found = reader.decompress(base64.b64decode(text), MOST_UNPACKED + 1)
    if len(found) > MOST_UNPACKED:
        raise TooLargeError(MOST_UNPACKED)
    if not reader.eof or reader.unused_data:
        raise EOFError("the compressed text is cut off, or has trailing bytes")
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

    encode:     returns the texts of a value by key. It also gets the value that is stored already (None: unknown), and
                may leave out keys whose text is unchanged.
    decode:     returns the value that such texts stand for. Raises ValueError for texts that `encode` did not make.
    remedy:     text that tells a person what to do about content that can't be read.
    inherit:    returns what a new policy takes over from a deleted one of the same name; None: nothing.
    epoch:      returns the epoch of the leader that made a value; None: values have no epoch.
    guarded:    whether a write or deletion is a conflict if the ConfigMap has changed since this store last read or
                wrote it. The caller then reads it again. With an epoch, writes are guarded, too, but after a conflict
                `save` itself reads the ConfigMap and tries again.
    shorten:    a smaller value to store in place of one that is too large; None: there is none.
    most_bytes: maximum size of the content.
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

        texts: those of `value`. The content exceeds `most_bytes` only if no shorter value exists.
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

    owner: the policy that the ConfigMap is deleted with; None: it stays until `delete`.
    stored: the value in the ConfigMap, as this store last read or wrote it; None: nothing, or another policy's.
    """

    api: Api
    namespace: str
    name: str
    format: StoredFormat[T]
    owner: PolicyOwner | None = None
    stored: T | None = None
    _version: str = ""

    async def load(self) -> T | None:
        """Read the stored value; None: nothing is stored. Raises `UnreadableContentError`."""
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
        """Store `value`, or a shorter one if it is too large. Returns the value that was stored.

        Raises `ConflictError` if a later leader wrote the ConfigMap, or if it is guarded and has changed. Raises
        `RefusedError` if the value is too large.
        """
        try:
            return await self._write(value)
        except ConflictError:
            if self.format.epoch is None:
                raise
            await self._give_way(self.format.epoch, value)
            return await self._write(value)

    async def _write(self, value: T) -> T:
        """Change the ConfigMap, or create it. `ConflictError`: it has changed since it was last read."""
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
        texts = self.format.encode(value, self.stored)  # not in a thread, because `value` may change meanwhile
        kept, content = await asyncio.to_thread(self.format.fit, value, texts)
        if (found := size(content)) > MOST_BYTES:
            raise RefusedError(
                f"ConfigMap {self.name} would have {found} bytes, above {MOST_BYTES}: allow fewer moves (spec.limits)"
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
        """Read the ConfigMap again after a conflict. Raises `ConflictError` if a later leader wrote it."""
        ours = epoch(value)
        try:
            theirs = 0 if (found := await self.load()) is None else epoch(found)
        except UnreadableContentError:
            theirs = 0
        if theirs > ours:
            raise ConflictError(f"{self.name} was written by a later leader, of epoch {theirs}; ours is {ours}")

    async def delete(self) -> None:
        """Delete the ConfigMap, if there is one. Raises `ConflictError` if it is guarded and has changed."""
        seen = self._version if self.format.guarded else ""
        self.stored, self._version = None, ""
        try:
            await self.api.delete(CONFIG_MAPS, self.namespace, self.name, resource_version=seen)
        except NotFoundError:
            return
