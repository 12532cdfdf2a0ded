"""Time until all objects of a large Pulsar cluster exist, and the cost of the mirror that keeps them in sync.

The cluster is a simulated admin REST API in a process of its own. The API server and etcd are real. The benchmark
measures:
- bundles written a second until all objects exist;
- for 130 seconds without changes (`--seconds`): requests a second to brokers, writes (there should be none),
  processor time of the mirror, and stalls of its event loop;
- seconds until a change made in Pulsar is in the object.

    python benchmarks/mirror.py --brokers 100 --namespaces 100 --bundles 600
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any

from stalls import heartbeat, until
from trimtab_operator.app import new_cluster
from trimtab_operator.kube.client import Api
from trimtab_operator.kube.naming import broker_name_of_address, topic_namespace_name
from trimtab_operator.kube.records import topic_namespace_record
from trimtab_operator.pulsar.bridge.sync.diff import bundle_changes
from trimtab_operator.pulsar.bridge.sync.loop import ClusterSync
from trimtab_operator.pulsar.client.http import connected
from trimtab_operator.resources import crd
from trimtab_operator.resources.broker import DISCOVERED
from trimtab_operator.resources.common import API_VERSION
from trimtab_operator.resources.pulsar import PulsarSpec
from trimtab_operator.state.cluster import ClusterState
from trimtab_operator.telemetry.metrics import Metrics
from trimtab_operator.watched_namespaces import following
from trimtab_testbed.programs import find
from trimtab_testbed.servers.kube import ControlPlane

sys.path += [
    str(Path(__file__).parents[1] / "tests" / "support" / part) for part in ("", "kube", "policies", "pulsar_parts")
]

from many_bundles import make_bundles
from pulsar_admin import FakePulsar
from static_sources import StaticSource, StaticSources
from strategy_testing.clusters import cluster

SUPPORT = Path(__file__).parents[1] / "tests" / "support"
NAMESPACE = "messaging"


def started(asked: argparse.Namespace) -> tuple[subprocess.Popen[str], str]:
    """The simulated admin REST API, and its URL."""
    names = ("brokers", "namespaces", "bundles", "port")
    sizes = [word for name in names for word in (f"--{name}", str(getattr(asked, name)))]
    command = [sys.executable, str(SUPPORT / "pulsar_parts" / "pulsar_admin.py"), *sizes]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    return process, process.stdout.readline().strip()


def told(url: str) -> Any:
    """The answer of the admin REST API."""
    with urllib.request.urlopen(url, timeout=30) as answer:
        return json.load(answer)


def put(url: str) -> None:
    """Make a change in the simulated cluster."""
    with urllib.request.urlopen(urllib.request.Request(url, method="PUT"), timeout=30):
        pass


def writes(context: ClusterState) -> float:
    """Number of writes of the mirror."""
    return sum(s.value for m in context.metrics.mirror_writes.collect() for s in m.samples if s.name.endswith("_total"))


def complete(context: ClusterState, bundles: int) -> bool:
    """Whether every bundle has its object and owner, and all namespaces are ready."""
    items = context.stores.bundles.items
    if len(items) < bundles or not all(b.status_owner for b in items.values()):
        return False
    return all(space.bundles for space in context.stores.topic_namespaces.items.values())


def seed(plane: ControlPlane, asked: argparse.Namespace) -> None:
    """Write all objects into etcd as the mirror would create them, without the status of TopicNamespaces."""
    admin, path = (
        FakePulsar.large(asked.brokers, asked.namespaces, asked.bundles, asked.port),
        f"/apis/{API_VERSION}/namespaces",
    )
    spaces = {}
    for full in admin.spaces:
        name = topic_namespace_name(*full.split("/"))
        body = {"metadata": {"name": name, "labels": {DISCOVERED: "true"}}, "kind": "TopicNamespace"}
        spec = {"tenant": "t", "name": full.partition("/")[2], "bundles": asked.bundles}
        made = plane.rest.create(
            f"{path}/{NAMESPACE}/topicnamespaces", {**body, "apiVersion": API_VERSION, "spec": spec}
        )
        spaces[full] = topic_namespace_record(made)
    owners = {bundle: broker_name_of_address(broker) for bundle, broker in admin.owners.items()}
    births = [
        birth
        for full, space in spaces.items()
        for birth in bundle_changes(admin.spaces[full], space, (), owners, 0).create
    ]
    make_bundles(plane, NAMESPACE, [birth.manifest for birth in births])


async def first(context: ClusterState, bundles: int) -> dict[str, float]:
    """Figures of the first sync."""
    begun, cpu = time.monotonic(), time.process_time()
    async with heartbeat() as heart:
        await until(lambda: complete(context, bundles), within=7200.0)
    seconds = time.monotonic() - begun
    computed = time.process_time() - cpu
    return {
        "seconds": seconds,
        "bundles_per_s": bundles / seconds,
        "writes_per_s": writes(context) / seconds,
        "cpu_s": computed,
        **heart.worst(),
    }


async def steady(context: ClusterState, url: str, seconds: float) -> dict[str, float]:
    """Figures of `seconds` seconds without changes."""
    asked, written = told(f"{url}/counts")["requests"], writes(context)
    begun, cpu = time.monotonic(), time.process_time()
    async with heartbeat() as heart:
        await asyncio.sleep(seconds)
    elapsed = time.monotonic() - begun
    metric = {s.labels["part"]: s.value for m in context.metrics.mirror_seconds.collect() for s in m.samples}
    return {
        "requests_per_s": (told(f"{url}/counts")["requests"] - asked) / elapsed,
        "writes": writes(context) - written,
        "cpu_ratio": (time.process_time() - cpu) / elapsed,
        "owners_s": metric.get("owners", 0.0),
        "namespaces_s": metric.get("namespaces", 0.0),
        "peak_rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        **heart.worst(),
    }


async def change(context: ClusterState, url: str) -> dict[str, float]:
    """Seconds until the object names the new broker of its bundle."""
    bundle = next(iter(context.stores.bundles.items.values()))
    ids = context.link.ids or {}
    other = next(name for name in ids if name != bundle.status_owner)
    space = context.stores.topic_namespaces.items[bundle.topic_namespace].full_name
    path = f"{url}/serve/{space}/{bundle.lower}_{bundle.upper}?broker={ids[other]}"
    await asyncio.to_thread(put, path)
    begun = time.monotonic()
    await until(lambda: context.stores.bundles.items[bundle.name].status_owner == other)
    return {"seconds": time.monotonic() - begun}


async def measured(plane: ControlPlane, url: str, asked: argparse.Namespace) -> dict[str, Any]:
    """The figures of all three parts."""
    async with Api.connect(str(plane.kubeconfig)) as api, connected(url, requests_per_second=asked.rate) as admin:
        context = new_cluster(api, NAMESPACE, StaticSources(StaticSource(cluster(bundles=1, a=0.5))), Metrics())
        context.link.spec = PulsarSpec(admin_url=url, requests_per_second=asked.rate)
        async with following(context):
            for store in context.stores.all():
                await store.synced.wait()
            mirror = asyncio.create_task(ClusterSync(context, admin).run())
            try:
                found = {"first": await first(context, asked.namespaces * asked.bundles)}
                found["steady"] = await steady(context, url, asked.seconds)
                found["change"] = await change(context, url)
            finally:
                mirror.cancel()
    return found


def main() -> None:
    """Measure, and print the figures as JSON."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name, default in (
        ("brokers", 100),
        ("namespaces", 100),
        ("bundles", 600),
        ("rate", 20),
        ("seconds", 130),
        ("port", 18480),
    ):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--seeded", action="store_true", help="start with all objects in etcd; skip the first sync")
    asked = parser.parse_args()
    process, url = started(asked)
    try:
        with tempfile.TemporaryDirectory() as folder, ControlPlane(find.find_kube(), Path(folder) / "plane") as plane:
            plane.rest.apply_crds(crd.manifests().values())
            plane.rest.create_namespace(NAMESPACE)
            if asked.seeded:
                seed(plane, asked)
            found = asyncio.run(measured(plane, url, asked))
    finally:
        process.terminate()
        process.wait()
    print(json.dumps({"load": os.getloadavg()[0], **found}, indent=2))


if __name__ == "__main__":
    main()
