"""Keeps the latest decisions of a policy in the ConfigMap ``trimtab-decisions-<policy>``, newest last.

So that people can ask who can't reach the operator's disk; the history there has them all. It holds decisions that
wrote something or changed their verdict, and is not touched by a cycle that says what the one before said.
"""

from __future__ import annotations

import asyncio
import base64
import gzip
import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from trimtab_operator.cluster.api import CONFIG_MAPS, Api, NotFoundError
from trimtab_operator.cluster.naming import decisions_name
from trimtab_operator.control.decisions import DecisionRecord, ForeignRecordError
from trimtab_operator.resources.common import API_VERSION

log = logging.getLogger(__name__)

KEPT = 10
"""Decisions, at most."""
MOST_BYTES = 512 * 1024
"""Of the compressed records in base64; a ConfigMap holds a mebibyte, with a little besides."""
_KEY = "decisions.json.gz"


@dataclass(slots=True)
class DecisionStore:
    """Keeps one policy's decisions; `uid` is the policy's, so that a new one of its name begins anew."""

    api: Api
    namespace: str
    policy: str
    uid: str

    @property
    def name(self) -> str:
        """Name of the ConfigMap."""
        return decisions_name(self.policy)

    async def load(self) -> tuple[DecisionRecord, ...]:
        """What was stored last, oldest first; nothing where it is not ours. Raises `ApiError`."""
        try:
            found = await self.api.get(CONFIG_MAPS, self.namespace, self.name)
        except NotFoundError:
            return ()
        owners = [owner.get("uid") for owner in found["metadata"].get("ownerReferences") or ()]
        if self.uid not in owners:
            return ()
        try:
            return await asyncio.to_thread(unpacked, found)
        except ForeignRecordError as error:
            log.warning("policy %s: its recorded decisions are begun anew: %s", self.policy, error)
            return ()

    async def save(self, records: Sequence[DecisionRecord]) -> tuple[DecisionRecord, ...]:
        """Store the last `KEPT`, or fewer where these are too large; those that were kept. Raises `ApiError`."""
        text, kept = await asyncio.to_thread(packed, records)
        owner = {"apiVersion": API_VERSION, "kind": "BalancingPolicy", "name": self.policy, "uid": self.uid}
        body: dict[str, Any] = {
            "metadata": {"name": self.name, "ownerReferences": [owner]},
            "binaryData": {_KEY: text},
        }
        try:
            await self.api.patch(CONFIG_MAPS, self.namespace, self.name, body)
        except NotFoundError:
            await self.api.create(CONFIG_MAPS, self.namespace, {"apiVersion": "v1", "kind": "ConfigMap", **body})
        return kept


def packed(records: Sequence[DecisionRecord]) -> tuple[str, tuple[DecisionRecord, ...]]:
    """As a ConfigMap holds it, and how much of it that is: compressed JSON lines in base64, oldest first."""
    kept = tuple(records[-KEPT:])
    while True:
        lines = "\n".join(record.to_json() for record in kept)
        text = base64.b64encode(gzip.compress(lines.encode(), compresslevel=6, mtime=0)).decode()
        if len(text) <= MOST_BYTES or len(kept) == 1:
            return text, kept
        kept = kept[1:]


def unpacked(config_map: Mapping[str, Any]) -> tuple[DecisionRecord, ...]:
    """The decisions in a ConfigMap as the API server returns it, oldest first. Raises `ForeignRecordError`."""
    try:
        lines = gzip.decompress(base64.b64decode(config_map["binaryData"][_KEY])).decode().splitlines()
        versions = {json.loads(line).get("version", 1) for line in lines}
    except (AttributeError, KeyError, TypeError, ValueError, OSError, EOFError) as error:
        raise ForeignRecordError(f"it is not what Trimtab writes ({error!r:.200})") from error
    if versions - {1}:
        raise ForeignRecordError(f"it has version {max(versions)}, this Trimtab reads 1")
    return tuple(DecisionRecord.from_json(line) for line in lines)
