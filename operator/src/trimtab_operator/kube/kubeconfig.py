"""Reads kubeconfig files by kubectl's rules (client-go's `clientcmd`): which server, and with which credentials.

Several files are joined: the first one that sets a value or has an entry of that name counts. Relative paths start at
the folder of the file that names them. A `tokenFile` counts before a `token`, and an exec plugin runs only if there are
no other credentials. All errors are `ConnectionSettingsError`. None shows a secret.
"""

from __future__ import annotations

import base64
import binascii
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml

from trimtab_operator.kube.errors import ConnectionSettingsError
from trimtab_strategies.model import some

_KINDS = ("contexts", "clusters", "users")
_LISTED = 20
"""Maximum number of contexts that an error lists."""

_SENDABLE = re.compile(r"[!-~]+")
"""What a bearer token may consist of in a header."""


@dataclass(frozen=True, slots=True)
class Impersonation:
    """The user and the groups to impersonate. We need the permission to impersonate them."""

    user: str
    groups: tuple[str, ...] = ()

    @property
    def headers(self) -> list[tuple[str, str]]:
        """Headers of each request."""
        return [("Impersonate-User", self.user), *(("Impersonate-Group", group) for group in self.groups)]


@dataclass(frozen=True, slots=True)
class Entry:
    """A cluster, user or context. label: names it in errors. file: where it stands."""

    label: str
    file: str
    values: Mapping[str, Any]

    def wrong(self, problem: str) -> ConnectionSettingsError:
        """The error for this entry."""
        return ConnectionSettingsError(f"{self.file}: {self.label}: {problem}")

    def text(self, field: str) -> str:
        """A field's text, empty if it is not set."""
        value = self.values.get(field)
        if value is not None and not isinstance(value, str):
            raise self.wrong(f"{field} must be a text: put it in quotes")
        return value or ""

    def flag(self, field: str) -> bool:
        """Whether a field is true."""
        value = self.values.get(field)
        if value is not None and not isinstance(value, bool):
            raise self.wrong(f"{field} must be true or false, without quotes")
        return bool(value)

    def within(self, path: str) -> str:
        """A path that may be relative to the file's folder."""
        return os.path.abspath(os.path.join(os.path.dirname(self.file), path))  # noqa: PTH100, PTH118, PTH120

    def content(self, field: str) -> bytes:
        """The content of the file that a field names."""
        path = self.within(self.text(field))
        try:
            return Path(path).read_bytes()
        except OSError as error:
            raise self.wrong(f"{field} {path} can't be read: {error.strerror}") from error

    def pem(self, name: str) -> bytes:
        """The certificate or key of ``name-data`` (in Base64) or of the file `name`; empty if neither is set."""
        data = f"{name}-data"
        if not (text := self.text(data)):
            return self.content(name) if self.text(name) else b""
        if self.text(name):
            raise self.wrong(f"{data} and {name} are both set: remove one")
        try:
            return base64.b64decode("".join(text.split()), validate=True)
        except (binascii.Error, ValueError) as error:
            raise self.wrong(f"{data} is not Base64: write the PEM file in Base64, on one line") from error

    def token(self) -> str:
        """The bearer token, empty if there is none. The last content of `tokenFile` counts before `token`."""
        if not self.text("tokenFile"):
            return self.sendable(self.text("token"), "token") if self.text("token") else ""
        try:
            return self.sendable(self.content("tokenFile").decode("utf-8-sig", "replace"), "tokenFile")
        except ConnectionSettingsError:
            if not self.text("token"):
                raise
            return self.sendable(self.text("token"), "token")

    def sendable(self, token: str, source: str) -> str:
        """`token` without the white space around it. source: where it comes from, for the error if it is no token."""
        if not (stripped := token.strip()):
            raise self.wrong(f"{source} holds no token: it is empty")
        if not _SENDABLE.fullmatch(stripped):
            raise self.wrong(f"{source} holds no token: a token is one line of ASCII, without spaces")
        return stripped


class Kubeconfig:
    """The joined files of a path, which may name several, as in KUBECONFIG."""

    def __init__(self, path: str) -> None:
        self.path = path
        files = {part: _content(part) for part in filter(os.path.isfile, path.split(os.pathsep))}
        self._entries: dict[str, dict[str, Entry]] = {kind: {} for kind in _KINDS}
        for part, text in files.items():
            for kind, entries in self._entries.items():
                with _readable(part):
                    entries.update({name: e for name, e in _entries(part, text, kind).items() if name not in entries})
        set_in = [(part, name) for part, text in files.items() if (name := text.get("current-context"))]
        self.current = Entry("current-context", *_first(set_in)).text("name") if set_in else ""

    @classmethod
    def found(cls, given: str | None) -> Kubeconfig:
        """The kubeconfig that is `given`, or else that of KUBECONFIG, or else ~/.kube/config."""
        path = given or os.environ.get("KUBECONFIG") or str(Path.home() / ".kube" / "config")
        if given is not None and not Path(path).is_file():
            raise ConnectionSettingsError(f"kubeconfig {path} does not exist")
        if not any(Path(part).is_file() for part in path.split(os.pathsep)):
            raise ConnectionSettingsError(
                f"no Kubernetes API server found: this is not a pod, and there is no {path}; "
                "set KUBECONFIG or --kubeconfig"
            )
        return cls(path)

    @cached_property
    def namespaces(self) -> dict[str, str]:
        """The namespace of each context (empty if none) by the context's name."""
        return {name: entry.text("namespace") for name, entry in self._entries["contexts"].items()}

    def context(self, name: str | None) -> Entry:
        """The context of that name, or else the current one."""
        wanted = name or self.current
        if entry := self._entries["contexts"].get(wanted):
            return entry
        problem = f"context {wanted!r} is not in the kubeconfig" if wanted else "the kubeconfig has no current context"
        there = some(list(self.namespaces), _LISTED) or f"({self.path} has none)"
        raise ConnectionSettingsError(f"{problem}; choose one with --context: {there}")

    def chosen(self, context: Entry) -> tuple[Entry, Entry]:
        """The cluster and the user of a context. The user is empty if the context names none."""
        return self._of(context, "cluster"), self._of(context, "user")

    def _of(self, context: Entry, kind: str) -> Entry:
        name, entries = context.text(kind), self._entries[f"{kind}s"]
        if not name and kind == "user":
            return Entry("no user", context.file, {})
        if name in entries:
            return entries[name]
        missing = f"its {kind} {name!r} is not in the kubeconfig" if name else f"it names no {kind}"
        raise context.wrong(f"{missing}; there are: {some(list(entries), _LISTED) or 'none'}")


def acting_as_of(user: Entry) -> Impersonation | None:
    """The identity that a user acts as. Raises `ConnectionSettingsError` if we can't do so."""
    name, groups = user.values.get("as"), user.values.get("as-groups") or ()
    refused = [field for field in ("as-uid", "as-user-extra") if user.values.get(field)]
    if refused:
        raise user.wrong(f"it sets {refused[0]}, which Trimtab does not support; use --as")
    if not isinstance(groups, list | tuple) or not all(isinstance(one, str) for one in (name or "", *groups)):
        raise user.wrong("as must be a text, and as-groups a list of texts")
    if groups and not name:
        raise user.wrong("it sets as-groups, but not as: name a user, too")
    return Impersonation(name, tuple(groups)) if name else None


def server_of(cluster: Entry) -> str:
    """The server's URL. Without a scheme it is http, or https if the cluster has settings of TLS, as in kubectl."""
    server = cluster.text("server").strip()
    if not server:
        raise cluster.wrong("it has no server: name the URL of the API server")
    if "://" not in server:
        secured = cluster.flag("insecure-skip-tls-verify") or cluster.pem("certificate-authority")
        server = f"{'https' if secured else 'http'}://{server}"
    return _url(cluster, "server", server, ("http", "https"), "https://HOST:PORT")


def proxy_of(cluster: Entry) -> str:
    """The URL of the proxy, empty if there is none."""
    if not (proxy := cluster.text("proxy-url")):
        return ""
    if proxy.startswith(("socks5://", "socks5h://")):
        raise cluster.wrong("proxy-url names a SOCKS proxy, which Trimtab does not support: name an HTTP proxy")
    return _url(cluster, "proxy-url", proxy, ("http", "https"), "http://HOST:PORT", user=True)


def _url(cluster: Entry, field: str, url: str, schemes: Sequence[str], like: str, *, user: bool = False) -> str:
    """`url`, checked. user: whether it may hold a user and a password. No error shows it, because of its password."""
    try:
        parts = urlsplit(url)
        usable = parts.scheme in schemes and parts.hostname and (parts.port is None or parts.port > 0)
    except ValueError:
        usable = False
    if not usable:
        raise cluster.wrong(f"{field} is not a URL like {like}")
    if parts.query or parts.fragment or (parts.username is not None and not user):
        raise cluster.wrong(f"{field} must have no user, ? and #: write it like {like}, and credentials at the user")
    return url.rstrip("/")


def _first(found: Sequence[tuple[str, object]]) -> tuple[str, Mapping[str, Any]]:
    part, name = found[0]
    return part, {"name": name}


def _entries(part: str, text: Mapping[str, Any], kind: str) -> dict[str, Entry]:
    """The entries of one file by name. Raises `ConnectionSettingsError` for a name that two of them have."""
    found = dict[str, Entry]()
    singular = kind.removesuffix("s")
    for one in text.get(kind) or ():
        name, values = one["name"], one.get(singular) or {}
        if not isinstance(name, str) or not isinstance(values, dict):
            raise ConnectionSettingsError(f"{part}: {kind}: each needs a name in quotes, and fields below {singular}")
        if name in found:
            raise ConnectionSettingsError(f"{part}: {kind}: two have the name {name!r}: rename or remove one")
        found[name] = Entry(f"{singular} {name!r}", part, values)
    return found


def _content(part: str) -> dict[str, Any]:
    """The content of one file, empty if it has none."""
    with _readable(part):
        content = yaml.safe_load(Path(part).read_bytes()) or {}
    if not isinstance(content, dict) or content.get("kind", "Config") != "Config":
        raise ConnectionSettingsError(f"kubeconfig {part} can't be read: it is no object of the kind Config")
    return content


@contextmanager
def _readable(part: str) -> Iterator[None]:
    """Raise `ConnectionSettingsError` if the block finds that a kubeconfig is none."""
    try:
        yield
    except yaml.MarkedYAMLError as error:  # its text quotes the line, which may hold a token
        at = f" in line {error.problem_mark.line + 1}" if error.problem_mark else ""
        raise ConnectionSettingsError(f"kubeconfig {part} can't be read: {error.problem}{at}") from error
    except (yaml.YAMLError, OSError, RecursionError, KeyError, TypeError, ValueError, AttributeError) as error:
        what = str(error) if isinstance(error, OSError) else "it is not the YAML of a kubeconfig"
        raise ConnectionSettingsError(f"kubeconfig {part} can't be read: {what}") from error
