"""`TopicNamespaceRecord`: what the loop keeps of a TopicNamespace object."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class TopicNamespaceRecord:
    """name: of the object; full_name: ``tenant/name`` as Pulsar spells it."""

    name: str
    full_name: str


def topic_namespace_record(raw: Mapping[str, Any]) -> TopicNamespaceRecord:
    """The record of a TopicNamespace object as the API server returns it."""
    spec = raw["spec"]
    return TopicNamespaceRecord(raw["metadata"]["name"], f"{spec['tenant']}/{spec['name']}")
