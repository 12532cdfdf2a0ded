"""The cluster of a scenario: broker pods in a Kubernetes namespace, simulated brokers behind them, and their faults.

The brokers run in a thread with its own event loop. Every method may be called from any other thread, and returns when
its work is done.
"""

from __future__ import annotations

import asyncio
import re
import threading
import time
from collections.abc import Coroutine, Iterable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self, TypeVar

from kubernetes.aio import client, config

from trimtab_operator.kube.naming import bundle_name, parse_pulsar_bundle, topic_namespace_name
from trimtab_operator.reconcile.namespaces import first_bundles
from trimtab_operator.resources.common import API_VERSION
from trimtab_operator.resources.topic_namespace import TopicNamespaceSpec
from trimtab_testbed.servers.kube_rest import KubeRest
from trimtab_testbed.servers.processes import Startable
from trimtab_testbed.servers.prometheus import Target
from trimtab_testbed.simulated.broker import ServingListener, SimulatedBroker
from trimtab_testbed.simulated.load import BrokerShape, Catalogue
from trimtab_testbed.simulated.metrics_page import CONTAINER
from trimtab_testbed.simulated.scenarios import ClusterScenario, NamespaceShape

POD_LABELS = {"app": "pulsar", "component": "broker"}
"""Labels of the broker pods, for a policy's ``brokers.podLabels``."""

_NODE = "testbed"
_RANGE = re.compile(r"-(0x[0-9a-f]{8})-(0x[0-9a-f]{8})$")
_T = TypeVar("_T")


class SimulatedCluster(Startable):
    """Brokers and bundles of `scenario` in the existing Kubernetes namespace `namespace`.

    rest:       creates pods, topic namespaces and bundles.
    kubeconfig: used by the brokers.
    on_serving: called at each start and end of serving, in the thread of the brokers.
    pods:       create the brokers' pods and keep them up to date. If False, a StatefulSet or the test does so.
    """

    def __init__(
        self,
        scenario: ClusterScenario,
        *,
        rest: KubeRest,
        kubeconfig: Path,
        namespace: str,
        on_serving: ServingListener | None = None,
        pods: bool = True,
    ) -> None:
        self.scenario, self.namespace = scenario, namespace
        self._makes_pods = pods
        self._rest, self._kubeconfig, self._on_serving = rest, kubeconfig, on_serving
        loads, self._owners = scenario.stage()
        self._catalogue = Catalogue(loads)
        self._spellings = Spellings(load.name for load in loads)
        self._brokers: dict[str, SimulatedBroker] = {}
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="world", daemon=True)

    def start(self) -> Self:
        """Start the brokers, and create their pods."""
        self._thread.start()
        self._call(self._start())
        for broker in self.scenario.brokers if self._makes_pods else ():
            self._create_pod(broker.shape)
        return self

    def stop(self) -> None:
        """Stop all brokers. Pods and bundles stay as they are. Idempotent."""
        if not self._thread.is_alive():
            return
        self._call(self._stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    # -- set-up --

    def seed_bundles(self) -> None:
        """Create the topic namespaces and their bundles, with the owners that the scenario starts with."""
        for namespace in self.scenario.namespaces:
            self._seed_namespace(namespace)

    def wait_until_owned(self, timeout: float = 30.0) -> None:
        """Wait until each bundle is with its desired owner and confirmed. A `TimeoutError` names one that is not."""
        deadline = time.monotonic() + timeout
        while pending := [name for name, bundle in self.bundles().items() if not landed(bundle)]:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{len(pending)} bundles have no confirmed owner, e.g. {pending[0]}")
            time.sleep(0.1)

    def bundles(self) -> dict[str, Any]:
        """The Bundle objects by name, as the API server has them."""
        return {item["metadata"]["name"]: item for item in self._rest.get(self._path("bundles"))["items"]}

    @property
    def targets(self) -> tuple[Target, ...]:
        """The targets for Prometheus."""
        labels = {"namespace": self.namespace}
        return tuple(Target(b.address, {**labels, "pod": name}) for name, b in self._brokers.items())

    @property
    def brokers(self) -> tuple[str, ...]:
        """Names of the brokers and of their pods."""
        return tuple(self._brokers)

    # -- actual state, not measured --

    def serving(self) -> Mapping[str, frozenset[str]]:
        """Bundles (Pulsar's spelling) that each broker serves now."""
        return self._call(self._serving())

    def cpu(self) -> Mapping[str, float]:
        """CPU usage of each broker in percent of its limit."""
        return self._call(self._cpu())

    # -- clients --

    @property
    def first_bundles(self) -> tuple[str, ...]:
        """The bundles at the start of the scenario, in Pulsar's spelling."""
        return tuple(self._catalogue)

    def scale(self, bundle: str, factor: float) -> None:
        """Multiply the traffic of one of the `first_bundles` by `factor`, even after it was split."""
        self._call(self._scale(bundle, factor))

    # -- hardware --

    def rehouse(self, broker: str, *, strength: float) -> None:
        """Put a broker on a machine where each core does the work of `strength` ordinary ones. It keeps serving.

        Only its CPU usage shows the change: its limits stay as they are.
        """
        self._call(self._brokers[broker].rehouse(strength))

    # -- faults --

    def kill(self, broker: str, *, delete_pod: bool = False) -> None:
        """Crash a broker: it serves and confirms nothing and refuses `/metrics`. Its pod is not Ready, or is gone."""
        self._call(self._brokers[broker].stop())
        if not self._makes_pods:
            return
        if delete_pod:
            self._rest.delete(f"{self._pods}/{broker}?gracePeriodSeconds=0")
        else:
            self._set_ready(broker, ready=False)

    def revive(self, broker: str) -> None:
        """Start a killed broker again, with new counters and a Ready pod."""
        self._call(self._brokers[broker].start())
        if not self._makes_pods:
            return
        if any(pod["metadata"]["name"] == broker for pod in self._rest.get(self._pods)["items"]):
            self._set_ready(broker, ready=True)
        else:
            self._create_pod(self._brokers[broker].shape)

    def mute_metrics(self, broker: str) -> None:
        """Make a broker refuse `/metrics`. Otherwise it works as before."""
        self._call(self._brokers[broker].close_metrics())

    def unmute_metrics(self, broker: str) -> None:
        """Make a broker serve `/metrics` again. Its counters continued in the meantime."""
        self._call(self._brokers[broker].open_metrics())

    def deafen(self, broker: str) -> None:
        """Let a broker ignore desired owners. It neither releases nor takes bundles, but still serves its own."""
        self._call(self._brokers[broker].hear(deaf=True))

    def undeafen(self, broker: str) -> None:
        """Let a broker follow desired owners again, and carry out those that it missed."""
        self._call(self._brokers[broker].hear(deaf=False))

    # -- inside --

    @property
    def _pods(self) -> str:
        return f"/api/v1/namespaces/{self.namespace}/pods"

    def _path(self, plural: str) -> str:
        return f"/apis/{API_VERSION}/namespaces/{self.namespace}/{plural}"

    def _call(self, coroutine: Coroutine[Any, Any, _T]) -> _T:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(timeout=60)

    async def _start(self) -> None:
        configuration = client.Configuration()
        await config.load_kube_config(  # type: ignore[no-untyped-call]
            str(self._kubeconfig), client_configuration=configuration
        )
        self._client = client.ApiClient(configuration)
        api = client.CustomObjectsApi(self._client)
        for broker in self.scenario.brokers:
            simulated = SimulatedBroker(
                broker.shape, self._catalogue, self._spellings, api, self.namespace, on_serving=self._on_serving
            )
            self._brokers[broker.shape.name] = simulated
            await simulated.start()

    async def _stop(self) -> None:
        await asyncio.gather(*(broker.stop() for broker in self._brokers.values()))
        await self._client.close()  # type: ignore[no-untyped-call]
        await asyncio.sleep(0.25)  # TLS connections need a moment to close

    async def _scale(self, bundle: str, factor: float) -> None:
        for broker in self._brokers.values():
            broker.count()
        self._catalogue.scale(bundle, factor)

    async def _serving(self) -> Mapping[str, frozenset[str]]:
        return {name: broker.serving for name, broker in self._brokers.items()}

    async def _cpu(self) -> Mapping[str, float]:
        return {name: broker.cpu for name, broker in self._brokers.items()}

    def _seed_namespace(self, shape: NamespaceShape) -> None:
        spec = TopicNamespaceSpec(tenant=shape.tenant, name=shape.name, bundles=shape.bundles)
        name = topic_namespace_name(shape.tenant, shape.name)
        manifest = {
            "apiVersion": API_VERSION,
            "kind": "TopicNamespace",
            "metadata": {"name": name},
            "spec": spec.model_dump(by_alias=True),
        }
        created = self._rest.create(self._path("topicnamespaces"), manifest)
        for bundle in first_bundles(name, created["metadata"]["uid"], spec):
            owner = self._owners[self._spellings[bundle["metadata"]["name"]]]
            self._rest.create(self._path("bundles"), {**bundle, "spec": {**bundle["spec"], "owner": owner}})

    def _create_pod(self, shape: BrokerShape) -> None:
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": shape.name, "labels": POD_LABELS},
            "spec": pod_spec(shape.cores, shape.memory),
        }
        self._rest.create(self._pods, pod)
        self._set_ready(shape.name, ready=True)

    def _set_ready(self, broker: str, *, ready: bool) -> None:
        self._rest.patch(f"{self._pods}/{broker}/status", {"status": running_status(ready=ready)})


def pod_spec(cores: float, memory: float) -> dict[str, Any]:
    """Spec of a broker's pod with its limits (memory: bytes). It names a node, so that no scheduler is needed."""
    limits = {"cpu": f"{round(cores * 1000)}m", "memory": str(round(memory))}
    container = {"name": CONTAINER, "image": "apachepulsar/pulsar", "resources": {"limits": limits}}
    return {"containers": [container], "nodeName": _NODE}


def running_status(*, ready: bool) -> dict[str, Any]:
    """Status that a kubelet would write for a running pod. ready: whether the pod is Ready from now on."""
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    condition = {"type": "Ready", "status": "True" if ready else "False", "lastTransitionTime": now}
    return {"phase": "Running", "podIP": "127.0.0.1", "conditions": [condition]}


class Spellings(Mapping[str, str]):
    """Name of a Bundle object -> the bundle's name in Pulsar, even for bundles that a later split creates."""

    def __init__(self, bundles: Iterable[str]) -> None:
        """bundles: names in Pulsar's spelling."""
        self._known = {object_name(bundle): bundle for bundle in bundles}
        self._spaces = {_RANGE.sub("", name): full.rpartition("/")[0] for name, full in self._known.items()}

    def __getitem__(self, name: str) -> str:
        """Raises `KeyError` for a bundle whose namespace is not known."""
        if name not in self._known and (found := _RANGE.search(name)) is not None:
            self._known[name] = f"{self._spaces[_RANGE.sub('', name)]}/{found[1]}_{found[2]}"
        return self._known[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._known)

    def __len__(self) -> int:
        return len(self._known)


def object_name(bundle: str) -> str:
    """Name of the Bundle object of a bundle in Pulsar's spelling."""
    return bundle_name(*parse_pulsar_bundle(bundle))


def landed(bundle: Mapping[str, Any]) -> bool:
    """Whether a Bundle object's owner is the desired one, and its broker has confirmed the newest desired owner."""
    status = bundle.get("status", {})
    settled = status.get("observedGeneration", 0) >= bundle["metadata"]["generation"]
    return bool(settled and status.get("owner") and status["owner"] == bundle["spec"].get("owner"))
