"""Certificates of a temporary cluster: one authority signs the certificates of servers and users.

The `openssl` program makes them. They have subject and authority key identifiers and a critical CA flag, because
Python 3.13 verifies strictly by default.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from trimtab_testbed.programs.build import MissingToolError

_DAYS = "30"
_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
_EXTENSIONS = """\
[req]
distinguished_name = dn
[dn]
[authority]
basicConstraints = critical, CA:TRUE
keyUsage = critical, keyCertSign, cRLSign
subjectKeyIdentifier = hash
[server]
basicConstraints = critical, CA:FALSE
keyUsage = critical, digitalSignature
extendedKeyUsage = serverAuth
subjectKeyIdentifier = hash
authorityKeyIdentifier = keyid
subjectAltName = IP:127.0.0.1, DNS:localhost, DNS:kubernetes.default.svc
[client]
basicConstraints = critical, CA:FALSE
keyUsage = critical, digitalSignature
extendedKeyUsage = clientAuth
subjectKeyIdentifier = hash
authorityKeyIdentifier = keyid
"""


class Authority:
    """A certificate authority with its files (PEM, ``NAME.crt`` and ``NAME.key``) in `folder`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "openssl.cnf").write_text(_EXTENSIONS)
        self.certificate = folder / "ca.crt"
        if not self.certificate.exists():
            self._sign_itself()

    def server(self, name: str) -> tuple[Path, Path]:
        """Certificate and key of a server on 127.0.0.1."""
        return self._issue(name, f"/CN={name}", "server")

    def client(self, user: str, *groups: str) -> tuple[Path, Path]:
        """Certificate and key with which Kubernetes identifies `user`, a member of `groups`."""
        subject = "".join(f"/O={group}" for group in groups) + f"/CN={user}"
        return self._issue(f"user-{user.replace(':', '-')}", subject, "client")

    def signing_key(self, name: str) -> Path:
        """A key for service account tokens, in SEC1 form: kube-apiserver finds no public key in a PKCS#8 file."""
        path = self._folder / f"{name}.key"
        self._openssl("ecparam", "-genkey", "-name", "prime256v1", "-noout", "-out", path.name)
        return path

    def _sign_itself(self) -> None:
        identity = ("-subj", "/CN=trimtab-testbed", "-config", "openssl.cnf", "-extensions", "authority")
        self._openssl("req", "-x509", *_KEY, "-keyout", "ca.key", "-out", "ca.crt", "-days", _DAYS, *identity)

    def _issue(self, name: str, subject: str, section: str) -> tuple[Path, Path]:
        key, request, certificate = f"{name}.key", f"{name}.csr", f"{name}.crt"
        self._openssl("req", *_KEY, "-keyout", key, "-out", request, "-subj", subject, "-config", "openssl.cnf")
        signer = ("-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial", "-days", _DAYS)
        extensions = ("-extfile", "openssl.cnf", "-extensions", section)
        self._openssl("x509", "-req", "-in", request, *signer, "-out", certificate, *extensions)
        return self._folder / certificate, self._folder / key

    def _openssl(self, *arguments: str) -> None:
        openssl(self._folder, *arguments)


def openssl(folder: Path, *arguments: str, given: bytes = b"") -> bytes:
    """Run openssl in `folder` with `given` as input; returns its output. Raises `MissingToolError`, `RuntimeError`."""
    if shutil.which("openssl") is None:
        raise MissingToolError("openssl is missing; it is needed to make certificates. Install the package openssl")
    done = subprocess.run(["openssl", *arguments], cwd=folder, input=given, capture_output=True, check=False)
    if done.returncode:
        raise RuntimeError(f"openssl {arguments[0]} failed in {folder}: {done.stderr.decode(errors='replace').strip()}")
    return done.stdout
