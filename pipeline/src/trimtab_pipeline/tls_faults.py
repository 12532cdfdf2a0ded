"""Why a connection with TLS failed, and the fix: one wording for Pulsar, its issuers, Prometheus and Kubernetes.

The texts of OpenSSL tell the faults apart. Python and its HTTP libraries pass them on, each with words of its own.
"unable to get local issuer certificate" has two causes that look the same from outside: an authority that is not
trusted, and a server that leaves out the certificates between its own and the authority's.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_SERVER, _SIGNED = "the server's certificate", "the server's certificate, or one of an authority above it,"

_CERTIFICATE = (
    (r"certificate has expired", f"{_SIGNED} has expired: renew it at the server"),
    (r"certificate is not yet valid", f"{_SIGNED} is not valid yet: compare the clocks, and when it becomes valid"),
    (r"certificate is not valid for", f"{_SERVER} is for another name: use a name from the certificate in {{url}}"),
    (r"self[- ]signed certificate in", f"{{signer}} signed {_SERVER}: {{trust}}"),
    (r"self[- ]signed certificate", f"{_SERVER} is self-signed, so nothing vouches for it: {{trust}}"),
    (
        r"unable to get (local )?issuer certificate|unable to verify the first certificate",
        f"{{signer}} signed {_SERVER}, or it lacks an intermediate certificate: {{trust}}, or complete it",
    ),
    (r"verify failed:? ?(?P<why>[^('\]]*)", f"{_SERVER} can't be verified ({{why}}): correct it at the server"),
)
"""Regular expressions for OpenSSL's texts about a server's certificate, and what they mean. The first match counts."""

_UNTRUSTED = "CERTIFICATE_VERIFY_FAILED"
_ALERT = re.compile(
    r"alert[ _](?P<why>(bad|unsupported)[ _]certificate|certificate[ _](revoked|expired|unknown|required)|unknown[ _]ca"
    r"|access[ _]denied)",
    re.IGNORECASE,
)
_REASONS = {"certificate expired": "it has expired", "unknown ca": "the server does not know who signed it"}
_PLAIN = re.compile(r"WRONG_VERSION_NUMBER|RECORD_LAYER_FAILURE|UNKNOWN_PROTOCOL|PACKET_LENGTH_TOO_LONG|HTTP_REQUEST\b")
_TLS = re.compile(
    r"\\x15\\x03|plain HTTP request was sent to HTTPS port|HTTP request to an HTTPS server", re.IGNORECASE
)
_CLOSED = re.compile(
    r"Server disconnected|Remote end closed connection|UNEXPECTED_EOF|EOF occurred|Broken pipe|Connection reset"
    r"|\[None\]"
)


@dataclass(frozen=True, slots=True)
class TlsFields:
    """Where a user sets up TLS.

    ca: where the trusted authorities are given; empty if the well-known ones are trusted. give_ca: how to give others.
    certificate: where the client certificate is given; empty if there is none. give_certificate: how to give one.
    url: where the URL is given.
    """

    ca: str
    give_ca: str
    certificate: str
    give_certificate: str
    url: str


def tls_advice(text: str, fields: TlsFields, scheme: str = "") -> str:
    """What the error `text` of a connection means, and the fix; empty if it is not about TLS.

    scheme: of the URL, if the server has not answered yet. A connection that the server closes is then explained, too.
    """
    if _UNTRUSTED in text:
        return _untrusted(text, fields)
    if found := _ALERT.search(text):
        why = found["why"].lower().replace("_", " ")
        if not fields.certificate:
            return f"the server requires a client certificate: {fields.give_certificate}"
        return f"the server refuses {fields.certificate} ({_REASONS.get(why, why)}): put one there that it accepts"
    if _PLAIN.search(text):
        return f"the server speaks plain HTTP on this port: write http:// in {fields.url}, or the port for TLS"
    if _TLS.search(text):
        return f"the server speaks TLS on this port: write https:// in {fields.url}, or the port for plain HTTP"
    return _closed(fields, scheme) if _CLOSED.search(text) else ""


def _untrusted(text: str, fields: TlsFields) -> str:
    """What is wrong with the server's certificate."""
    signer = f"{fields.ca} is not the authority that" if fields.ca else "no well-known authority"
    trust = "put the right one there" if fields.ca else fields.give_ca
    matches = ((re.search(pattern, text, re.IGNORECASE), words) for pattern, words in _CERTIFICATE)
    found, words = next((found, words) for found, words in matches if found)
    why = found.groupdict().get("why", "").strip()
    return words.format(signer=signer, trust=trust, url=fields.url, why=why)


def _closed(fields: TlsFields, scheme: str) -> str:
    """What a server may mean that closes the connection without an answer, as some do instead of an alert."""
    if scheme == "http":
        return f"if the server speaks TLS on this port, write https:// in {fields.url}"
    if scheme == "https" and not fields.certificate:
        return f"if the server requires a client certificate, {fields.give_certificate}"
    return f"perhaps the server refuses {fields.certificate}" if scheme == "https" else ""
