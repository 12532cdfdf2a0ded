"""A small cluster with real Pulsar brokers: real API server, real Prometheus, the operator under its own Role.

Brokers are processes, so their pods are objects without containers. `pulsar-broker-0` is the first broker, and so on.
The kubelet's metrics of the brokers come from ``/proc``. No limit is in force: what counts as 100 % of a broker is the
capacity of its Broker object, which it can exceed.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from http import HTTPStatus
from pathlib import Path
from typing import Any

import pytest

import manifests
from pulsar_witness import Witness
from real_pulsar.clients import ClientTraffic, Flow, topics_of
from real_pulsar.cluster import PulsarCluster
from real_pulsar.exporter import Kubelet, PodLimits, broker_targets
from real_pulsar.rest import PulsarRest, PulsarRestError
from real_pulsar.settings import LoadManagerKind
from shipped_role import shipped_kubeconfig
from small_cluster import API, NAMESPACE, QUICK_LEASE, OperatorProcess, SmallCluster, until
from trimtab_operator.cli.common import NO_SPARK
from trimtab_operator.resources import crd
from trimtab_testbed.programs.find import KubeBinaries
from trimtab_testbed.servers.kube_rest import KubeApiError
from trimtab_testbed.servers.prometheus import PrometheusServer, Target
from trimtab_testbed.simulated.cluster import POD_LABELS, landed

TENANT = "e2e"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"

SMALL_BROKERS = PodLimits(cores=0.15)
"""Limits of brokers of which a few hundred msg/s use most of the CPU."""

BY_RATE: Mapping[str, Any] = {
    "shedder": {
        "type": "WeightedBalancer",
        "weightedBalancer": {
            "targetWeights": "Average",
            "measure": "MessageRate",
            "stabilization": "5s",
            "minChange": 10,
            "spreadPercent": 1000,
        },
    },
    "placement": {"type": "LeastResourceUsageWithWeight"},
}
"""Strategies that balance brokers by messages per second, within seconds."""

_numbers = itertools.count(1)


def only(manager: LoadManagerKind) -> pytest.MarkDecorator:
    """Mark a test that does not depend on the load manager: it runs only with this one."""
    return pytest.mark.parametrize("load_manager", [manager], indirect=True, ids=str, scope="session")


class RealPulsarCluster(SmallCluster):
    """Context manager. `cluster` runs before and afterwards. The test applies a policy.

    limits: what counts as 100 % of a broker (`exporter.PodLimits`). honor_labels: how Prometheus scrapes the brokers.
    scrape_interval: seconds, in which a broker must answer with a page; on a busy machine that takes more than 1 s.
    spark: as in ``trimtab run --spark``.
    """

    def __init__(
        self,
        binaries: KubeBinaries,
        prometheus: Path,
        work_dir: Path,
        cluster: PulsarCluster,
        *,
        limits: PodLimits | None = None,
        honor_labels: bool = False,
        scrape_interval: float = 1.0,
        spark: str = NO_SPARK,
    ) -> None:
        super().__init__(binaries, prometheus, work_dir, spark=spark)
        self.cluster, self._limits, self._honor = cluster, limits or PodLimits(), honor_labels
        self._scrape_interval = scrape_interval
        self.names = self._shown = tuple(f"pulsar-broker-{n}" for n in range(len(cluster.ids)))
        self.begun = time.time()
        self._made: list[str] = []

    def _start(self) -> None:
        self._enter(self.control_plane)
        self.rest = self.control_plane.rest
        self.rest.apply_crds(crd.manifests().values())
        self.rest.create_namespace(NAMESPACE)
        self.kubelet = self._enter(Kubelet(self.cluster, self.names, NAMESPACE, self._limits))
        prometheus = PrometheusServer(
            self._prometheus_program, self.dir / "prometheus", scrape_interval=self._scrape_interval
        )
        self.prometheus = self._enter(prometheus)
        for name, address in zip(self.names, self.cluster.ids, strict=True):
            self._create_broker(name, address)
        self._kubeconfig = shipped_kubeconfig(self.control_plane)
        self.operator = self._operator(self.dir)
        self._open.append(self.operator)
        self.operator.start()

    def _operator(self, work_dir: Path, **options: Any) -> OperatorProcess:
        flags = {**QUICK_LEASE, **self._options}
        return OperatorProcess(self._kubeconfig, work_dir, started=self._scrape, options=flags, **options)

    def _scrape(self) -> None:
        """Have Prometheus scrape everything, including the operator's current address."""
        brokers = broker_targets(self.cluster, self._shown, NAMESPACE, honor_labels=self._honor)
        labels = {"namespace": NAMESPACE, "pod": "trimtab-0", "job": "trimtab"}
        self.prometheus.set_targets(
            [self.kubelet.target, *brokers, Target(self.operator.url.removeprefix("http://"), labels)]
        )

    # -- the operator and its view --

    def show_as(self, *names: str) -> None:
        """Have Prometheus take each broker's own page for the page of the pod at its position in `names`."""
        self._shown = names
        self._scrape()

    @contextmanager
    def hasty(self) -> Iterator[None]:
        """Replace the operator by one that quickly distrusts Prometheus (`hasty_operator`)."""
        usual = self.operator
        usual.stop()
        program = [str(Path(__file__).with_name("hasty_operator.py"))]
        self.operator = self._operator(self.dir / "hasty", program=program)
        try:
            self.operator.start()
            yield
        finally:
            self.operator.stop()
            self.operator = usual

    # -- Pulsar --

    @property
    def admin(self) -> PulsarRest:
        """The admin REST of the first running broker."""
        return self.cluster.rest(next(n for n in range(len(self.names)) if self.cluster.running(n)))

    def name_of(self, broker_id: str) -> str:
        """Name of the Broker object of the broker with this id."""
        return self.names[self.cluster.ids.index(broker_id)]

    def id_of(self, name: str) -> str:
        """Id of the broker with this name."""
        return self.cluster.ids[self.names.index(name)]

    def new_namespace(self, bundles: int, word: str = "ns") -> str:
        """A new Pulsar namespace, ``e2e/WORD-n``, which is deleted at the end of the test."""
        namespace = f"{TENANT}/{word}-{next(_numbers)}"
        self.admin.create_namespace(namespace, bundles)
        self._made.append(namespace)
        return namespace

    def put(self, bundle: str, broker: str) -> None:
        """Have a broker (name) serve a bundle (Pulsar's spelling) now, for set-up."""
        wanted, (topic,) = self.id_of(broker), topics_of(bundle, 1)

        def there() -> bool:
            try:
                owner = self.admin.owners(bundle.rpartition("/")[0]).get(bundle) or self.admin.lookup(topic)
                if owner != wanted:
                    self.admin.unload(bundle, wanted)
                    self.admin.lookup(topic)
            except (OSError, PulsarRestError):  # a broker that has just started needs time
                return False
            return owner == wanted

        until(f"{bundle} is served by {broker}", there, within=90)

    def traffic(self, flows: Iterable[Flow]) -> ClientTraffic:
        """Clients of the cluster, as a context manager."""
        return ClientTraffic(self.cluster.service_url, flows, token=self.cluster.token(), log=self.dir / "clients.log")

    def witness(self, *namespaces: str) -> Witness:
        """A witness of all owners, as a context manager."""
        return Witness(self, namespaces)

    def truth(self, namespace: str = "") -> dict[str, str]:
        """Name of the serving broker by bundle (Pulsar's spelling), of one namespace or of all."""
        owners = self.admin.owners().items()
        return {bundle: self.name_of(owner) for bundle, owner in owners if bundle.startswith(namespace)}

    # -- faults of brokers --

    def kill_broker(self, name: str) -> None:
        """Kill a broker with SIGKILL; its pod is no longer Ready."""
        self.cluster.kill(self.names.index(name))
        self.set_ready(name, ready=False)

    def revive_broker(self, name: str) -> None:
        """Start a broker again under its old id, and wait until it serves."""
        self.cluster.start_broker(self.names.index(name))
        self.set_ready(name, ready=True)

    def set_ready(self, name: str, *, ready: bool) -> None:
        """Set the status of a broker's pod, as a kubelet would."""
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        condition = {"type": "Ready", "status": "True" if ready else "False", "lastTransitionTime": now}
        status = {"phase": "Running", "podIP": "127.0.0.1", "conditions": [condition]}
        self.rest.patch(f"{PODS}/{name}/status", {"status": status})

    def set_started(self) -> None:
        """Set the start of all pods to now, as a kubelet does."""
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        for name in self.names:
            self.rest.patch(f"{PODS}/{name}/status", {"status": {"startTime": now}})

    # -- a person's part --

    def apply_policy(self, **spec: Any) -> None:
        """Create the policy, with a link to the cluster, a cycle every two seconds, and short times.

        Fields in `spec` replace these defaults, also single fields of `pulsar`, `prometheus` and `limits`.
        """
        prometheus = {"url": self.prometheus.url, "window": "5s", "maxAge": "10s", "timeout": "5s"}
        pulsar = {"adminUrl": self.admin.url, **spec.pop("pulsar", {})}
        base = {
            "mode": "DryRun",
            "interval": "2s",
            "brokers": {"podLabels": POD_LABELS},
            "source": {"prometheus": {**prometheus, **spec.pop("prometheus", {})}},
            "shedder": {
                "type": "UniformLoadShedder",
                "uniformLoadShedder": {"minRate": 10, "minThroughput": 0, "throughputFactor": 0},
            },
            "placement": {"type": "LeastResourceUsageWithWeight"},
        }
        limits = {"coolDown": "5s", "moveTimeout": "15s", "lostAfter": "5s", **spec.pop("limits", {})}
        policy = manifests.policy("policy", **{**base, **spec, "pulsar": pulsar, "limits": limits})
        self.rest.create(f"{API}/balancingpolicies", policy)

    # -- a person's view --

    def bundles(self) -> dict[str, dict[str, Any]]:
        """The Bundle objects by name."""
        return {item["metadata"]["name"]: item for item in self.rest.get(f"{API}/bundles")["items"]}

    def owners(self) -> dict[str, str]:
        """Owner of each bundle, by its object."""
        return {name: bundle.get("status", {}).get("owner", "") for name, bundle in self.bundles().items()}

    def desired_owners(self) -> dict[str, str]:
        return {name: bundle["spec"].get("owner", "") for name, bundle in self.bundles().items()}

    def broker_status(self, name: str) -> dict[str, Any]:
        status: dict[str, Any] = self.rest.get(f"{API}/brokers/{name}").get("status", {})
        return status

    def settled(self) -> bool:
        """Whether every served bundle is served by its desired owner."""
        return all(landed(bundle) for bundle in self.bundles().values() if bundle.get("status", {}).get("owner"))

    # -- clean-up --

    def _unlinked(self) -> bool:
        return "\ntrimtab_pulsar_linked NaN" in self.operator.page("metrics")[1]

    def reset(self) -> None:
        """Return to the start: all brokers and the operator run; no policy, no namespace, no bundle."""
        self._shown = self.names
        if not self.operator.running:
            self.operator.start()
        self._scrape()
        self.drop_policy()
        until(
            "the operator looks at Pulsar no more", self._unlinked, within=90
        )  # from then on, `put` does not count as a move
        for name in self.names:
            if not self.cluster.running(self.names.index(name)):
                self.revive_broker(name)
        for namespace in self._made:
            self._delete_namespace(namespace)
        self._made = []
        for plural in ("bundlesplits", "topicnamespaces", "bundles"):
            self._clear(plural)

    def _delete_namespace(self, namespace: str) -> None:
        """Try once to delete a namespace: a topic that a killed broker left half closed may block this for minutes."""
        with suppress(OSError, PulsarRestError):
            self.admin.send("DELETE", f"/admin/v2/namespaces/{namespace}?force=true")

    def _clear(self, plural: str) -> None:
        def cleared() -> bool:
            items = self.rest.get(f"{API}/{plural}")["items"]
            for item in items:
                self._delete(f"{API}/{plural}/{item['metadata']['name']}")
            return not items

        until(f"no {plural} are left", cleared)

    def _delete(self, path: str) -> None:
        try:
            self.rest.delete(path)
        except KubeApiError as error:
            if error.status != HTTPStatus.NOT_FOUND:
                raise

    def _create_broker(self, name: str, address: str) -> None:
        """Create a broker's pod, and the Broker object with its address in Pulsar."""
        container = {"name": "broker", "image": "apachepulsar/pulsar"}
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "labels": POD_LABELS},
            "spec": {"containers": [container], "nodeName": "testbed"},
        }
        self.rest.create(PODS, pod)
        self.set_ready(name, ready=True)
        capacity = {"cpu": f"{round(1000 * self._limits.cores)}m", "memory": str(self._limits.memory)}
        broker = {
            "apiVersion": "trimtab.dev/v1alpha1",
            "kind": "Broker",
            "metadata": {"name": name},
            "spec": {"pod": name, "address": address, "capacity": capacity},
        }
        self.rest.create(f"{API}/brokers", broker)
