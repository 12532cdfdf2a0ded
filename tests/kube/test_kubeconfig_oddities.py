"""Kubeconfigs as people have them: what kubectl accepts works, and what it refuses gets an error that names the fix."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import re
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web

from trimtab_operator.kube.client import Api, RefusedError
from trimtab_operator.kube.errors import ConnectionSettingsError

V1, BETA = "client.authentication.k8s.io/v1", "client.authentication.k8s.io/v1beta1"
SECRET = "s3cr3t-t0k3n"


@pytest.fixture(autouse=True)
def _outside_a_pod(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)


def plugin(folder: Path, body: str, name: str = "plugin") -> str:
    """An executable shell script in `folder`."""
    file = folder / name
    file.write_text(f"#!/bin/sh\n{body}\n")
    file.chmod(0o755)
    return str(file)


def issued(status: dict[str, Any], version: str = V1, kind: str = "ExecCredential") -> str:
    """The shell command of a plugin that prints an ExecCredential."""
    return f"cat <<'END'\n{json.dumps({'apiVersion': version, 'kind': kind, 'status': status})}\nEND"


def exec_of(command: str, **fields: Any) -> dict[str, Any]:
    """A user with an exec plugin."""
    return {"exec": {"apiVersion": V1, "interactiveMode": "Never", "command": command, **fields}}


def text_of(user: dict[str, Any] | None, cluster: dict[str, Any], **parts: Any) -> str:
    """A kubeconfig of one context."""
    whole = {
        "current-context": "here",
        "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": cluster}],
        "users": [{"name": "u", "user": user}],
    }
    return json.dumps({**whole, **parts})


@asynccontextmanager
async def server(valid: str = "") -> AsyncIterator[tuple[str, list[str]]]:
    """An API server's URL, and the Authorization header of each request. valid: the only one it accepts, if given."""
    seen = list[str]()

    async def answer(request: web.Request) -> web.Response:
        seen.append(request.headers.get("Authorization", ""))
        known = not valid or seen[-1] == valid
        return web.json_response({}, status=200 if known else 401)

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}", seen
    finally:
        await runner.cleanup()


def written(file: Path, text: str) -> str:
    file.write_text(text)
    return str(file)


def sent(file: Path, user: dict[str, Any] | None, requests: int = 1, valid: str = "", **parts: Any) -> list[str]:
    """The Authorization headers of requests with a kubeconfig for `user`."""

    async def scenario() -> list[str]:
        async with server(valid) as (url, seen):
            async with Api.connect(written(file, text_of(user, {"server": url}, **parts))) as api:
                for _ in range(requests):
                    await api.read("/version")
            return seen

    return asyncio.run(scenario())


def refusal(file: Path, text: str | bytes, context: str | None = None) -> str:
    """The error for a kubeconfig."""

    async def scenario() -> None:
        async with Api.connect(str(file), context):
            pass

    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(ConnectionSettingsError) as caught:
        asyncio.run(scenario())
    assert SECRET not in str(caught.value)
    return str(caught.value)


TOKEN = {"token": "t"}
GIVEN = issued({"token": SECRET})
BASIC = f"Basic {base64.b64encode(b'ann:pw').decode()}"


@pytest.mark.parametrize(
    ("user", "header"),
    [
        ({"tokenFile": "lf"}, f"Bearer {SECRET}"),
        ({"tokenFile": "crlf"}, f"Bearer {SECRET}"),
        ({"tokenFile": "bom"}, f"Bearer {SECRET}"),
        ({"tokenFile": "./sub/../lf"}, f"Bearer {SECRET}"),
        ({"tokenFile": "lf", "token": "older"}, f"Bearer {SECRET}"),
        ({"tokenFile": "missing", "token": "t"}, "Bearer t"),
        ({"tokenFile": "empty", "token": "t"}, "Bearer t"),
        ({"token": "t\n"}, "Bearer t"),
        ({"username": "ann", "password": "pw"}, BASIC),
        ({"token": "t", **exec_of("no-such-plugin")}, "Bearer t"),
        ({"username": "ann", "password": "pw", **exec_of("no-such-plugin")}, BASIC),
        (exec_of("./plugin"), f"Bearer {SECRET}"),
        (exec_of("./beta", apiVersion=BETA, interactiveMode=None), f"Bearer {SECRET}"),
        (exec_of("./arguments", args=["a b"], env=[{"name": "MORE", "value": "c"}]), "Bearer a-b-c"),
        (exec_of("./loud"), f"Bearer {SECRET}"),
        (exec_of("plugin-of-the-path", interactiveMode="IfAvailable"), f"Bearer {SECRET}"),
        ({}, ""),
        (None, ""),
    ],
    ids=str,
)
def test_credentials_that_kubectl_accepts_are_sent(
    user: dict[str, Any] | None, header: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sub").mkdir()
    for name, content in {
        "lf": f"{SECRET}\n",
        "crlf": f"{SECRET}\r\n",
        "bom": f"\ufeff{SECRET}",
        "empty": "\n",
    }.items():
        (tmp_path / name).write_bytes(content.encode())
    plugin(tmp_path, GIVEN)
    plugin(tmp_path, issued({"token": SECRET}, BETA), "beta")
    plugin(
        tmp_path,
        'token=$(echo "$1-$MORE" | tr " " -)\n' + GIVEN.replace(SECRET, "$token").replace("'", ""),
        "arguments",
    )
    plugin(tmp_path, f"echo please sign in >&2\n{GIVEN}", "loud")
    plugin(tmp_path / "sub", GIVEN, "plugin-of-the-path")
    monkeypatch.setenv("PATH", f"{tmp_path / 'sub'}:{os.environ['PATH']}")
    assert sent(tmp_path / "config", user) == [header]


AUTHORITY = base64.b64encode(b"-----BEGIN CERTIFICATE-----").decode()
TLS = {"server": "https://h.example"}
PLAIN = {"server": "http://h.example"}
HINT = "install it from the shelf"


def with_user(user: dict[str, Any] | None, **parts: Any) -> str:
    return text_of(user, PLAIN, **parts)


def with_cluster(**cluster: Any) -> str:
    return text_of(TOKEN, {**TLS, **cluster})


def with_context(**context: Any) -> str:
    return text_of(TOKEN, PLAIN, contexts=[{"name": "here", "context": {"cluster": "c", "user": "u", **context}}])


@pytest.mark.parametrize(
    ("text", "told"),
    [
        # tokens
        (with_user({"tokenFile": "missing"}), "user 'u': tokenFile {folder}/missing can't be read: No such file"),
        (with_user({"tokenFile": "empty"}), "tokenFile holds no token: it is empty"),
        (with_user({"tokenFile": "lines"}), "a token is one line of ASCII"),
        (with_user({"token": f"{SECRET} {SECRET}"}), "token holds no token: a token is one line"),
        (with_user({"token": 12345}), "token must be a text: put it in quotes"),
        (with_user({"token": SECRET, "username": "ann"}), "it has a token and a username: remove one"),
        # exec plugins
        (
            with_user(exec_of("no-such-plugin", installHint=HINT)),
            f"exec plugin no-such-plugin is not on the PATH.*\n{HINT}",
        ),
        (with_user(exec_of("./missing", installHint=HINT)), f"{{folder}}/missing can't be run: No such file.*\n{HINT}"),
        (with_user(exec_of("./lines")), "lines can't be run: Permission denied"),
        (with_user(exec_of("./fails", installHint=HINT)), f"{{folder}}/fails failed with exit code 3.*\n{HINT}"),
        (with_user(exec_of("./junk")), "printed no ExecCredential in JSON"),
        (with_user(exec_of("./silent")), "printed no ExecCredential in JSON"),
        (with_user(exec_of("./kind")), "printed no ExecCredential in JSON"),
        (with_user(exec_of("./beta")), "apiVersion 'client.authentication.k8s.io/v1beta1', but apiVersion is .*/v1;"),
        (with_user(exec_of("./nothing")), "printed neither a token nor a client certificate"),
        (with_user(exec_of("./half")), "printed a client certificate without its key"),
        (with_user(exec_of("./number")), "output of .*number: token must be a text"),
        (with_user(exec_of("./late")), "expirationTimestamp that is no time"),
        (
            with_user(exec_of("./plugin", apiVersion="client.authentication.k8s.io/v1alpha1")),
            "must be .*/v1 or .*/v1beta1",
        ),
        (with_user(exec_of("./plugin", interactiveMode=None)), "must be Never, IfAvailable or Always"),
        (with_user(exec_of("./plugin", interactiveMode="Always")), "needs a terminal"),
        (with_user(exec_of("")), "it has no command"),
        (with_user(exec_of("./plugin", args=[5])), "args must be a list of texts"),
        (with_user(exec_of("./plugin", env=[{"value": "x"}])), "env must be a list of objects with name and value"),
        (with_user({"exec": "plugin"}), "exec must be an object"),
        # providers
        (with_user({"auth-provider": {"name": "gcp"}}), "auth-provider 'gcp' is not supported, as in kubectl"),
        (with_user({"auth-provider": {"name": "oidc"}, **exec_of("x")}), "it has exec and auth-provider: remove one"),
        (with_user({"auth-provider": {"name": "oidc"}}), "oidc: missing configuration|Expected key config"),
        # certificates
        (with_user({"client-certificate-data": AUTHORITY}), "a client-certificate without a key"),
        (with_user({"client-certificate": "missing"}), "client-certificate {folder}/missing can't be read"),
        (with_user({"client-certificate-data": "%", "client-key-data": "x"}), "client-certificate-data is not Base64"),
        (with_cluster(**{"certificate-authority-data": "n{o}"}), "certificate-authority-data is not Base64"),
        (with_cluster(**{"certificate-authority": "missing"}), "certificate-authority {folder}/missing can't be read"),
        (
            with_cluster(**{"certificate-authority": "lines", "certificate-authority-data": AUTHORITY}),
            "certificate-authority-data and certificate-authority are both set",
        ),
        (
            with_cluster(**{"certificate-authority-data": AUTHORITY, "insecure-skip-tls-verify": True}),
            "certificate-authority and insecure-skip-tls-verify: remove one",
        ),
        (with_cluster(**{"insecure-skip-tls-verify": "true"}), "must be true or false, without quotes"),
        (text_of({}, TLS), "it has no credentials"),
        (text_of(None, TLS), "it has no credentials"),
        # servers and proxies
        (with_cluster(server=""), "cluster 'c': it has no server"),
        (with_cluster(server="ftp://h.example"), "server is not a URL like https://HOST:PORT"),
        (with_cluster(server="https://h.example:99999"), "server is not a URL"),
        (with_cluster(server=f"https://ann:{SECRET}@h.example"), "server must have no user"),
        (with_cluster(server=f"https://h.example/?token={SECRET}"), "server must have no user, . and #"),
        (with_cluster(**{"proxy-url": "socks5://127.0.0.1:1080"}), "SOCKS proxy, which Trimtab does not support"),
        (with_cluster(**{"proxy-url": f"ann:{SECRET}@h"}), "proxy-url is not a URL like http://HOST:PORT"),
        # contexts
        (with_user(TOKEN, **{"current-context": ""}), "no current context; choose one with --context: here"),
        (with_user(TOKEN, **{"current-context": "gone"}), "context 'gone' is not .* --context: here"),
        (with_user(TOKEN, contexts=None), "context 'here' is not .* --context: \\({folder}/config has none"),
        (with_user(TOKEN, users=None), "context 'here': its user 'u' is not in the kubeconfig; there are: none"),
        (with_user(TOKEN, clusters=[]), "context 'here': its cluster 'c' is not in the kubeconfig; there are: none"),
        (with_context(user="w"), "its user 'w' is not in the kubeconfig; there are: u"),
        (with_context(cluster=None), "context 'here': it names no cluster"),
        (with_user(TOKEN, users=[{"name": "u", "user": TOKEN}] * 2), "users: two have the name 'u'"),
        (with_user(TOKEN, users=[{"name": 5, "user": TOKEN}]), "users: each needs a name in quotes"),
        (with_user(TOKEN, users=[{"user": TOKEN}]), "kubeconfig {folder}/config can't be read"),
        # files
        ("", "no current context; choose one with --context: \\({folder}/config has none"),
        ("\0\1\2", "{folder}/config can't be read"),
        (
            f"users:\n- token: {SECRET}: {SECRET}\n",
            "config can't be read: mapping values are not allowed here in line 2",
        ),
        ("- a\n", "it is no object of the kind Config"),
        ("kind: Pod\n", "it is no object of the kind Config"),
        ("[" * 5000, "it is not the YAML of a kubeconfig"),
    ],
    ids=lambda value: value[-60:] if isinstance(value, str) else None,
)
def test_a_kubeconfig_that_can_not_be_used_is_refused_with_the_fix(text: str, told: str, tmp_path: Path) -> None:
    (tmp_path / "empty").write_text(" \n")
    (tmp_path / "lines").write_text(f"{SECRET}\n{SECRET}\n")
    statuses = {
        "nothing": {}, "half": {"clientCertificateData": "x"}, "number": {"token": 5},
        "late": {"token": SECRET, "expirationTimestamp": "soon"},
    }  # fmt: skip
    for name, status in statuses.items():
        plugin(tmp_path, issued(status), name)
    plugin(tmp_path, GIVEN)
    plugin(tmp_path, f"echo {SECRET}; exit 3", "fails")
    plugin(tmp_path, f"echo {SECRET}", "junk")
    plugin(tmp_path, ":", "silent")
    plugin(tmp_path, issued({"token": SECRET}, kind="Status"), "kind")
    plugin(tmp_path, issued({"token": SECRET}, BETA), "beta")
    error = refusal(tmp_path / "config", text)
    folder = str(tmp_path)
    assert folder in error or "--context" in error
    assert re.search(told.replace("{folder}", folder), error), error


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_marks_and_line_ends_of_other_systems_change_nothing(encoding: str, end: str, tmp_path: Path) -> None:
    file = tmp_path / "config"
    text = yaml.safe_dump(json.loads(text_of(TOKEN, PLAIN)))
    file.write_bytes(text.replace("\n", end).encode(encoding))

    async def host() -> str:
        async with Api.connect(str(file)) as api:
            return api.host

    assert asyncio.run(host()) == "http://h.example"


@pytest.mark.parametrize(
    ("cluster", "host"),
    [
        ({"server": "h.example:6443"}, "http://h.example:6443"),
        ({"server": "h.example:6443", "insecure-skip-tls-verify": True}, "https://h.example:6443"),
        ({"server": "https://h.example/k8s/clusters/c-1/"}, "https://h.example/k8s/clusters/c-1"),
        ({"server": "https://[::1]:6443", "tls-server-name": "kubernetes"}, "https://[::1]:6443"),
        ({"server": "http://h.example", "proxy-url": "http://ann:pw@127.0.0.1:3128"}, "http://h.example"),
    ],
)
def test_servers_are_read_as_kubectl_reads_them(cluster: dict[str, Any], host: str, tmp_path: Path) -> None:
    file = tmp_path / "config"
    file.write_text(text_of(TOKEN, cluster))

    async def scenario() -> dict[str, Any]:
        async with Api.connect(str(file)) as api:
            return await api.credentials()

    credentials = asyncio.run(scenario())
    assert credentials["server"] == host
    assert credentials["proxy_url"] == cluster.get("proxy-url")


def test_a_plugin_learns_of_the_cluster_only_if_it_asks(tmp_path: Path) -> None:
    command = plugin(tmp_path, f'echo "$KUBERNETES_EXEC_INFO" > {tmp_path}/told\n{GIVEN}')
    file = tmp_path / "config"
    sent(file, exec_of(command))
    assert "cluster" not in json.loads((tmp_path / "told").read_text())["spec"]
    extension = {"name": "client.authentication.k8s.io/exec", "extension": {"audience": "x"}}
    cluster = {**PLAIN, "tls-server-name": "k", "certificate-authority-data": AUTHORITY, "extensions": [extension]}
    file.write_text(text_of(exec_of(command, provideClusterInfo=True), cluster))

    async def connect() -> None:
        async with Api.connect(str(file)):
            pass

    asyncio.run(connect())
    told = json.loads((tmp_path / "told").read_text())
    assert (told["apiVersion"], told["kind"], told["spec"]["interactive"]) == (V1, "ExecCredential", False)
    assert told["spec"]["cluster"] == {
        "server": "http://h.example",
        "tls-server-name": "k",
        "certificate-authority-data": AUTHORITY,
        "config": {"audience": "x"},
    }


def test_a_plugin_is_asked_again_when_its_credentials_expire(tmp_path: Path) -> None:
    soon = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() - 3600))
    runs = tmp_path / "runs"
    numbered = GIVEN.replace(SECRET, "run-$(($(wc -l < runs)))").replace("'", "")
    command = plugin(tmp_path, f"cd {tmp_path}; echo run >> runs\n{numbered}")
    assert sent(tmp_path / "config", exec_of(command), valid="Bearer run-2") == ["Bearer run-1", "Bearer run-2"]
    runs.unlink()
    expired = numbered.replace('"status": {', f'"status": {{"expirationTimestamp": "{soon}", ')
    plugin(tmp_path, f"cd {tmp_path}; echo run >> runs\n{expired}")
    assert sent(tmp_path / "config", exec_of(command), requests=3) == ["Bearer run-1"] * 3


def test_a_plugin_that_fails_later_is_named_with_the_refusal(tmp_path: Path) -> None:
    command = plugin(tmp_path, f"test -e {tmp_path}/ran && exit 1; touch {tmp_path}/ran\n{GIVEN}")
    with pytest.raises(RefusedError, match=f"401.*the exec plugin {command} failed with exit code 1"):
        sent(tmp_path / "config", exec_of(command), valid="Bearer other")


def test_files_that_are_missing_among_several_are_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "config"
    file.write_text(text_of(TOKEN, PLAIN))
    monkeypatch.setenv("KUBECONFIG", f"{tmp_path}/missing::{file}:{tmp_path}")

    async def host() -> str:
        async with Api.connect() as api:
            return api.host

    assert asyncio.run(host()) == "http://h.example"


def test_a_context_that_does_not_exist_is_told_with_those_that_do(tmp_path: Path) -> None:
    error = refusal(tmp_path / "config", with_user(TOKEN), "nope")
    assert error == "context 'nope' is not in the kubeconfig; choose one with --context: here"
