"""A large cluster in a real kube-apiserver and etcd: made once, kept in the cache folder, begun anew on a copy.

Every bundle is served by the broker it is wished on, as in a cluster that has a past. The first one is written through
the API server; the others are put into etcd as copies of what that made of it: a create and a status write of each
through the server would take minutes.
"""

from __future__ import annotations

import base64
import hashlib
import json
import shutil
import tempfile
import time
import urllib.request
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from http import HTTPStatus
from pathlib import Path
from typing import Any

import yaml

from large_cluster import Size, workload
from trimtab_operator.cluster.naming import topic_namespace_name
from trimtab_operator.control.cutting import first_bundles
from trimtab_operator.resources.common import API_VERSION
from trimtab_operator.resources.topic_namespace import TopicNamespaceSpec
from trimtab_strategies.model import ClusterLoad
from trimtab_testbed import binaries, go_build
from trimtab_testbed.control_plane import ControlPlane
from trimtab_testbed.kube_rest import KubeApiError, KubeRest

NAMESPACE = "messaging"
CRDS = Path(__file__).parents[1] / "crds"
RECIPE = "2"
"""Raised when what is put into etcd changes."""

PUTS = 100
"""Objects in one transaction of etcd, which takes 128."""

_BEFORE = "2026-01-01T00:00:00Z"


@dataclass(frozen=True, slots=True)
class Cluster:
    """How to reach a running one."""

    size: Size
    plane: ControlPlane

    @property
    def bundles(self) -> int:
        """How many there are."""
        return self.size.brokers * self.size.per_broker

    @property
    def kubeconfig(self) -> str:
        """Path of the administrator's."""
        return str(self.plane.kubeconfig)


def path(plural: str, name: str = "", sub: str = "") -> str:
    """Path of one of our objects, or of all of a kind."""
    return "/".join(filter(None, (f"/apis/{API_VERSION}/namespaces/{NAMESPACE}/{plural}", name, sub)))


def load_of(size: Size, *, hot: bool) -> ClusterLoad:
    """What such a cluster carries, its brokers named like objects."""
    load = workload(size, hot=hot)
    return replace(load, brokers=replace(load.brokers, names=broker_names(size)))


def broker_names(size: Size) -> tuple[str, ...]:
    """Names of the Broker objects."""
    return tuple(f"broker-{k:04d}" for k in range(size.brokers))


@contextmanager
def cluster(size: Size, *, audit: bool = False) -> Iterator[Cluster]:
    """A control plane with a cluster of that size, for as long as the block runs."""
    seed = go_build.cache_root() / f"scale-{_key(size)}"
    with tempfile.TemporaryDirectory(prefix="trimtab-scale-") as folder:
        work = Path(folder) / "plane"
        if not seed.exists():
            _seed(size, Path(folder) / "seeding", seed)
        shutil.copytree(seed, work / "etcd")
        with ControlPlane(binaries.find(), work, audit=audit) as plane:
            _wait_until_listed(plane)
            yield Cluster(size, plane)


def _wait_until_listed(plane: ControlPlane) -> None:
    """The server answers 429 from its cache while it fills that."""
    deadline = time.monotonic() + 60
    while True:
        try:
            plane.rest.get(path("bundles") + "?fieldSelector=spec.owner=nobody")
        except KubeApiError as error:
            if error.status != HTTPStatus.TOO_MANY_REQUESTS or time.monotonic() > deadline:
                raise
            time.sleep(0.2)
        else:
            return


def _key(size: Size) -> str:
    crds = b"".join(file.read_bytes() for file in sorted(CRDS.glob("*.yaml")))
    return hashlib.sha256(repr((size, RECIPE, binaries.version())).encode() + crds).hexdigest()[:16]


def _seed(size: Size, work: Path, seed: Path) -> None:
    """Make the cluster, and keep etcd's folder as `seed`."""
    with ControlPlane(binaries.find(), work) as plane:
        plane.rest.apply_crds([document for file in sorted(CRDS.glob("*.yaml")) for document in _documents(file)])
        plane.rest.create_namespace(NAMESPACE)
        for name in broker_names(size):
            plane.rest.create(path("brokers"), _object("Broker", name, {"pod": name}))
            plane.rest.patch(path("brokers", name, "status"), {"status": {"ready": True}})
        bundles = [bundle for k in range(size.brokers) for bundle in _bundles(plane.rest, size, k)]
        stored = _stored(plane, bundles[0])
        for at in range(1, len(bundles), PUTS):
            _put(plane, [_copy(stored, bundle) for bundle in bundles[at : at + PUTS]])
    seed.parent.mkdir(parents=True, exist_ok=True)
    shutil.copytree(work / "etcd", seed.with_suffix(".part"), dirs_exist_ok=True)
    seed.with_suffix(".part").rename(seed)


def _documents(file: Path) -> list[Any]:
    return list(yaml.safe_load_all(file.read_text()))


def _object(kind: str, name: str, spec: Mapping[str, Any]) -> dict[str, Any]:
    return {"apiVersion": API_VERSION, "kind": kind, "metadata": {"name": name}, "spec": spec}


def _bundles(rest: KubeRest, size: Size, k: int) -> list[dict[str, Any]]:
    """Create the k-th topic namespace; manifests of its bundles, which the k-th broker has."""
    spec = TopicNamespaceSpec(tenant="t", name=f"n{k}", bundles=size.per_broker)
    name, owner = topic_namespace_name("t", f"n{k}"), broker_names(size)[k]
    created = rest.create(path("topicnamespaces"), _object("TopicNamespace", name, spec.model_dump(by_alias=True)))
    chosen = {"owner": owner, "policy": "main", "epoch": 1, "reason": "Underloaded", "time": _BEFORE}
    wish = {"owner": owner, "assignment": chosen}
    return [
        {**made, "spec": {**made["spec"], **wish}} for made in first_bundles(name, created["metadata"]["uid"], spec)
    ]


def _stored(plane: ControlPlane, bundle: Mapping[str, Any]) -> dict[str, Any]:
    """How the API server stores a bundle that its broker has confirmed."""
    plane.rest.create(path("bundles"), bundle)
    plane.rest.patch(path("bundles", bundle["metadata"]["name"], "status"), {"status": _status(bundle)})
    found = _etcd(plane, "range", {"key": _encoded(_place(bundle))})
    return dict(json.loads(base64.b64decode(found["kvs"][0]["value"])))


def _status(bundle: Mapping[str, Any]) -> dict[str, Any]:
    return {"owner": bundle["spec"]["owner"], "state": "Owned", "since": _BEFORE, "observedGeneration": 1}


def _copy(stored: Mapping[str, Any], bundle: Mapping[str, Any]) -> dict[str, Any]:
    """`stored`, as if it had been made of another manifest."""
    meta = {**stored["metadata"], **bundle["metadata"], "uid": str(uuid.uuid4())}
    return {**stored, "metadata": meta, "spec": bundle["spec"], "status": _status(bundle)}


def _place(bundle: Mapping[str, Any]) -> str:
    return f"/registry/trimtab.dev/bundles/{NAMESPACE}/{bundle['metadata']['name']}"


def _put(plane: ControlPlane, bundles: Sequence[Mapping[str, Any]]) -> None:
    puts = [
        {"key": _encoded(_place(one)), "value": _encoded(json.dumps(one, separators=(",", ":")))} for one in bundles
    ]
    _etcd(plane, "txn", {"success": [{"requestPut": put} for put in puts]})


def _encoded(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


def _etcd(plane: ControlPlane, call: str, body: Mapping[str, Any]) -> dict[str, Any]:
    request = urllib.request.Request(f"{plane.etcd_url}/v3/kv/{call}", json.dumps(body).encode())
    with urllib.request.urlopen(request, timeout=60) as answer:
        return dict(json.load(answer))
