"""What a connection to the API server sends, without a server that would have to be there."""

from __future__ import annotations

from typing import Any

from trimtab_operator.kube.client import Api


async def credentials_of(api: Api) -> dict[str, Any]:
    """The server, the TLS files, the proxy and the token, read again as after an answer 401."""
    connection = api._connection
    await connection.renew()
    settings, headers = connection._configuration, dict[str, str]()
    await connection._client.update_params_for_auth(headers, [], ["BearerToken"], "/", "GET", None)
    scheme, _, token = headers.get("authorization", "").partition(" ")
    return {
        "server": connection.host,
        "ca_path": settings.ssl_ca_cert,
        "insecure": not settings.verify_ssl,
        "scheme": scheme.capitalize() or None,
        "token": token or None,
        "certificate_path": settings.cert_file,
        "private_key_path": settings.key_file,
        "proxy_url": settings.proxy,
    }


def impersonation_of(api: Api) -> list[tuple[str, str]]:
    """The headers by which each request acts as another user."""
    return list(api._connection._configuration.client_session_kwargs.get("headers", ()))
