"""An authority, and what brokers and token servers with a certificate of it show."""

from __future__ import annotations

import ssl

import pytest

from trimtab_testbed.servers.certificates import Authority


@pytest.fixture(scope="session")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="session")
def tls(authority: Authority) -> ssl.SSLContext:
    """Of a server that asks for no certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*authority.server("broker"))
    return context
