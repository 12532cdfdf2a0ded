"""Several replicas of the operator on one cluster, each a process with its own connection to the API server.

The API server's audit log says who wrote what and when: each replica is a user of its own there.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from http import HTTPStatus
from itertools import pairwise
from pathlib import Path
from typing import Any, Self
from urllib.request import urlopen

import manifests
from faulty_api import FaultyApi
from small_cluster import QUICK_LEASE, until
from trimtab_operator.resources import crd
from trimtab_testbed.servers.kube import ControlPlane
from trimtab_testbed.servers.kube_rest import KubeApiError
from trimtab_testbed.servers.processes import Server
from trimtab_testbed.simulated.cluster import POD_LABELS, SimulatedCluster, landed
from trimtab_testbed.simulated.scenarios import ClusterScenario, NamespaceShape, brokers

NAMESPACE, POLICY = "messaging", "policy"
API = "/apis/trimtab.dev/v1alpha1/namespaces/messaging"
LEASE = "/apis/coordination.k8s.io/v1/namespaces/messaging/leases/trimtab"
BUNDLES = 200

_HERE = Path(__file__).parent


class Gate:
    """One replica's connection to the API server: a `FaultyApi` in a thread of its own."""

    def __init__(self, plane: ControlPlane, folder: Path, user: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=f"gate of {user}", daemon=True)
        self.proxy = FaultyApi(plane, folder, user)

    def __enter__(self) -> Self:
        self._thread.start()
        self._call(self.proxy.__aenter__())
        return self

    def __exit__(self, *_: object) -> None:
        self._call(self.proxy.__aexit__())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def cut(self) -> None:
        """Forward nothing and answer nothing, like a network that drops packets."""
        self.proxy.hanging = True
        self._loop.call_soon_threadsafe(self.proxy.cut)

    def writes(self) -> list[str]:
        """Method and path of each write request so far, except to the Lease."""
        return [f"{method} {path}" for method, path in self.proxy.seen if method != "GET" and "/leases" not in path]

    def _call(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(timeout=30)


class Replica:
    """`trimtab run` as the process `name`, which is its identity and its user.

    drawn: its load is generated, not measured.
    """

    def __init__(self, plane: ControlPlane, folder: Path, name: str, options: dict[str, Any], *, drawn: bool) -> None:
        self.name, self.folder = name, folder / name
        self.folder.mkdir()
        self.gate = Gate(plane, self.folder, name)
        self._program = [str(_HERE / "drawn_replica.py")] if drawn else ["-m", "trimtab_operator"]
        self._options = options

    def __enter__(self) -> Self:
        self.gate.__enter__()
        options: dict[str, Any] = {
            "--namespace": NAMESPACE,
            "--kubeconfig": self.gate.proxy.kubeconfig,
            "--identity": self.name,
            "--history": self.folder / "history",
            "--http-port": 0,
            "--allow-url": "http://127.0.0.1:*",
            **self._options,
        }
        flags = [str(part) for pair in options.items() for part in pair]
        command = [sys.executable, *self._program, "run", *flags]
        log = self.folder / "operator.log"
        self.server = Server(command, log=log, name=self.name, env={**os.environ, "PYTHONUNBUFFERED": "1"})
        self.server.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.server.stop(20)
        self.gate.__exit__()

    @property
    def log(self) -> str:
        return (self.folder / "operator.log").read_text()

    def ready(self) -> str:
        """Wait until the replica is ready; returns the text of `readyz`."""
        return until(f"{self.name} is ready", self._ready, within=120)

    def _ready(self) -> str:
        self.server.check()
        return self.page("readyz")

    def page(self, path: str) -> str:
        """The text that the replica serves at `path`; empty if the status is not 200."""
        found = re.search(r"serving /metrics, /healthz and /readyz on (\S+)", self.log)
        if found is None:
            return ""
        try:
            with urlopen(f"http://{found[1]}/{path}", timeout=5) as answer:
                return str(answer.read().decode())
        except OSError:
            return ""

    def leads(self) -> bool:
        """Whether its metrics say that it leads."""
        return "trimtab_leader 1.0" in self.page("metrics")

    def epoch(self) -> int:
        """The epoch in which the replica led; 0 if it never led."""
        found = re.search(rf"{self.name} leads, epoch (\d+)", self.log)
        return int(found[1]) if found else 0

    def ended(self, within: float = 30.0) -> int:
        """Wait until the process exits by itself; returns its exit code."""
        until(f"{self.name} ends", lambda: not self.server.running, within)
        assert self.server.returncode is not None
        return self.server.returncode


@dataclass(frozen=True)
class Write:
    """One write in the audit log: user, times of request and answer (epoch seconds), and status."""

    user: str
    received: float
    answered: float
    code: int
    what: str
    object: str

    @property
    def accepted(self) -> bool:
        return self.code < HTTPStatus.BAD_REQUEST


class ReplicaCluster:
    """Context manager: an API server with an audit log, three simulated brokers with 200 bundles, and no operator."""

    def __init__(self, plane: ControlPlane, folder: Path) -> None:
        self.plane, self.folder = plane, folder
        self.replicas: list[Replica] = []

    def __enter__(self) -> Self:
        self.rest = self.plane.rest
        self.rest.apply_crds(crd.manifests().values())
        self.rest.create_namespace(NAMESPACE)
        scenario = ClusterScenario(
            name="replicas",
            summary="three brokers with many small bundles",
            brokers=brokers(60, 20, 10, cores=2.0),
            namespaces=(NamespaceShape("t", "n", BUNDLES),),
            seed=1,
            largest=5.0,
            policy={},
        )
        self.world = SimulatedCluster(scenario, rest=self.rest, kubeconfig=self.plane.kubeconfig, namespace=NAMESPACE)
        self.world.__enter__()
        self.world.seed_bundles()
        self.world.wait_until_owned(60)
        return self

    def __exit__(self, *_: object) -> None:
        self.world.stop()

    def replica(self, **options: Any) -> Replica:
        """One more replica, not started yet."""
        return self._replica({**QUICK_LEASE, **options}, drawn=True)

    def measuring_replica(self) -> Replica:
        """A replica with the options that users get by default, Spark among them."""
        return self._replica({}, drawn=False)

    def _replica(self, options: dict[str, Any], *, drawn: bool) -> Replica:
        made = Replica(self.plane, self.folder, f"replica-{len(self.replicas)}", options, drawn=drawn)
        self.replicas.append(made)
        return made

    # -- a person's part --

    def apply_policy(self, url: str = "http://127.0.0.1:9", **spec: Any) -> None:
        """Replace the policy by one that moves every hot bundle, each second, 20 bundles at a time."""
        self.drop_policy()
        limits = {"maxMovesPerCycle": 20, "maxMovesPerBroker": 1000, "maxMovesPerHour": 100_000, "coolDown": "1s"}
        base = {
            "mode": "Auto",
            "interval": "1s",
            "brokers": {"podLabels": POD_LABELS},
            "source": {"prometheus": {"url": url, "window": "4s", "maxAge": "6s", "timeout": "3s"}},
            **manifests.eager_strategies(history_percent=10),
            "limits": {**limits, "moveTimeout": "20s"},
        }
        self.rest.create(f"{API}/balancingpolicies", manifests.policy(POLICY, **{**base, **spec}))

    def drop_policy(self) -> None:
        """Delete the policy, and remove its finalizer, because no operator removes it."""
        path = f"{API}/balancingpolicies/{POLICY}"
        if self.policy():
            self.rest.patch(path, {"metadata": {"finalizers": None}})
            self.rest.delete(path)

    def policy(self) -> dict[str, Any]:
        try:
            found: dict[str, Any] = self.rest.get(f"{API}/balancingpolicies/{POLICY}")
        except KubeApiError as error:
            if error.status != HTTPStatus.NOT_FOUND:
                raise
            return {}
        return found

    def edit_policy(self, **spec: Any) -> None:
        self.rest.patch(f"{API}/balancingpolicies/{POLICY}", {"spec": spec})

    def concentrate(self) -> None:
        """Move all bundles to one broker, as a person would."""
        first = self.world.brokers[0]
        for name, bundle in self.world.bundles().items():
            if bundle["spec"]["owner"] != first:
                self.rest.patch(f"{API}/bundles/{name}", {"spec": {"owner": first}})
        self.world.wait_until_owned(60)

    def lease(self) -> dict[str, Any]:
        spec: dict[str, Any] = self.rest.get(LEASE)["spec"]
        return spec

    def leader_told(self) -> str:
        """The leader, from the policy's condition."""
        conditions = self.policy().get("status", {}).get("conditions", [])
        return next((str(c["message"]) for c in conditions if c["type"] == "Led"), "")

    def decided(self) -> tuple[str, str]:
        """The leader and the start of its last cycle, from the policy's status; empty before the first cycle."""
        cycle = self.policy().get("status", {}).get("lastCycle", {})
        return self.leader_told().partition(" ")[0], str(cycle.get("time", ""))

    def epochs(self) -> set[int]:
        """All epochs in assignments of bundles."""
        bundles = self.world.bundles().values()
        return {bundle["spec"].get("assignment", {}).get("epoch", 0) for bundle in bundles}

    def remembered(self) -> dict[str, Any]:
        """The stored memory of the policy."""
        found = self.rest.get(f"/api/v1/namespaces/{NAMESPACE}/configmaps/trimtab-memory-{POLICY}")
        memory: dict[str, Any] = json.loads(found["data"]["memory.json"])
        return memory

    def settle(self) -> None:
        """Pause the policy, and wait until every bundle is served only by its desired owner."""
        self.edit_policy(paused=True)
        until("all moves have landed", self._settled, within=60)

    def _settled(self) -> bool:
        if not all(landed(bundle) for bundle in self.world.bundles().values()):
            return False
        served = sorted(name for names in self.world.serving().values() for name in names)
        return len(served) == BUNDLES == len(set(served))

    # -- the audit log --

    def trail(self, since: float = 0.0) -> list[Write]:
        """Writes of replicas after `since` (epoch seconds), except to the Lease, in the order of arrival."""
        return sorted((w for w in self._writes() if w.received >= since), key=lambda w: w.received)

    def _writes(self) -> Iterator[Write]:
        names = {replica.name for replica in self.replicas}
        for event in self.plane.audit_events():
            about = event.get("objectRef", {})
            user = event["user"]["username"]
            if user not in names or event["verb"] in {"get", "list", "watch"} or about.get("resource") == "leases":
                continue
            parts = (about.get("resource", ""), about.get("subresource", ""))
            yield Write(
                user,
                _seconds(event["requestReceivedTimestamp"]),
                _seconds(event["stageTimestamp"]),
                event.get("responseStatus", {}).get("code", 0),
                f"{event['verb']} {'/'.join(filter(None, parts))}",
                about.get("name", ""),
            )

    def check_trail(self) -> None:
        """Check that no two replicas wrote at the same time, and that the later writer has the larger epoch.

        Also check that a replica that never led wrote nothing.
        """
        epochs = {replica.name: replica.epoch() for replica in self.replicas}
        trail = self.trail()
        assert {write.user for write in trail} <= {name for name, epoch in epochs.items() if epoch}
        terms = dict[str, tuple[float, float]]()
        for write in trail:
            if write.accepted:
                first, last = terms.get(write.user, (write.received, write.answered))
                terms[write.user] = (min(first, write.received), max(last, write.answered))
        ordered = sorted(terms, key=lambda name: epochs[name])
        assert len({epochs[name] for name in ordered}) == len(ordered)
        for before, after in pairwise(ordered):
            assert terms[before][1] < terms[after][0], f"{before} wrote after {after} had begun"


@contextmanager
def started(one: Replica, other: Replica) -> Iterator[tuple[Replica, Replica]]:
    """Start both; yields the leader, and the other one, which is ready to lead."""
    with one, other:
        leader = until("one leads", lambda: next((r for r in (one, other) if r.leads()), None), within=60)
        standby = other if leader is one else one
        leader.ready()
        standby.ready()
        until("the standby knows the leader", lambda: f"stands by for {leader.name}" in standby.page("readyz"))
        yield leader, standby


def write_on(gate: Gate, count: int, then: Callable[[], None]) -> None:
    """Call `then` when the replica requests its `count`-th write of a Bundle's desired owner from now on."""
    left = [count]

    def told(method: str, path: str) -> None:
        if method == "PATCH" and "/bundles/" in path and not path.endswith("/status"):
            left[0] -= 1
            if left[0] == 0:
                then()

    gate.proxy.told = told


def pause(replica: Replica) -> None:
    """Stop the process with SIGSTOP: it still exists, but does nothing."""
    replica.server.send(signal.SIGSTOP)


def resume(replica: Replica) -> None:
    """Continue it with SIGCONT."""
    replica.server.send(signal.SIGCONT)


def _seconds(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


def now() -> float:
    """Epoch seconds of the API server, which runs on this machine."""
    return time.time()
