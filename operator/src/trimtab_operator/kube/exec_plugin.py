"""Runs the exec plugin of a kubeconfig, which prints short-lived credentials, as kubectl does.

A plugin that is missing, fails, or prints something else stops the connection: without credentials every request would
be that of an anonymous user. What the plugin writes to its standard error goes to ours. Its output holds secrets, and
is never shown.
"""

from __future__ import annotations

import asyncio
import base64
import json
import math
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from trimtab_operator.kube.errors import ConnectionSettingsError
from trimtab_operator.kube.kubeconfig import Entry, proxy_of

_GROUP = "client.authentication.k8s.io"
_VERSIONS = (f"{_GROUP}/v1", f"{_GROUP}/v1beta1")
_MODES = ("Never", "IfAvailable", "Always")


@dataclass(frozen=True, slots=True)
class Issued:
    """Credentials. user: fields of a kubeconfig's user. expires: epoch seconds, infinite if unknown."""

    user: Mapping[str, str]
    expires: float


@dataclass(frozen=True, slots=True)
class ExecPlugin:
    """The plugin of a user, checked. env: names and values to add to the environment."""

    user: Entry
    command: str
    arguments: Sequence[str]
    env: Mapping[str, str]
    version: str
    mode: str
    hint: str
    told_cluster: bool

    @classmethod
    def of(cls, user: Entry) -> ExecPlugin | None:
        """The plugin of `user`; None if it has none. Raises `ConnectionSettingsError` for one that can't run."""
        values = user.values.get("exec")
        if values is None:
            return None
        if not isinstance(values, dict):
            raise user.wrong("exec must be an object with command and apiVersion")
        spec = Entry(f"{user.label}: exec", user.file, values)
        if not (command := spec.text("command")):
            raise spec.wrong("it has no command: name the plugin")
        if (version := spec.text("apiVersion")) not in _VERSIONS:
            raise spec.wrong(f"apiVersion {version!r} of {command} is not supported: it must be {_either(_VERSIONS)}")
        mode = spec.text("interactiveMode") or ("" if version == _VERSIONS[0] else "IfAvailable")
        if mode not in _MODES:
            raise spec.wrong(f"interactiveMode {mode!r} of {command} must be {_either(_MODES)}")
        arguments = _texts(spec, "args", values.get("args"))
        pairs = values.get("env") or ()
        if not isinstance(pairs, list | tuple) or not all(isinstance(one, dict) and one.get("name") for one in pairs):
            raise spec.wrong("env must be a list of objects with name and value")
        names = _texts(spec, "env", [one["name"] for one in pairs])
        env = dict(zip(names, _texts(spec, "env", [one.get("value") or "" for one in pairs]), strict=True))
        if os.sep in command:
            command = spec.within(command)
        hint, told = spec.text("installHint").strip(), spec.flag("provideClusterInfo")
        return cls(user, command, arguments, env, version, mode, hint, told)

    async def run(self, cluster: Entry, server: str) -> Issued:
        """Credentials for `cluster`. Raises `ConnectionSettingsError`, which names the plugin and its `installHint`."""
        terminal = sys.stdin is not None and sys.stdin.isatty()
        if self.mode == "Always" and not terminal:
            raise self._failed("needs a terminal (interactiveMode is Always), and there is none")
        interactive = terminal and self.mode != "Never"
        asked: dict[str, Any] = {"interactive": interactive}
        if self.told_cluster:
            asked["cluster"] = _described(cluster, server)
        info = {"apiVersion": self.version, "kind": "ExecCredential", "spec": asked}
        env = {**os.environ, **self.env, "KUBERNETES_EXEC_INFO": json.dumps(info)}
        return self._issued(await self._output(env, None if interactive else asyncio.subprocess.DEVNULL))

    async def _output(self, env: Mapping[str, str], stdin: int | None) -> bytes:
        program = self.command if os.sep in self.command else shutil.which(self.command)
        if program is None:
            raise self._failed("is not on the PATH")
        try:
            process = await asyncio.create_subprocess_exec(
                program, *self.arguments, env=env, stdin=stdin, stdout=asyncio.subprocess.PIPE
            )
        except (OSError, ValueError) as error:
            raise self._failed(f"can't be run: {getattr(error, 'strerror', None) or error}") from error
        try:
            output, _ = await process.communicate()
        except BaseException:
            with suppress(ProcessLookupError):
                process.kill()
            raise
        if process.returncode:
            raise self._failed(f"failed with exit code {process.returncode}")
        return output

    def _issued(self, output: bytes) -> Issued:
        """The credentials in a plugin's output."""
        try:
            printed = json.loads(output)
        except (ValueError, RecursionError):
            printed = None
        if not isinstance(printed, dict) or printed.get("kind") != "ExecCredential":
            raise self._failed("printed no ExecCredential in JSON")
        if (version := printed.get("apiVersion")) != self.version:
            raise self._failed(f"printed an ExecCredential of apiVersion {version!r}, but apiVersion is {self.version}")
        status = printed.get("status")
        if not isinstance(status, dict):
            raise self._failed("printed an ExecCredential without a status")
        found = Entry(f"{self.user.label}: the output of {self.command}", self.user.file, status)
        token, certificate, key = map(found.text, ("token", "clientCertificateData", "clientKeyData"))
        if bool(certificate) != bool(key):
            raise self._failed("printed a client certificate without its key, or a key without its certificate")
        if not token and not certificate:
            raise self._failed("printed neither a token nor a client certificate")
        user = {"token": found.sendable(token, "token")} if token else {}
        if certificate:
            user |= {"client-certificate-data": _base64(certificate), "client-key-data": _base64(key)}
        return Issued(user, self._expiry(found.text("expirationTimestamp")))

    def _expiry(self, text: str) -> float:
        if not text:
            return math.inf
        try:
            return datetime.fromisoformat(text).timestamp()
        except ValueError as error:
            raise self._failed("printed an expirationTimestamp that is no time") from error

    def _failed(self, problem: str) -> ConnectionSettingsError:
        hint = f"\n{self.hint}" if self.hint else ""
        return self.user.wrong(f"the exec plugin {self.command} {problem}; without it there are no credentials{hint}")


def _described(cluster: Entry, server: str) -> dict[str, Any]:
    """What a plugin is told of the cluster if `provideClusterInfo` is set."""
    authority = base64.b64encode(cluster.pem("certificate-authority")).decode()
    told = {"tls-server-name": cluster.text("tls-server-name"), "proxy-url": proxy_of(cluster)}
    told |= {"certificate-authority-data": authority}
    insecure = {"insecure-skip-tls-verify": True} if cluster.flag("insecure-skip-tls-verify") else {}
    extensions = cluster.values.get("extensions") or ()
    own = [one.get("extension") for one in extensions if isinstance(one, dict) and one.get("name") == f"{_GROUP}/exec"]
    config = {"config": own[0]} if own else {}
    return {"server": server, **{name: text for name, text in told.items() if text}, **insecure, **config}


def _texts(spec: Entry, field: str, values: object) -> list[str]:
    """A list of texts. Raises `ConnectionSettingsError` for anything else."""
    if not isinstance(values := values or [], list) or not all(isinstance(one, str) for one in values):
        raise spec.wrong(f"{field} must be a list of texts: put each in quotes")
    return values


def _base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def _either(words: Sequence[str]) -> str:
    return f"{', '.join(words[:-1])} or {words[-1]}"
