"""Errors of Pulsar's admin REST API as types, and a remedy for each authentication problem.

Status codes and texts were measured with brokers 4.0.8 of both load managers. Brokers answer 401 to an unknown client
and also to a known role without the permission. Only the text differs. A remedy names the field of the policy and the
Secret to correct.
"""

from __future__ import annotations

import re

from trimtab_operator.resources.prometheus import SecretKeyRef, TrustedAuthorities
from trimtab_operator.resources.pulsar import PulsarAuth
from trimtab_pipeline.prometheus.response_limits import json_of


class PulsarError(Exception):
    """Base class: a request failed. status: HTTP status, 0 without an answer."""

    def __init__(self, message: str, *, status: int = 0) -> None:
        super().__init__(message)
        self.status = status


class PulsarUnavailableError(PulsarError):
    """No usable answer: a refused or reset connection, a time-out, too many redirects, a 429, or an untyped 5xx."""


class PulsarRefusedError(PulsarError):
    """A 4xx except 429: the request is wrong or not allowed. A retry would fail again.

    The subclasses are the answers with a special meaning, also with status 500. 401, 403 and others have no subclass.
    """


class UnknownError(PulsarRefusedError):
    """404: there is no such tenant, namespace or broker."""


class UnownedError(PulsarRefusedError):
    """412 on a request for a bundle's owner: no broker serves the bundle."""


class ExistsError(PulsarRefusedError):
    """409 on creation of a tenant or namespace: it exists already."""


class StaleBundleError(PulsarRefusedError):
    """412: no bundle has these boundaries, for example after a split. Read the boundaries again."""


class InactiveDestinationError(PulsarRefusedError):
    """409 on an unload: the destination is not among the active brokers."""


class SameBrokerError(PulsarRefusedError):
    """The destination already owns the bundle. Only the extensible load manager reports this."""


class SplitRefusedError(PulsarRefusedError):
    """Pulsar refuses to split the bundle at these positions."""


_ISSUER = re.compile(r"^issuer \S+: ")

_STATUS = re.compile(r"^(?:issuer \S+|[A-Z]+ \S+): (4\d\d) (.*)", re.DOTALL)

_FORBIDDEN = re.compile(r"unauthorized to|not authorized|not permitted|don't have permission", re.IGNORECASE)

_ANOTHER_NAME = re.compile(r"mismatch|is not valid for", re.IGNORECASE)

_UNTRUSTED = "CERTIFICATE_VERIFY_FAILED"

_WHERE = "spec.pulsar.auth"

_CALLER, _ROLE = 401, 403


def remedy(problem: str, auth: PulsarAuth | None) -> str:
    """What to do about `problem`, the text of a `PulsarError`; empty if it is not an authentication problem."""
    if _UNTRUSTED in problem:
        return _of_certificate(problem, auth)
    found = _STATUS.match(problem)
    status, said = (int(found[1]), found[2]) if found else (0, "")
    if _ISSUER.match(problem):
        return _of_client(auth) if found else ""
    if status == _ROLE or (status == _CALLER and _FORBIDDEN.search(said)):
        return f"brokers know this role, but it is not a superuser: {_field(auth)} needs one of superUserRoles"
    return _of_caller(auth) if status == _CALLER else ""


def _of_certificate(problem: str, auth: PulsarAuth | None) -> str:
    if _ANOTHER_NAME.search(problem):
        return "the server's certificate is for another name: use a name from the certificate in the URL"
    if auth is not None and auth.tls is not None and auth.tls.ca is not None:
        text = f"{_authority(auth.tls.ca)} is not the authority that signed the server's certificate"
        return f"{text}: put the right one there"
    return (
        "no well-known authority signed the server's certificate: name a Secret or ConfigMap with the right one in "
        f"{_WHERE}.tls.ca"
    )


def _authority(where: TrustedAuthorities) -> str:
    named = where.config_map_key_ref
    if named is not None:
        return f"{_WHERE}.tls.ca (ConfigMap {named.name}, key {named.key})"
    assert where.secret_key_ref is not None, "one of the two is given"
    return _place("tls.ca", where.secret_key_ref)


def _of_client(auth: PulsarAuth | None) -> str:
    if auth is None or auth.oauth2 is None:
        return ""
    oauth2 = auth.oauth2
    client, secret = oauth2.client_id.secret_key_ref, oauth2.client_secret.secret_key_ref
    fields = f"{_place('oauth2.clientId', client)} and {_place('oauth2.clientSecret', secret)}"
    return f"check {fields}, and which audience and scope the issuer requires"


def _of_caller(auth: PulsarAuth | None) -> str:
    if auth is None or (auth.token is None and auth.oauth2 is None and (auth.tls is None or not auth.tls.certificate)):
        return f"brokers require authentication: name a Secret with a token, oauth2 or tls.certificate in {_WHERE}"
    if auth.oauth2 is not None:
        return (
            f"brokers do not accept tokens of {auth.oauth2.issuer_url}: "
            f"check {_WHERE}.oauth2.audience, and the key that brokers verify with"
        )
    return f"brokers do not accept {_field(auth)}: put a valid one there; it is read again within a minute"


def _field(auth: PulsarAuth | None) -> str:
    """The credentials and their field."""
    if auth is not None and auth.token is not None:
        return f"the token at {_place('token', auth.token.secret_key_ref)}"
    if auth is not None and auth.oauth2 is not None:
        return f"the client at {_place('oauth2.clientId', auth.oauth2.client_id.secret_key_ref)}"
    if auth is not None and auth.tls is not None and auth.tls.certificate is not None:
        return f"the certificate at {_place('tls.certificate', auth.tls.certificate.secret_key_ref)}"
    return _WHERE


def _place(field: str, where: SecretKeyRef) -> str:
    return f"{_WHERE}.{field} (Secret {where.name}, key {where.key})"


_NOT_FOUND, _CONFLICT, _PRECONDITION, _TOO_MANY, _FAILED = 404, 409, 412, 429, 500

_LONGEST = 300

_TAG = re.compile(r"<[^<>]*>")
"""An HTML tag. A pattern that allows ``<`` within a tag would take quadratic time on text with many ``<``."""

_PAGE = re.compile(r"<th>MESSAGE:</th>\s*<td>([^<]*)</td>", re.IGNORECASE)

_PASSES = "BadVersion|TimeoutException|timed out"
"""Texts of failures that may be over at the next attempt."""

_SPECIAL = (
    ("create_tenant create_namespace", _CONFLICT, "", ExistsError),
    ("unload split topic_positions owner", _PRECONDITION, "invalid (upper|lower) boundary", StaleBundleError),
    ("owner", _PRECONDITION, "failed to find ownership", UnownedError),
    ("unload", _CONFLICT, "inactive destination", InactiveDestinationError),
    ("unload", _FAILED, "transfer to same broker", SameBrokerError),
    ("split", _PRECONDITION, "", SplitRefusedError),
    ("split", _FAILED, _PASSES, PulsarUnavailableError),
    ("split", _FAILED, "not found under namespace|ClassCastException|split", SplitRefusedError),
)
"""Answers with a special meaning: the calls, the status, a regular expression for the text, and the error. The first
row that matches applies."""


def reason_of(body: str) -> str:
    """The reason in an error body, as one line: the field ``reason``, or the message of a stack trace or page."""
    try:
        found = json_of(body)
        text = str(found["reason"]) if isinstance(found, dict) and found.get("reason") else body
    except ValueError:
        text = body
    message = re.search(r"^Message: (.*)$", text, re.MULTILINE) or _PAGE.search(text)
    return " ".join((message[1] if message else _TAG.sub(" ", text)).split())[:_LONGEST]


def refusal(call: str, status: int, body: str, request: str) -> PulsarError:
    """Make the error for an answer. request: text that names the request in the message."""
    reason = reason_of(body)
    kind = _kind(call, status, f"{reason} {body}")
    return kind(f"{request}: {status} {reason}".rstrip(), status=status)


def _kind(call: str, status: int, text: str) -> type[PulsarError]:
    for calls, code, pattern, error in _SPECIAL:
        if call in calls.split() and status == code and re.search(pattern, text, re.IGNORECASE):
            return error
    if status == _NOT_FOUND:
        return UnknownError
    return PulsarUnavailableError if status >= _FAILED or status == _TOO_MANY else PulsarRefusedError
