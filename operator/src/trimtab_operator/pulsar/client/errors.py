"""What to do about brokers that do not let us in: which field of the policy it is, and which Secret. Pure.

Brokers 4.0.8 answer 401 whether they know nobody by what was shown, or know who it is and do not allow it; then they
say so. What they say is told as it is, and here follows what it comes from.
"""

from __future__ import annotations

import re

from trimtab_operator.resources.prometheus import SecretKey
from trimtab_operator.resources.pulsar import PulsarAuth

_ISSUER = re.compile(r"^issuer \S+: ")
_STATUS = re.compile(r"^(?:issuer \S+|[A-Z]+ \S+): (4\d\d) (.*)", re.DOTALL)
_FORBIDDEN = re.compile(r"unauthorized to|not authorized|not permitted|don't have permission", re.IGNORECASE)
_ANOTHER_NAME = re.compile(r"mismatch|is not valid for", re.IGNORECASE)
_DISBELIEVED = "CERTIFICATE_VERIFY_FAILED"
_WHERE = "spec.pulsar.auth"
_CALLER, _ROLE = 401, 403


def remedy(problem: str, auth: PulsarAuth | None) -> str:
    """What to do about `problem`, the text of a `PulsarError`; empty where it has nothing to do with who asks whom."""
    if _DISBELIEVED in problem:
        return _of_certificate(problem, auth)
    found = _STATUS.match(problem)
    status, said = (int(found[1]), found[2]) if found else (0, "")
    if _ISSUER.match(problem):
        return _of_client(auth) if found else ""
    if status == _ROLE or (status == _CALLER and _FORBIDDEN.search(said)):
        return f"brokers know who asks, and that is no superuser of theirs: {_field(auth)} needs one of superUserRoles"
    return _of_caller(auth) if status == _CALLER else ""


def _of_certificate(problem: str, auth: PulsarAuth | None) -> str:
    if _ANOTHER_NAME.search(problem):
        return "what the server shows is for another name: name it in the URL as its certificate does"
    if auth is not None and auth.tls is not None and auth.tls.ca is not None:
        told = f"{_told('tls.ca', auth.tls.ca)} is not the authority that signed what the server shows"
        return f"{told}: put the right one there"
    return f"no usual authority signed what the server shows: name a Secret with the right one in {_WHERE}.tls.ca"


def _of_client(auth: PulsarAuth | None) -> str:
    if auth is None or auth.oauth2 is None:
        return ""
    oauth2 = auth.oauth2
    fields = f"{_told('oauth2.clientId', oauth2.client_id)} and {_told('oauth2.clientSecret', oauth2.client_secret)}"
    return f"see {fields}, and what audience and scope the issuer wants"


def _of_caller(auth: PulsarAuth | None) -> str:
    if auth is None or (auth.token is None and auth.oauth2 is None and (auth.tls is None or not auth.tls.certificate)):
        return f"brokers want to know who asks: name a Secret with a token, oauth2 or tls.certificate in {_WHERE}"
    if auth.oauth2 is not None:
        return (
            f"brokers do not take tokens of {auth.oauth2.issuer_url}: see {_WHERE}.oauth2.audience, and their own key"
        )
    return f"brokers do not take {_field(auth)}: put one there that is valid now; it is read again within a minute"


def _field(auth: PulsarAuth | None) -> str:
    """What says who asks, and where that is."""
    if auth is not None and auth.token is not None:
        return f"the token at {_told('token', auth.token)}"
    if auth is not None and auth.oauth2 is not None:
        return f"the client at {_told('oauth2.clientId', auth.oauth2.client_id)}"
    if auth is not None and auth.tls is not None and auth.tls.certificate is not None:
        return f"the certificate at {_told('tls.certificate', auth.tls.certificate)}"
    return _WHERE


def _told(field: str, where: SecretKey) -> str:
    return f"{_WHERE}.{field} (Secret {where.secret}, key {where.key})"
