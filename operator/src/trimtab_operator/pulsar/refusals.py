"""Status codes and texts of Pulsar's refusals, as measured with brokers 4.0.8 of both load managers, made errors."""

from __future__ import annotations

import json
import re

from trimtab_operator.pulsar.errors import (
    ExistsError,
    InactiveDestinationError,
    PulsarError,
    PulsarRefusedError,
    PulsarUnavailableError,
    SameBrokerError,
    SplitRefusedError,
    StaleBundleError,
    UnknownError,
    UnownedError,
)

_NOT_FOUND, _CONFLICT, _PRECONDITION, _TOO_MANY, _FAILED = 404, 409, 412, 429, 500
_LONGEST = 300

_CREATIONS = frozenset({"create_tenant", "create_namespace"})
_OF_BUNDLES = frozenset({"unload", "split", "topic_positions", "owner"})
_INACTIVE = re.compile(r"inactive destination", re.IGNORECASE)
_SAME = re.compile(r"transfer to same broker", re.IGNORECASE)
_STALE = re.compile(r"invalid (upper|lower) boundary", re.IGNORECASE)
_UNOWNED = re.compile(r"failed to find ownership", re.IGNORECASE)
_PAGE = re.compile(r"<th>MESSAGE:</th>\s*<td>([^<]*)</td>", re.IGNORECASE)
_NO_SPLIT = re.compile(r"not found under namespace|ClassCastException|split", re.IGNORECASE)


def reason_of(body: str) -> str:
    """What an answer says went wrong: its ``reason``, of a stack trace or a page the message alone, in one line."""
    try:
        found = json.loads(body)
        text = str(found["reason"]) if isinstance(found, dict) and found.get("reason") else body
    except ValueError:
        text = body
    message = re.search(r"^Message: (.*)$", text, re.MULTILINE) or _PAGE.search(text)
    return " ".join((message[1] if message else re.sub(r"<[^>]*>", " ", text)).split())[:_LONGEST]


def refusal(call: str, status: int, body: str, told: str) -> PulsarError:
    """The error that an answer stands for. told: the request in words, for the message."""
    reason = reason_of(body)
    kind = _kind(call, status, f"{reason} {body}")
    return kind(f"{told}: {status} {reason}".rstrip(), status=status)


def _kind(call: str, status: int, text: str) -> type[PulsarError]:
    if (found := _of_call(call, status, text)) is not None:
        return found
    if status == _NOT_FOUND:
        return UnknownError
    return PulsarUnavailableError if status >= _FAILED or status == _TOO_MANY else PulsarRefusedError


def _of_call(call: str, status: int, text: str) -> type[PulsarError] | None:
    """What a status and a text mean after this call alone."""
    if call in _CREATIONS:
        return ExistsError if status == _CONFLICT else None
    if call in _OF_BUNDLES and status == _PRECONDITION and _STALE.search(text):
        return StaleBundleError
    if call == "owner" and status == _PRECONDITION and _UNOWNED.search(text):
        return UnownedError
    if call == "unload":
        return _unload(status, text)
    refused = call == "split" and (status == _PRECONDITION or (status == _FAILED and _NO_SPLIT.search(text)))
    return SplitRefusedError if refused else None


def _unload(status: int, text: str) -> type[PulsarError] | None:
    if status == _CONFLICT and _INACTIVE.search(text):
        return InactiveDestinationError
    return SameBrokerError if status == _FAILED and _SAME.search(text) else None
