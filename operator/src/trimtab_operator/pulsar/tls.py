"""TLS contexts from PEM text."""

from __future__ import annotations

import ssl
import tempfile

from trimtab_pipeline.source import Credentials, CredentialsError


def tls_context(credentials: Credentials, *, others: bool = False) -> ssl.SSLContext:
    """A context that believes `credentials.ca` alone (else the usual authorities) and shows the client's certificate.

    others: believe the usual authorities as well, and show nothing. Raises `CredentialsError`.
    """
    try:
        context = ssl.create_default_context(cadata=credentials.ca or None)
        if others:
            context.load_default_certs()
    except (ssl.SSLError, ValueError):
        raise CredentialsError("ca holds no certificate in PEM form") from None
    if credentials.certificate and not others:
        _present(context, credentials)
    return context


def _present(context: ssl.SSLContext, credentials: Credentials) -> None:
    """Show the certificate; OpenSSL reads it from a file only, which nobody else may read, and which goes at once."""
    with tempfile.NamedTemporaryFile("w", suffix=".pem") as file:
        file.write(f"{credentials.certificate}\n{credentials.key}\n")
        file.flush()
        try:
            context.load_cert_chain(file.name, password="")  # an empty one, or OpenSSL would ask at the terminal
        except ssl.SSLError as error:
            raise CredentialsError(f"certificate and key are no pair in PEM form ({error.reason})") from None
