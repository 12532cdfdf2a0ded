"""A Kubernetes control plane: real etcd and kube-apiserver on 127.0.0.1, ready in about three seconds.

Without the controller-manager, objects of a deleted owner stay, and deleted namespaces stay Terminating. Use a new
namespace instead of deleting one, or set `controllers`.
"""

from __future__ import annotations

import json
import secrets
import ssl
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

from trimtab_testbed.programs.find import KubeBinaries
from trimtab_testbed.servers.certificates import Authority
from trimtab_testbed.servers.kube_rest import KubeRest
from trimtab_testbed.servers.processes import HOST, Server, Startable, on_free_ports

_CONTROLLERS = (
    "garbage-collector-controller",
    "namespace-controller",
    "serviceaccount-controller",
    "node-lifecycle-controller",
    "deployment-controller",
    "replicaset-controller",
    "statefulset-controller",
    "endpointslice-controller",
)
_AUDIT_POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [{"level": "Metadata"}],
}


class ControlPlane(Startable):
    """etcd, kube-apiserver and, with `controllers`, kube-controller-manager; a context manager.

    work_dir:    folder of data, certificates, kubeconfigs and logs (``NAME.log``), which stay afterwards.
    audit:       write each request to `audit_log`, one JSON object per line.
    extra_flags: more flags for kube-apiserver.

    Raises `ServerFailedError` when a server does not become ready.
    """

    def __init__(
        self,
        binaries: KubeBinaries,
        work_dir: Path,
        *,
        controllers: bool = False,
        audit: bool = False,
        extra_flags: Sequence[str] = (),
    ) -> None:
        if controllers and binaries.controller_manager is None:
            raise ValueError("no kube-controller-manager: find the binaries with controllers=True, too")
        self.binaries = binaries
        self.dir = work_dir.resolve()
        self.audit_log = self.dir / "audit.jsonl"
        self.token = secrets.token_hex(16)
        self._controllers, self._audit = controllers, audit
        self._extra_flags = tuple(extra_flags)
        self._servers: dict[str, Server] = {}

    def start(self) -> Self:
        """Start all servers and wait until they are ready."""
        self._authority = Authority(self.dir)
        self.ca = self._authority.certificate
        self._authority.server("apiserver")
        self._authority.signing_key("sa")
        self._write("tokens.csv", f'{self.token},admin,admin,"system:masters"\n')
        self._write("audit-policy.json", json.dumps(_AUDIT_POLICY))
        on_free_ports(self._start_etcd, 2)
        on_free_ports(self._start_new_apiserver, 2)
        self._rest = KubeRest(self.url, token=self.token, ca=self.ca)
        self.kubeconfig = self.write_kubeconfig("admin", {"token": self.token})
        if self._controllers:
            on_free_ports(self._start_controller_manager, 2)
        return self

    def stop(self) -> None:
        """Stop all servers, etcd last: the others need it while they stop, and would hang without it. Idempotent."""
        for server in reversed(self._servers.values()):
            server.stop()

    @property
    def url(self) -> str:
        """URL of the API server; unchanged by a restart."""
        return f"https://{HOST}:{self._port}"

    @property
    def rest(self) -> KubeRest:
        """A blocking client with all rights, for set-up and checks in tests."""
        return self._rest

    def server(self, name: str) -> Server:
        """One of the processes: ``etcd``, ``kube-apiserver`` or ``kube-controller-manager``."""
        return self._servers[name]

    def stop_apiserver(self, *, kill: bool = False) -> None:
        """Stop only the API server, in an orderly way or (with `kill`) as in a crash. Its data stays in etcd."""
        apiserver = self._servers["kube-apiserver"]
        apiserver.kill() if kill else apiserver.stop()

    def start_apiserver(self) -> None:
        """Start the API server again on its old port, and wait until it is ready."""
        self._servers["kube-apiserver"].start()
        self._wait_for_apiserver()

    def restart_apiserver(self, *, down: float = 0.0) -> None:
        """Stop the API server, wait `down` seconds, and start it again on the same port."""
        self.stop_apiserver()
        time.sleep(down)
        self.start_apiserver()

    def write_kubeconfig(self, name: str, user: dict[str, str], *, namespace: str = "") -> Path:
        """Write ``NAME.kubeconfig``. namespace: the one that kubectl uses without ``-n``.

        user: the kubeconfig's entry for the user: ``token``, or ``client-certificate`` and ``client-key``.
        """
        cluster = {"server": self.url, "certificate-authority": str(self.ca)}
        context = {"cluster": "testbed", "user": name, **({"namespace": namespace} if namespace else {})}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "testbed",
            "clusters": [{"name": "testbed", "cluster": cluster}],
            "users": [{"name": name, "user": user}],
            "contexts": [{"name": "testbed", "context": context}],
        }
        return self._write(f"{name}.kubeconfig", json.dumps(config, indent=2))  # JSON is YAML

    def user_kubeconfig(self, user: str, *groups: str) -> Path:
        """A kubeconfig for `user` with a client certificate. RBAC decides what the user and its groups may do."""
        certificate, key = self._authority.client(user, *groups)
        return self.write_kubeconfig(certificate.stem, {"client-certificate": str(certificate), "client-key": str(key)})

    def kubectl(self, *arguments: str, stdin: str | None = None) -> str:
        """Run kubectl as administrator and return its output. Raises `KubectlError` with its error text."""
        command = [str(self.binaries.kubectl), f"--kubeconfig={self.kubeconfig}", *arguments]
        done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=60, check=False)
        if done.returncode:
            raise KubectlError(f"kubectl {' '.join(arguments)}: {done.stderr.strip()}")
        return done.stdout

    def audit_events(self) -> list[dict[str, Any]]:
        """Requests to the API server so far; empty unless `audit` is on."""
        return [json.loads(line) for line in self.audit_log.read_text().splitlines()] if self.audit_log.exists() else []

    def _write(self, name: str, text: str) -> Path:
        path = self.dir / name
        path.write_text(text)
        path.chmod(0o600)
        return path

    def _launch(self, program: Path, flags: Sequence[str]) -> Server:
        server = Server([program, *flags], log=self.dir / f"{program.name}.log")
        self._servers[program.name] = server
        server.start()
        return server

    def _start_etcd(self, port: int, peer_port: int) -> None:
        self.etcd_url = f"http://{HOST}:{port}"
        flags = [
            f"--data-dir={self.dir / 'etcd'}",
            f"--listen-client-urls={self.etcd_url}",
            f"--advertise-client-urls={self.etcd_url}",
            f"--listen-peer-urls=http://{HOST}:{peer_port}",
            "--unsafe-no-fsync",  # the data must survive a crash of etcd, not of the machine
            f"--quota-backend-bytes={4 << 30}",
            "--log-level=error",
        ]
        self._launch(self.binaries.etcd, flags).wait_ready(f"{self.etcd_url}/health")

    def _start_new_apiserver(self, port: int, _: int) -> None:
        self._port = port
        self._launch(self.binaries.apiserver, [*self._apiserver_flags(), *self._extra_flags])
        self._wait_for_apiserver()

    def _wait_for_apiserver(self) -> None:
        context = ssl.create_default_context(cafile=self.ca)
        self._servers["kube-apiserver"].wait_ready(f"{self.url}/readyz", context=context)

    def _apiserver_flags(self) -> list[str]:
        flags = [
            f"--etcd-servers={self.etcd_url}",
            f"--bind-address={HOST}",
            f"--secure-port={self._port}",
            f"--advertise-address={HOST}",
            "--endpoint-reconciler-type=none",  # 1.37 refuses to publish a loopback address
            "--service-cluster-ip-range=10.0.0.0/24",
            f"--cert-dir={self.dir}",
            f"--tls-cert-file={self.dir / 'apiserver.crt'}",
            f"--tls-private-key-file={self.dir / 'apiserver.key'}",
            f"--client-ca-file={self.ca}",
            f"--token-auth-file={self.dir / 'tokens.csv'}",
            "--authorization-mode=RBAC",
            "--service-account-issuer=https://kubernetes.default.svc",
            f"--service-account-key-file={self.dir / 'sa.key'}",
            f"--service-account-signing-key-file={self.dir / 'sa.key'}",
            "--profiling=false",
            "--shutdown-watch-termination-grace-period=1s",  # otherwise open watches delay its exit by a minute
            "--delete-collection-workers=16",  # 1 by default, which times out beyond about 30,000 objects
            "--enable-priority-and-fairness=false",  # no limits on requests: there is only one tenant
            "--max-requests-inflight=0",
            "--max-mutating-requests-inflight=0",
        ]
        if not self._controllers:  # no default ServiceAccounts without the controller-manager: pods would be refused
            flags.append("--disable-admission-plugins=ServiceAccount")
        if self._audit:
            flags += [f"--audit-policy-file={self.dir / 'audit-policy.json'}", f"--audit-log-path={self.audit_log}"]
        return flags

    def _start_controller_manager(self, port: int, _: int) -> None:
        assert self.binaries.controller_manager is not None
        flags = [
            f"--kubeconfig={self.kubeconfig}",
            "--leader-elect=false",
            f"--bind-address={HOST}",
            f"--secure-port={port}",
            f"--tls-cert-file={self.dir / 'apiserver.crt'}",
            f"--tls-private-key-file={self.dir / 'apiserver.key'}",
            "--authorization-always-allow-paths=/healthz",
            f"--service-account-private-key-file={self.dir / 'sa.key'}",
            f"--root-ca-file={self.ca}",
            f"--controllers={','.join(_CONTROLLERS)}",
        ]
        context = ssl.create_default_context(cafile=self.ca)
        server = self._launch(self.binaries.controller_manager, flags)
        server.wait_ready(f"https://{HOST}:{port}/healthz", context=context)


class KubectlError(RuntimeError):
    """kubectl failed; the text has the command and its error output."""
