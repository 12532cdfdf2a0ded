"""The allow-list of URLs that a policy may name, as patterns from the administrator.

Without it, any author of a policy could make the operator connect to any server that it can reach, such as a cloud's
metadata service or a database on the pod's loopback, and read the beginning of the answer in the policy's status.
A pattern is ``[scheme://]host[:port]``:

    scheme  http or https; both if absent
    host    a name or an address, where ``*`` stands for one or more characters, dots included; ``[::1]`` for IPv6
    port    a number, or ``*`` for any; any if absent

The URL that is checked is the URL that is used: it is parsed, compared, and built again from its parts. If no pattern
allows a short name of a Service as it is written, the name is completed and compared again. For a policy in namespace
``messaging``, ``prometheus`` becomes ``prometheus.messaging.svc``, and ``prometheus.monitoring`` becomes
``prometheus.monitoring.svc``. Trimtab completes the name itself, because a resolver would also search domains outside
of the cluster.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from ipaddress import AddressValueError, IPv4Address, IPv6Address
from typing import Self
from urllib.parse import SplitResult, urlsplit

FLAG = "--allow-url"
"""The option with which the administrator sets patterns."""
SERVICES = ("*.svc", "*.svc.cluster.local")
"""The default patterns: Services of the cluster."""

_PORTS = {"http": 80, "https": 443}
_LAST_PORT = 65_535
_LABEL = r"[a-z0-9_]([-a-z0-9_]{0,61}[a-z0-9_])?"
_NAME = re.compile(rf"{_LABEL}(\.{_LABEL})*")
_SHORT = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)?")
_NUMBER = re.compile(r"([0-9]+|0x[0-9a-f]*)")
_PATH = re.compile(r"[A-Za-z0-9._~!$&'()*+,;=:@%/-]*")
_BARE = re.compile(r"(?!https?[:/])[A-Za-z0-9._-]+(:[0-9]+)?(/.*)?")
_PATTERN = re.compile(r"(?:(?P<scheme>[a-z]+)://)?(?P<host>\[[0-9a-f:.]+\]|[-a-z0-9_.*]+)(?::(?P<port>[0-9]+|\*))?")


class BadPatternError(ValueError):
    """An invalid pattern. The text names it and gives examples."""


class RefusedUrlError(ValueError):
    """A URL that is not allowed. The text says why and what to do, without the URL's user name."""


@dataclass(frozen=True, slots=True)
class Address:
    """A parsed URL. host: lower case, without a final dot; IPv6 in brackets. path: as written."""

    scheme: str
    host: str
    port: int
    path: str

    def __str__(self) -> str:
        port = "" if self.port == _PORTS[self.scheme] else f":{self.port}"
        return f"{self.scheme}://{self.host}{port}{self.path}"

    def completed(self, namespace: str) -> Address | None:
        """Complete the short name of a Service, as seen from `namespace`; None for any other host."""
        if _SHORT.fullmatch(self.host) is None:
            return None
        host = self.host if "." in self.host else f"{self.host}.{namespace}"
        return replace(self, host=f"{host}.svc")


@dataclass(frozen=True, slots=True)
class UrlPattern:
    """One pattern. scheme: empty for both. port: 0 for any."""

    scheme: str
    host: str
    port: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse a pattern. Raises `BadPatternError`."""
        found = _PATTERN.fullmatch(text.lower())
        if found is None or (found["scheme"] or "http") not in _PORTS:
            raise BadPatternError(f"{text!r} must look like *.svc, https://mimir.example.com or http://127.0.0.1:*")
        port = 0 if found["port"] in {None, "*"} else int(found["port"])
        if found["port"] not in {None, "*"} and not 0 < port <= _LAST_PORT:
            raise BadPatternError(f"{text!r}: port {found['port']} must be 1 to {_LAST_PORT}, or * for any")
        try:
            host = found["host"] if "*" in found["host"] else canonical_host(found["host"])
        except ValueError as error:
            raise BadPatternError(f"{text!r}: {error}") from None
        return cls(found["scheme"] or "", host, port)

    def __str__(self) -> str:
        scheme, port = self.scheme and f"{self.scheme}://", self.port and f":{self.port}"
        return f"{scheme}{self.host}{port or ''}"

    def matches(self, address: Address) -> bool:
        """Whether the pattern allows `address`."""
        glob = ".+".join(re.escape(part) for part in self.host.split("*"))
        return (
            self.scheme in {"", address.scheme}
            and self.port in {0, address.port}
            and re.fullmatch(glob, address.host) is not None
        )


@dataclass(frozen=True, slots=True)
class AllowedUrls:
    """The administrator's allow-list.

    strangers: also allow other URLs if no Secret is sent to them. This is for `trimtab plan`: it connects from the
    user's machine, but reads the cluster's Secrets.
    """

    patterns: Sequence[UrlPattern]
    strangers: bool = False

    @classmethod
    def of(cls, texts: Iterable[str], *, strangers: bool = False) -> Self:
        """Parse patterns; default is `SERVICES`. Raises `BadPatternError`."""
        return cls(tuple(map(UrlPattern.parse, tuple(texts) or SERVICES)), strangers)

    def admit(self, url: str, namespace: str, *, secrets: bool) -> str:
        """The URL to use for a policy of `namespace` that names `url`. Raises `RefusedUrlError`.

        secrets: whether contents of a Secret are sent with the request.
        """
        address = parse(url)
        for meant in filter(None, (address, address.completed(namespace))):
            if any(pattern.matches(meant) for pattern in self.patterns):
                return str(meant)
        if self.strangers and not secrets:
            return str(address)
        what = "that may be sent a Secret" if self.strangers else "that policies may name"
        raise RefusedUrlError(
            f"{address} is not among the URLs {what} ({', '.join(map(str, self.patterns))}); "
            f"name another one, or have the administrator add it: {FLAG} {UrlPattern('', address.host, address.port)}"
        )


SERVICES_ALONE = AllowedUrls.of(())
"""The default allow-list."""


def parse(url: str) -> Address:
    """Parse `url`. Raises `RefusedUrlError` if it is not a URL, or if two programs might parse it differently."""
    if "://" not in url:
        shown = safe_text(url)
        like = f"http://{shown} or https://{shown}" if _BARE.fullmatch(shown) else "http://HOST:PORT"
        raise RefusedUrlError(f"the url has no scheme; write {like}")
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:  # its text may hold a password
        raise RefusedUrlError(
            f"the url can't be read: its port must be 1 to {_LAST_PORT}, and an IPv6 address must be in brackets"
        ) from None
    if problem := _problem(parts, url, port):
        raise RefusedUrlError(problem)
    try:
        host = canonical_host(f"[{parts.hostname}]" if ":" in (parts.hostname or "") else parts.hostname or "")
    except ValueError as error:
        raise RefusedUrlError(f"the url's {error}") from None
    return Address(parts.scheme, host, port or _PORTS[parts.scheme], parts.path)


def _problem(parts: SplitResult, url: str, port: int | None) -> str:
    """What is wrong with a URL, except for its host; empty if nothing is."""
    if parts.scheme not in _PORTS:
        return f"the url's scheme {parts.scheme!r} must be http or https"
    if "@" in parts.netloc:
        return "the url holds a user name; leave it out, and give it as credentials"
    if "?" in url or "#" in url:
        why = "queries are added to its path"
        return f"the url holds ? or #; leave out what follows, and write {safe_text(url)}: {why}"
    if _PATH.fullmatch(parts.path) is None or re.search(r"[\s\\]", url):
        return f"the url's path {parts.path!r} has characters that no path may have; write them as %XX"
    if port == 0:
        return f"the url's port 0 must be 1 to {_LAST_PORT}"
    return ""


def safe_text(url: str) -> str:
    """`url` for a message: without a user, a password, and all after ``?`` or ``#``, which may hold a token."""
    plain, *after = re.split(r"[?#]", url, maxsplit=1)
    scheme, mark, rest = plain.partition("://") if "://" in plain else ("", "", plain)
    if after and "@" in after[0]:  # the ? may be part of a password
        return f"{scheme}{mark}..."
    return f"{scheme}{mark}{rest.rpartition('@')[2]}"


def canonical_host(text: str) -> str:
    """The canonical form of a host: lower case, without a final dot, addresses as the standard library writes them.

    Raises `ValueError` if it isn't a host name, and for unusual forms of an address (``0x7f.1``, ``2130706433``), which
    some resolvers accept and which would bypass the allow-list.
    """
    if text.startswith("["):
        try:
            address = IPv6Address(text[1:-1])
        except AddressValueError:
            raise ValueError(f"host {text!r} is not an IPv6 address") from None
        if address.scope_id is not None:
            raise ValueError(f"host {text!r} names a network interface; leave out what follows %")
        return f"[{address}]"
    host = text.lower().removesuffix(".")
    if _NUMBER.fullmatch(host.rpartition(".")[2]):
        try:
            return str(IPv4Address(host))
        except AddressValueError:
            raise ValueError(f"host {text!r} is an odd spelling of an IPv4 address; write it as 10.0.0.1") from None
    if _NAME.fullmatch(host) is None or len(host) > 253:  # noqa: PLR2004  (the longest name that DNS carries)
        raise ValueError(f"host {text!r} is not a host name: use letters, digits, dashes and dots (xn-- for others)")
    return host
