"""A small cluster: real API server, real Prometheus behind a faulty proxy, simulated brokers, the operator."""

from __future__ import annotations

import os
import re
import sys
import time
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from pathlib import Path
from types import MappingProxyType
from typing import Any, Self, TypeVar

import manifests
from faulty_proxy import Fault, FaultyProxy
from shipped_role import shipped_kubeconfig
from trimtab_operator.cli.common import NO_SPARK
from trimtab_operator.resources import crd
from trimtab_testbed.programs.find import KubeBinaries
from trimtab_testbed.servers.kube import ControlPlane
from trimtab_testbed.servers.kube_rest import KubeApiError
from trimtab_testbed.servers.processes import Server
from trimtab_testbed.servers.prometheus import PrometheusServer
from trimtab_testbed.simulated.cluster import POD_LABELS, SimulatedCluster, landed
from trimtab_testbed.simulated.scenarios import SCENARIOS, ClusterScenario

NAMESPACE = "messaging"
POLICY = "policy"
API = "/apis/trimtab.dev/v1alpha1/namespaces/messaging"

QUICK_LEASE = {"--lease-duration": 8, "--renew-deadline": 6, "--retry-period": 0.5}
"""Flags of an operator whose successor takes over within seconds after its death."""

T = TypeVar("T")


def until(what: str, probe: Callable[[], T], within: float = 40.0, every: float = 0.2) -> T:
    """Call `probe` until it returns something true, and return that; fail naming `what` after `within` seconds."""
    deadline = time.monotonic() + within
    while not (found := probe()):
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {within:.0f} s: {what}")
        time.sleep(every)
    return found


class OperatorProcess:
    """`trimtab run` as a process.

    program: what Python runs as `trimtab`. started: called after each start. options: further flags of `trimtab run`,
    such as `QUICK_LEASE`.
    """

    def __init__(
        self,
        kubeconfig: Path,
        work_dir: Path,
        *,
        program: Sequence[str] = ("-m", "trimtab_operator"),
        started: Callable[[], None] = lambda: None,
        options: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        self._log, self._started = work_dir / "operator.log", started
        self._server = Server(
            [
                sys.executable,
                *program,
                *("run", "--namespace", NAMESPACE, "--kubeconfig", str(kubeconfig)),
                *("--history", str(work_dir / "history"), "--http-port", "0"),
                *("--allow-url", "http://127.0.0.1:*", "--allow-url", "https://127.0.0.1:*"),
                *(str(part) for pair in options.items() for part in pair),
            ],
            log=self._log,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )

    def start(self) -> Self:
        begun = len(self.log)
        self._server.start()
        pattern = re.compile(r"serving /metrics, /healthz and /readyz on (\S+)")
        found = until(
            "the operator serves its page", lambda: self._alive() and pattern.search(self.log[begun:]), within=120
        )
        self.url = f"http://{found[1]}"
        until("the operator is ready", lambda: self._alive() and self.page("readyz")[0] == 200, within=120)
        self._started()
        return self

    def _alive(self) -> bool:
        self._server.check()
        return True

    @property
    def log(self) -> str:
        return self._log.read_text() if self._log.exists() else ""

    @property
    def pid(self) -> int:
        return self._server.pid

    @property
    def running(self) -> bool:
        return self._server.running

    def page(self, path: str) -> tuple[int, str]:
        try:
            with urllib.request.urlopen(f"{self.url}/{path}", timeout=5) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()
        except OSError as error:
            return 0, str(error)

    def stop(self, within: float = 20.0) -> int | None:
        """Stop the process with SIGTERM, after `within` seconds with SIGKILL; returns the exit code."""
        self._server.stop(within)
        return self._server.returncode

    def kill(self) -> None:
        """Kill the process with SIGKILL, so that it finishes nothing."""
        self._server.kill()


class SmallCluster:
    """Context manager. Three brokers with eight bundles, far from level, unless another `scenario` is given.

    The test applies a policy. spark: as in ``trimtab run --spark``.
    """

    def __init__(
        self,
        binaries: KubeBinaries,
        prometheus: Path,
        work_dir: Path,
        scenario: ClusterScenario = SCENARIOS["uneven-8"],
        *,
        spark: str = NO_SPARK,
    ) -> None:
        self.dir, self.scenario, self._options = work_dir, scenario, {"--spark": spark}
        self.control_plane = ControlPlane(binaries, work_dir / "control-plane", audit=True)
        self._prometheus_program = prometheus
        self._open: list[Any] = []

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for part in reversed(self._open):
            part.__exit__(None, None, None) if hasattr(part, "__exit__") else part.stop()

    def _enter(self, part: Any) -> Any:
        part.__enter__()
        self._open.append(part)
        return part

    def _start(self) -> None:
        self._open_plane()
        self.rest = self.control_plane.rest
        self.rest.apply_crds(crd.manifests().values())
        self.rest.create_namespace(NAMESPACE)
        kubeconfig = self.control_plane.kubeconfig
        world = self._world(rest=self.rest, kubeconfig=kubeconfig, namespace=NAMESPACE)
        self.world = self._enter(world)
        self.prometheus = self._enter(
            PrometheusServer(self._prometheus_program, self.dir / "prometheus", world.targets)
        )
        self.proxy = self._enter(FaultyProxy(self.prometheus.url))
        world.seed_bundles()
        world.wait_until_owned()
        self.first_owners = self.owners()
        self._first_bundles = world.bundles()
        self.operator = OperatorProcess(shipped_kubeconfig(self.control_plane), self.dir, options=self._options)
        self.operator.start()
        self._open.append(self.operator)

    def _open_plane(self) -> None:
        self._enter(self.control_plane)

    def _world(self, **where: Any) -> SimulatedCluster:
        return SimulatedCluster(self.scenario, **where)

    # -- a person's part --

    def apply_policy(self, **spec: Any) -> None:
        """Create the policy: a cycle every two seconds and almost no cool-down, unless `spec` says otherwise."""
        base = {
            "mode": "DryRun",
            "interval": "2s",
            "brokers": {"podLabels": POD_LABELS},
            "source": {"prometheus": {"url": self.proxy.url, "window": "4s", "maxAge": "6s", "timeout": "3s"}},
            **manifests.eager_strategies(),
            "limits": {"coolDown": "1s", "moveTimeout": "4s", "lostAfter": "3s"},
        }
        limits = {**base["limits"], **spec.pop("limits", {})}
        policy = manifests.policy(POLICY, **{**base, **spec, "limits": limits})
        self.rest.create(f"{API}/balancingpolicies", policy)

    def edit_policy(self, **spec: Any) -> None:
        self.rest.patch(f"{API}/balancingpolicies/{POLICY}", {"spec": spec})

    def drop_policy(self) -> None:
        if self.policy() is not None:
            self.rest.delete(f"{API}/balancingpolicies/{POLICY}")
        until("the policy is gone", lambda: self.policy() is None)

    def patch_bundle(self, name: str, *, status: bool = False, **fields: Any) -> None:
        path = f"{API}/bundles/{name}" + ("/status" if status else "")
        self.rest.patch(path, {"status" if status else "spec": fields})

    # -- a person's view --

    def policy(self) -> dict[str, Any] | None:
        try:
            return self.rest.get(f"{API}/balancingpolicies/{POLICY}")
        except KubeApiError as error:
            if error.status == HTTPStatus.NOT_FOUND:
                return None
            raise

    def status(self) -> Mapping[str, Any]:
        return (self.policy() or {}).get("status") or {}

    def condition(self, kind: str) -> tuple[str, str, str]:
        """Status, reason and message of a condition of the policy; empty if it does not exist."""
        for condition in self.status().get("conditions", []):
            if condition["type"] == kind:
                return condition["status"], condition["reason"], condition["message"]
        return "", "", ""

    def wait_condition(self, kind: str, status: str, reason: str = "", within: float = 120.0) -> str:
        """Wait for a condition; returns its message."""

        def holds() -> bool:
            now = self.condition(kind)
            return now[0] == status and (not reason or now[1] == reason)

        try:
            until(f"{kind}={status} {reason}".strip(), holds, within)
        except AssertionError as error:
            raise AssertionError(f"{error}; it is {self.condition(kind)}") from None
        return self.condition(kind)[2]

    def wait_cycles(self, count: int) -> None:
        """Wait until the policy has started `count` more cycles."""
        for _ in range(count):
            before = self.status().get("lastCycle", {}).get("time")
            until("another cycle", lambda before=before: self.status().get("lastCycle", {}).get("time") != before)

    def owners(self) -> dict[str, str]:
        return {name: bundle.get("status", {}).get("owner", "") for name, bundle in self.world.bundles().items()}

    def desired_owners(self) -> dict[str, str]:
        return {name: bundle["spec"].get("owner", "") for name, bundle in self.world.bundles().items()}

    def bundles_of(self, broker: str) -> list[str]:
        return sorted(name for name, owner in self.owners().items() if owner == broker)

    def events(self, reason: str) -> list[str]:
        """Notes of the Events with that reason in the namespace."""
        found = self.rest.get(f"/apis/events.k8s.io/v1/namespaces/{NAMESPACE}/events")["items"]
        return [event.get("note", "") for event in found if event["reason"] == reason]

    def settled(self) -> bool:
        """Whether every bundle is served by its desired owner."""
        return all(landed(bundle) for bundle in self.world.bundles().values())

    def reset(self) -> None:
        """Return to the start: no fault, no policy, the first owners; and a running operator."""
        self.proxy.fault = Fault.NONE
        if not self.operator.running:
            self.operator.start()
        self.drop_policy()
        self._undivide()
        for name, owner in self.first_owners.items():
            if self.owners()[name] != owner or self.desired_owners()[name] != owner:
                self.patch_bundle(name, owner=owner, pinned=False, assignment=None)
        until(
            "the first owners have their bundles again", lambda: self.owners() == self.first_owners and self.settled()
        )

    def _undivide(self) -> None:
        """Undo splits, which only a test can do."""
        for item in self.rest.get(f"{API}/bundlesplits")["items"]:
            self.rest.delete(f"{API}/bundlesplits/{item['metadata']['name']}")
        for name in self.owners().keys() - self.first_owners.keys():
            self.rest.delete(f"{API}/bundles/{name}")
        for name in self.first_owners.keys() - self.owners().keys():
            first = self._first_bundles[name]
            meta = {"name": name, "ownerReferences": first["metadata"]["ownerReferences"]}
            self.rest.create(f"{API}/bundles", {**first, "metadata": meta})
