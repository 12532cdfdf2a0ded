"""Replaces names by keyed hashes, so that a history can be shared with outsiders.

Equal names stay equal, within an export and between exports with the same key. Without the key no one can test guesses
of a hashed name. Ranges of bundles stay: they show how load is spread, not whose it is. The place of a hot bundle's
topic on the hash ring stays, too: it is the CRC-32 of the full name, so a guess of such a name can be tested even
without the key. Unknown columns are emptied.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import re
import secrets
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from trimtab_pipeline.history.facts import COMPLETE, json_text
from trimtab_strategies.hash_ring import is_monitoring

_DIGITS = 12
_RANGE = re.compile(r"0x[0-9a-f]{8}_0x[0-9a-f]{8}")
_TOPIC = re.compile(r"(?:(?P<domain>[a-z-]+)://)?(?P<home>.*/)?(?P<name>[^/]*?)(?P<end>-partition-\d+)?")
_SEGMENT = re.compile(r"(?P<domain>segment)://(?P<home>[^/]+/[^/]+/)(?P<name>.+)(?P<end>/[0-9a-f]+-[0-9a-f]+-\d+)")
_FREE_TEXT = "text left out"
_BROKERS = {"owner", "pod", "movingFrom"}  # keys whose values are names of brokers or pods
_TRAITS = ("version", "load_manager", "persistent", "non_persistent", "weight", "started")
_NUMBERS = {"pinned", "inFlight", "lastUnload", "movingShare", "ready", "schedulable", "limits"}

ISOLATION_LEFT_OUT = "isolation_left_out"
"""Key in the fact of a namespace whose isolation was left out, because it consists of names."""


class Renaming:
    """Hashes names with `key`, which may be any bytes; a longer key is safer."""

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._columns: dict[str, Callable[[str], str]] = {
            "broker": self.broker,
            "pod": self.broker,
            "bundle": self.bundle,
            "topic": self.topic,
            "kind": str,
            "reason": str,
        }
        self._facts_of: dict[str, tuple[Callable[[str], str], Callable[[Any], dict[str, Any]]]] = {
            COMPLETE: (str, lambda _: {}),
            "bundle": (self.bundle, self._placed),
            "broker": (self.broker, self._placed),
            "traits": (self.broker, self._traits),
            "namespace": (self._home, self._policy),
            "publishGap": (self._home, lambda value: {"seconds": value["seconds"]}),
        }

    def broker(self, name: str) -> str:
        """Hash a broker or its pod. Equal names of the two get the same hash. An empty name stays empty."""
        return self._hash("broker", name) if name else name

    def policy(self, name: str) -> str:
        """Hash the ``namespace/name`` of a policy."""
        namespace, _, policy = name.rpartition("/")
        return f"{self._hash('cluster', namespace)}/{self._hash('policy', policy)}"

    def bundle(self, name: str) -> str:
        """Hash ``tenant/namespace/range``."""
        home, _, extent = name.rpartition("/")
        return f"{self._home(home)}/{extent}" if _RANGE.fullmatch(extent) else self._hash("bundle", name)

    def topic(self, name: str) -> str:
        """Hash ``domain://tenant/namespace/topic``. A partition's number and the end of a segment's name stay."""
        parts = _SEGMENT.fullmatch(name) or _TOPIC.fullmatch(name)
        if not parts or not parts["home"]:
            return self._hash("topic", name)
        domain = f"{parts['domain']}://" if parts["domain"] else ""
        topic = self._hash("topic", parts["home"] + parts["name"])
        return f"{domain}{self._home(parts['home'].rstrip('/'))}/{topic}{parts['end'] or ''}"

    def table(self, rows: pa.Table) -> pa.Table:
        """`rows` with every name hashed, and free text (error messages name hosts) left out."""
        if {"kind", "name", "value"} <= set(rows.column_names):
            return self._facts(rows)
        for position, field in enumerate(rows.schema):
            if field.type == pa.string():
                rows = rows.set_column(position, field, self._column(rows, field.name))
        return rows

    def _facts(self, rows: pa.Table) -> pa.Table:
        """Facts of known kinds with every name hashed; other facts lose their name and value."""
        columns = zip(*(rows[name].to_pylist() for name in ("kind", "name", "value")), strict=True)
        facts = [self._fact(kind, name, value) for kind, name, value in columns]
        for name, values in zip(("name", "value"), zip(*facts, strict=True), strict=False):
            rows = rows.set_column(rows.column_names.index(name), name, pa.array(values, pa.string()))
        return rows

    def _fact(self, kind: str, name: str, value: str | None) -> tuple[str, str | None]:
        """Name and value of a fact."""
        if kind not in self._facts_of:
            return "", None
        rename, kept = self._facts_of[kind]
        return rename(name), None if value is None else json_text(kept(json.loads(value)))

    def _placed(self, value: Mapping[str, Any]) -> dict[str, Any]:
        """The fact of a bundle or a broker."""
        return {
            key: self.broker(item) if key in _BROKERS and item else item
            for key, item in value.items()
            if key in _BROKERS | _NUMBERS
        }

    def _traits(self, value: Mapping[str, Any]) -> dict[str, Any]:
        """The traits of a broker."""
        domain = value.get("failure_domain")
        kept = {key: value[key] for key in _TRAITS if key in value}
        return {**kept, "failure_domain": self._hash("domain", domain) if domain else ""}

    def _policy(self, value: Mapping[str, Any]) -> dict[str, Any]:
        """The rules of a namespace. Isolation consists of names, so only its existence stays."""
        group, zone = value.get("anti_affinity_group"), value.get("zone")
        found = {
            "anti_affinity_group": self._hash("group", group) if group else "",
            "unload": value.get("unload", True),
            "last": value.get("last", False),
            "spread": value.get("spread", False),
            "zone": self._hash("domain", zone) if zone else "",
        }
        return {**found, ISOLATION_LEFT_OUT: True} if value.get("isolation") else found

    def _home(self, namespace: str) -> str:
        hashed = self._hash("namespace", namespace)
        if is_monitoring(namespace):  # the new name has this form, too, so a replay moves none of its bundles
            return f"pulsar/{hashed}:0"
        return f"{self._hash('tenant', namespace.partition('/')[0])}/{hashed}"

    def _hash(self, kind: str, name: str) -> str:
        digest = hmac.new(self._key, f"{kind}\0{name}".encode(), hashlib.sha256).hexdigest()
        return f"{kind}-{digest[:_DIGITS]}"

    def _column(self, rows: pa.Table, name: str) -> pa.Array | pa.ChunkedArray:
        if name == "what":
            return pc.if_else(pc.is_in(rows["kind"], pa.array(["failed", "warning", "note"])), _FREE_TEXT, rows["what"])
        rename = self._columns.get(name)
        if rename is None:
            return pa.nulls(len(rows), pa.string())
        found = rows[name].combine_chunks().dictionary_encode()
        known = pa.array([rename(text) for text in found.dictionary.to_pylist()], pa.string())
        return known.take(found.indices)


def kept_key(path: Path) -> bytes:
    """The key in the file `path`. If there is no file, it is created, readable only by its owner. Raises `OSError`."""
    try:
        path.touch(mode=0o600, exist_ok=False)
    except FileExistsError:
        pass
    else:
        path.write_text(secrets.token_hex(32))
    key = path.read_bytes().strip()
    if not key:
        raise ValueError(f"{path} is empty, but must contain the key of the hashes; remove it to get a new key")
    return key
