"""Files and command-line secrets: no other user can read them."""

from __future__ import annotations

import base64
import json
import ssl
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from trimtab_pipeline.api import Credentials
from trimtab_pipeline.prometheus.connections import tls_context
from trimtab_pipeline.spark.session import Scratch
from trimtab_pipeline.spark.settings import SparkSettings
from trimtab_testbed.servers.certificates import Authority

TOKEN = "canary-9c31aa=="

_CONNECT = """
import asyncio, pathlib, sys, tempfile
from trimtab_operator.kube.connection import Connection
async def show():
    connection = await Connection.open(sys.argv[1], None)
    print(*sorted({oct(p.stat().st_mode & 0o777) for p in pathlib.Path(tempfile.gettempdir()).iterdir()}))
    await connection.close()
asyncio.run(show())
"""


def mode(path: Path | str) -> int:
    return stat.S_IMODE(Path(path).stat().st_mode)


def test_a_client_key_is_in_a_file_of_our_own_for_a_moment_only(
    authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: dict[str, int] = {}
    load = ssl.SSLContext.load_cert_chain

    def watched(self: ssl.SSLContext, path: str, *rest: Any, **more: Any) -> None:
        seen[path] = mode(path)
        load(self, path, *rest, **more)

    monkeypatch.setattr(ssl.SSLContext, "load_cert_chain", watched)
    certificate, key = (path.read_text() for path in authority.client("me"))
    tls_context(Credentials(certificate=certificate, key=key))
    assert list(seen.values()) == [0o600]
    assert not [path for path in seen if Path(path).exists()]


def test_no_one_else_may_look_into_sparks_folder(tmp_path: Path) -> None:
    scratch = Scratch(tmp_path)
    try:
        assert mode(scratch.folder) == 0o700
    finally:
        scratch.remove()


def test_keys_inside_a_kubeconfig_are_in_files_of_our_own_and_gone_at_the_end(
    authority: Authority, tmp_path: Path
) -> None:
    certificate, key = authority.client("me")
    ca, crt, pem = (base64.b64encode(p.read_bytes()).decode() for p in (authority.certificate, certificate, key))
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:1", "certificate-authority-data": ca}}],
        "users": [{"name": "u", "user": {"client-certificate-data": crt, "client-key-data": pem}}],
    }
    kubeconfig, temporary = tmp_path / "kubeconfig", tmp_path / "temporary"
    kubeconfig.write_text(json.dumps(config))
    temporary.mkdir()
    command = [sys.executable, "-c", _CONNECT, str(kubeconfig)]
    done = subprocess.run(command, env={"TMPDIR": str(temporary)}, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["0o600"]
    assert not list(temporary.iterdir())


def test_the_token_of_a_connect_server_is_not_reported() -> None:
    """Its client quotes what it can't read of the address, and a token that ends in = it can't read."""
    from pyspark.errors import PySparkException  # noqa: PLC0415  (a second, for this test alone)
    from pyspark.sql.connect.client import DefaultChannelBuilder  # noqa: PLC0415  (as above)

    from trimtab_pipeline.spark.outcomes import as_source_error, described  # noqa: PLC0415  (as above)

    with pytest.raises(PySparkException, match="canary") as caught:
        DefaultChannelBuilder(f"sc://spark:15002/;token={TOKEN};x=y")
    assert isinstance(caught.value, Exception)
    assert "token=***" in described(caught.value)
    assert "canary" not in described(caught.value) + str(as_source_error(caught.value))
    with pytest.raises(ValueError, match=r"token=\*\*\*' must be"):
        SparkSettings(f"Sc://spark/;token={TOKEN}")
