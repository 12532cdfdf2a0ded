"""A small part of a kubelet: runs the containers of rendered pods as processes, under their ServiceAccount.

There are no containers. The program comes from this environment, volumes are folders, and only arguments with a
mounted path are changed.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any

from trimtab_testbed.servers.kube import ControlPlane
from trimtab_testbed.servers.processes import Server

_NONE: Mapping[str, str] = MappingProxyType({})

_PROGRAMS = {"trimtab": (sys.executable, "-m", "trimtab_operator")}
_ENDS_WITHIN = 280.0  # seconds


def account_kubeconfig(plane: ControlPlane, namespace: str, account: str) -> Path:
    """A kubeconfig with a token of the ServiceAccount, requested as by the kubelet (TokenRequest)."""
    path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token"
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 7200}}
    token = plane.rest.create(path, request)["status"]["token"]
    return plane.write_kubeconfig(f"{namespace}-{account}", {"token": token}, namespace=namespace)


def command_of(
    container: Mapping[str, Any], folder: Path, services: Mapping[str, str] = _NONE
) -> tuple[list[str], dict[str, str]]:
    """Command and environment of a container, with its volumes as folders below `folder`.

    services: address of each Service (``host:port``), by its name with port.
    """
    mounts = {mount["mountPath"]: folder / mount["name"] for mount in container["volumeMounts"]}
    for place in mounts.values():
        place.mkdir(parents=True, exist_ok=True)

    def here(text: str) -> str:
        for path in sorted(mounts, key=len, reverse=True):
            if path in text:
                return text.replace(path, str(mounts[path]))
        for name, address in services.items():
            text = text.replace(name, address)
        return text

    program, *rest = container["command"]
    if program not in _PROGRAMS:
        program = str(Path(sys.executable).with_name(program))
    words = [*_PROGRAMS.get(program, (program,)), *rest, *map(here, container["args"])]
    environment = {entry["name"]: here(entry["value"]) for entry in container["env"] if "value" in entry}
    search = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"  # this environment replaces the image
    return words, {**os.environ, "PATH": search, **environment}


def operator_process(plane: ControlPlane, deployment: Mapping[str, Any], folder: Path) -> Server:
    """The operator of a rendered Deployment, not started yet."""
    pod = deployment["spec"]["template"]["spec"]
    words, environment = command_of(pod["containers"][0], folder)
    kubeconfig = account_kubeconfig(plane, deployment["metadata"]["namespace"], pod["serviceAccountName"])
    command = [*words, f"--kubeconfig={kubeconfig}"]  # a process here has no /var/run/secrets
    return Server(command, log=folder / "operator.log", name="operator", env=environment)


class JobRunner:
    """Runs the Jobs of one namespace one after the other, and reports their end as the Job controller does.

    Call `look` until the process that waits for the Jobs has ended.
    """

    def __init__(self, plane: ControlPlane, namespace: str, folder: Path, services: Mapping[str, str] = _NONE) -> None:
        self._services = services
        self._rest, self._plane, self._namespace, self._folder = plane.rest, plane, namespace, folder
        self.outputs: list[str] = []
        """Output of each Job."""
        self.codes: list[int] = []
        """Exit code of each Job."""
        self._done: set[str] = set()

    @property
    def _jobs(self) -> str:
        return f"/apis/batch/v1/namespaces/{self._namespace}/jobs"

    def look(self, meanwhile: Callable[[], None] = lambda: None) -> None:
        """Run new Jobs. meanwhile: called repeatedly while a Job runs."""
        for job in self._rest.get(self._jobs)["items"]:
            if job["metadata"]["uid"] not in self._done:
                self._done.add(job["metadata"]["uid"])
                self._run(job, meanwhile)

    def _run(self, job: Mapping[str, Any], meanwhile: Callable[[], None]) -> None:
        pod = job["spec"]["template"]["spec"]
        folder = self._folder / job["metadata"]["uid"]
        self._fill(pod["volumes"], folder)
        command, environment = command_of(pod["containers"][0], folder, self._services)
        if account := pod.get("serviceAccountName"):
            command.append(f"--kubeconfig={account_kubeconfig(self._plane, self._namespace, account)}")
        began = _now()
        log = folder / "output.log"
        with log.open("w") as output:
            process = subprocess.Popen(
                command, env=environment, cwd=folder, stdout=output, stderr=subprocess.STDOUT, text=True
            )
            while_running(process, meanwhile)
        self.outputs.append(log.read_text())
        self.codes.append(process.returncode)
        status = _complete(began) if process.returncode == 0 else _failed(began)
        self._rest.patch(f"{self._jobs}/{job['metadata']['name']}/status", {"status": status})

    def _fill(self, volumes: Iterable[Mapping[str, Any]], folder: Path) -> None:
        """Write the files of ConfigMaps among `volumes`."""
        for volume in volumes:
            if "configMap" in volume:
                name = volume["configMap"]["name"]
                data = self._rest.get(f"/api/v1/namespaces/{self._namespace}/configmaps/{name}")["data"]
                (folder / volume["name"]).mkdir(parents=True, exist_ok=True)
                for file, text in data.items():
                    (folder / volume["name"] / file).write_text(text)


def while_running(process: subprocess.Popen[str], look: Callable[[], None]) -> None:
    """Call `look` repeatedly until `process` has ended."""
    deadline = time.monotonic() + _ENDS_WITHIN
    while process.poll() is None:
        look()
        if time.monotonic() > deadline:
            process.kill()
            raise AssertionError(f"{process.args!r} did not exit within {_ENDS_WITHIN:g} s")
        time.sleep(0.2)


def _complete(began: str) -> dict[str, Any]:
    conditions = [_condition("SuccessCriteriaMet", "CompletionsReached"), _condition("Complete", "CompletionsReached")]
    return {"startTime": began, "completionTime": _now(), "succeeded": 1, "conditions": conditions}


def _failed(began: str) -> dict[str, Any]:
    conditions = [_condition(kind, "BackoffLimitExceeded") for kind in ("FailureTarget", "Failed")]
    return {"startTime": began, "failed": 1, "conditions": conditions}


def _condition(kind: str, reason: str) -> dict[str, str]:
    now = _now()
    return {"type": kind, "status": "True", "reason": reason, "lastProbeTime": now, "lastTransitionTime": now}


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
