"""A large cluster in a real kube-apiserver and etcd: created once, kept in the cache folder, and copied for each run.

Every bundle is served by its desired owner, as in a cluster that has run for a while.
"""

from __future__ import annotations

import hashlib
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from http import HTTPStatus
from pathlib import Path
from typing import Any

from large_cluster import Size, workload
from trimtab_operator.kube.naming import topic_namespace_name
from trimtab_operator.reconcile.namespaces import first_bundles
from trimtab_operator.resources import crd
from trimtab_operator.resources.common import API_VERSION
from trimtab_operator.resources.topic_namespace import TopicNamespaceSpec
from trimtab_strategies.model import ClusterLoad
from trimtab_testbed.programs import build, find
from trimtab_testbed.servers.kube import ControlPlane
from trimtab_testbed.servers.kube_rest import KubeApiError, KubeRest

sys.path.append(str(Path(__file__).parents[1] / "tests" / "support" / "kube"))

from many_bundles import SINCE, make_bundles

NAMESPACE = "messaging"
RECIPE = "3"
"""Version of the content that is written into etcd. Increase it when that content changes."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """A running cluster: its size and its control plane."""

    size: Size
    plane: ControlPlane

    @property
    def bundles(self) -> int:
        """The number of bundles."""
        return self.size.brokers * self.size.per_broker

    @property
    def kubeconfig(self) -> str:
        """Path of the administrator's kubeconfig."""
        return str(self.plane.kubeconfig)


def path(plural: str, name: str = "", sub: str = "") -> str:
    """URL path of one of our objects, or of all objects of a kind."""
    return "/".join(filter(None, (f"/apis/{API_VERSION}/namespaces/{NAMESPACE}/{plural}", name, sub)))


def load_of(size: Size, *, hot: bool) -> ClusterLoad:
    """The load of a cluster of `size`, with the names of Broker objects."""
    load = workload(size, hot=hot)
    return replace(load, brokers=replace(load.brokers, names=broker_names(size)))


def broker_names(size: Size) -> tuple[str, ...]:
    return tuple(f"broker-{k:04d}" for k in range(size.brokers))


@contextmanager
def cluster(size: Size) -> Iterator[Cluster]:
    """A control plane with a cluster of that size, while the block runs."""
    seed = build.cache_root() / f"scale-{size}-{_key(size)}"
    with tempfile.TemporaryDirectory(prefix="trimtab-scale-") as folder:
        work = Path(folder) / "plane"
        if not seed.exists():
            _seed(size, Path(folder) / "seeding", seed)
        shutil.copytree(seed, work / "etcd")
        with ControlPlane(find.find_kube(), work) as plane:
            _wait_until_listed(plane)
            yield Cluster(size, plane)


def _wait_until_listed(plane: ControlPlane) -> None:
    """Wait until the server lists bundles: while it fills its cache, it answers 429."""
    deadline = time.monotonic() + 300
    while True:
        try:
            plane.rest.get(path("bundles") + "?fieldSelector=spec.owner=none")
        except KubeApiError as error:
            if error.status != HTTPStatus.TOO_MANY_REQUESTS or time.monotonic() > deadline:
                raise
            time.sleep(0.2)
        else:
            return


def _key(size: Size) -> str:
    return hashlib.sha256(repr((size, RECIPE, find.version(), crd.manifests())).encode()).hexdigest()[:16]


def _seed(size: Size, work: Path, seed: Path) -> None:
    """Create the cluster, and keep etcd's folder as `seed`."""
    with ControlPlane(find.find_kube(), work) as plane:
        plane.rest.apply_crds(crd.manifests().values())
        plane.rest.create_namespace(NAMESPACE)
        for name in broker_names(size):
            plane.rest.create(path("brokers"), _object("Broker", name, {"pod": name}))
            plane.rest.patch(path("brokers", name, "status"), {"status": {"ready": True}})
        bundles = [bundle for k in range(size.brokers) for bundle in _bundles(plane.rest, size, k)]
        make_bundles(plane, NAMESPACE, bundles)
    for outdated in seed.parent.glob(f"scale-{size}-*"):
        shutil.rmtree(outdated)
    shutil.copytree(work / "etcd", seed.with_suffix(".part"))
    seed.with_suffix(".part").rename(seed)


def _object(kind: str, name: str, spec: Mapping[str, Any]) -> dict[str, Any]:
    return {"apiVersion": API_VERSION, "kind": kind, "metadata": {"name": name}, "spec": spec}


def _bundles(rest: KubeRest, size: Size, k: int) -> list[dict[str, Any]]:
    """Create the k-th topic namespace; returns the manifests of its bundles, which the k-th broker owns."""
    spec = TopicNamespaceSpec(tenant="t", name=f"n{k}", bundles=size.per_broker)
    name, owner = topic_namespace_name("t", f"n{k}"), broker_names(size)[k]
    created = rest.create(path("topicnamespaces"), _object("TopicNamespace", name, spec.model_dump(by_alias=True)))
    chosen = {"owner": owner, "policy": "main", "epoch": 1, "reason": "Underloaded", "time": SINCE}
    desired = {"owner": owner, "assignment": chosen}
    return [
        {**made, "spec": {**made["spec"], **desired}} for made in first_bundles(name, created["metadata"]["uid"], spec)
    ]
