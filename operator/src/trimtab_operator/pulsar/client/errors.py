"""Errors of Pulsar's admin REST API as types, and a remedy for each problem of TLS and authentication.

Status codes and texts were measured with brokers 4.0.8 of both load managers. Brokers answer 401 to an unknown client
and also to a known role without the permission. Only the text differs. A remedy names the field of the policy and the
Secret to correct.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from trimtab_operator.resources.prometheus import SecretKeyRef, TrustedAuthorities
from trimtab_operator.resources.pulsar import PulsarAuth
from trimtab_pipeline.prometheus.response_limits import json_of
from trimtab_pipeline.tls_faults import TlsFields, tls_advice


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

_LAPSED = re.compile(r"the token (expired|is not valid before)")

_WHERE = "spec.pulsar.auth"

_NO_ISSUER = "Trimtab shows none to an issuer: use one that requires none"

_CALLER, _ROLE = 401, 403


@dataclass(frozen=True, slots=True)
class Access:
    """Where the access to Pulsar is set up, in a user's words. Empty: it is not given.

    tls: the fields of TLS. token, issuer: where the token is given, and the URL of the issuer. client: where the
    issuer's client is given. secret, audience: where its secret and audience are. give: how to give credentials. place:
    what to do with a valid token or certificate.
    """

    tls: TlsFields
    token: str
    give: str
    place: str
    issuer: str = ""
    client: str = ""
    secret: str = ""
    audience: str = ""

    @property
    def who(self) -> str:
        """The credentials and where they are given; empty if there are none."""
        if self.token:
            return f"the token at {self.token}"
        if self.client:
            return f"the client at {self.client}"
        return f"the certificate at {self.tls.certificate}" if self.tls.certificate else ""


def remedy(problem: str, auth: PulsarAuth | None, scheme: str = "") -> str:
    """What to do about `problem`, the text of a `PulsarError`; empty if it is about neither TLS nor authentication.

    scheme: of the URL, if Pulsar has not answered yet.
    """
    return advice(problem, _access(auth), scheme)


def advice(problem: str, access: Access, scheme: str = "") -> str:
    """As `remedy`, for an access that is set up elsewhere than in a policy."""
    if by_issuer := _ISSUER.match(problem):
        scheme = ""
        tls = replace(access.tls, certificate="", give_certificate=_NO_ISSUER, url=f"{_WHERE}.oauth2.issuerUrl")
    if about_tls := tls_advice(problem, tls if by_issuer else access.tls, scheme):
        return about_tls
    found = _STATUS.match(problem)
    status, said = (int(found[1]), found[2]) if found else (0, "")
    if by_issuer:
        return _of_client(access) if found else ""
    if status == _ROLE or (status == _CALLER and _FORBIDDEN.search(said) and not _LAPSED.search(said)):
        return f"brokers know this role, but it is not a superuser: {access.who or _WHERE} needs one of superUserRoles"
    return _of_caller(access) if status == _CALLER else ""


def _access(auth: PulsarAuth | None) -> Access:
    """Where the policy sets up the access."""
    auth = auth or PulsarAuth()
    tls, oauth2 = auth.tls, auth.oauth2
    ca, certificate = (tls.ca, tls.certificate) if tls is not None else (None, None)
    fields = TlsFields(
        ca=_authority(ca) if ca is not None else "",
        give_ca=f"name a Secret or ConfigMap with the right one in {_WHERE}.tls.ca",
        certificate=_place("tls.certificate", certificate.secret_key_ref) if certificate is not None else "",
        give_certificate=f"name Secrets with one and its key in {_WHERE}.tls.certificate and {_WHERE}.tls.key",
        url="spec.pulsar.adminUrl",
    )
    return Access(
        tls=fields,
        token=_place("token", auth.token.secret_key_ref) if auth.token is not None else "",
        give=f"name a Secret with a token, oauth2 or tls.certificate in {_WHERE}",
        place="put a valid one there; it is read again within a minute",
        issuer=oauth2.issuer_url if oauth2 is not None else "",
        client=_place("oauth2.clientId", oauth2.client_id.secret_key_ref) if oauth2 is not None else "",
        secret=_place("oauth2.clientSecret", oauth2.client_secret.secret_key_ref) if oauth2 is not None else "",
        audience=f"{_WHERE}.oauth2.audience",
    )


def _authority(where: TrustedAuthorities) -> str:
    named = where.config_map_key_ref
    if named is not None:
        return f"{_WHERE}.tls.ca (ConfigMap {named.name}, key {named.key})"
    assert where.secret_key_ref is not None, "one of the two is given"
    return _place("tls.ca", where.secret_key_ref)


def _of_client(access: Access) -> str:
    if not access.client:
        return ""
    return f"check {access.client} and {access.secret}, and which audience and scope the issuer requires"


def _of_caller(access: Access) -> str:
    if not access.who:
        return f"brokers require authentication: {access.give}"
    if access.issuer:
        audience = f"check {access.audience}, and the key that brokers verify with"
        return f"brokers do not accept tokens of {access.issuer}: {audience}"
    return f"brokers do not accept {access.who}: {access.place}"


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
