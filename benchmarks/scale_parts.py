"""The parts of `operator_at_scale.py`; each runs in a process of its own and returns figures by name.

The measured code is the operator's own, on its own event loop. The load is generated (`static_sources` of the
tests), so that neither Spark nor Prometheus is part of the figures.
"""

from __future__ import annotations

import asyncio
import json
import math
import ssl
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import numpy as np
import yaml
from kubernetes.aio import client, config

import trimtab_operator.cli.commands.run  # noqa: F401  (so that memory includes everything that `trimtab run` loads)
from large_cluster import Size
from scale_cluster import NAMESPACE, load_of, path
from stalls import heartbeat, until
from trimtab_operator.actuators import WRITERS, DeclarativeActuator
from trimtab_operator.aio import at_most, collect_seldom, freeze_heap
from trimtab_operator.app import new_cluster
from trimtab_operator.kube.client import MERGE_PATCH, POLICIES, Api
from trimtab_operator.kube.records import BundleRecord
from trimtab_operator.loop.policy_loop import PolicyLoop
from trimtab_operator.state.cluster import ClusterState
from trimtab_operator.telemetry.metrics import Metrics
from trimtab_operator.watched_namespaces import following
from trimtab_strategies.model import Reason
from trimtab_testbed.simulated.ownership import Ownership

sys.path.append(str(Path(__file__).parents[1] / "tests" / "support" / "policies"))

from static_sources import StaticSource, StaticSources

Figures = dict[str, float]

POLICY = {
    "mode": "Auto",
    "brokerInterval": "10s",
    "source": {"prometheus": {"url": "http://prometheus:9090"}},
    "shedder": {"type": "ThresholdShedder", "thresholdShedder": {"historyPercent": 0, "minThroughput": 0}},
    "placement": {"type": "LeastResourceUsageWithWeight", "leastResourceUsageWithWeight": {"historyPercent": 0}},
    "limits": {
        "maxMovesPerCycle": 10_000,
        "maxMovesPerBroker": 10_000,
        "maxMovesPerHour": 100_000,
        "moveTimeout": "10m",
    },
}


class Forgetful(Api):
    """An `Api` whose watches last for two seconds. Once `forget` is set, they get a 410 (expired version)."""

    forget = False

    def watch(self, ref: Any, namespace: str, resource_version: str, **options: Any) -> Any:
        """The watch of `Api` with another version and duration."""
        version = "1" if self.forget else resource_version
        return super().watch(ref, namespace, version, **{**options, "seconds": 2.0})


def resident() -> float:
    """The resident memory of this process in MB."""
    line = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmRSS"))
    return int(line.split()[1]) / 1024


@asynccontextmanager
async def complete(cluster: ClusterState) -> AsyncIterator[None]:
    """Wait until the stores are complete, then follow changes. Garbage is collected as in `trimtab run`."""
    collect_seldom()
    async with following(cluster):
        for store in cluster.stores.all():
            await store.synced.wait()
        freeze_heap()
        yield


# -- the stores --


def store(kubeconfig: str) -> Figures:
    """List everything, and again after a 410, as the operator does."""
    return asyncio.run(_store(kubeconfig))


async def _store(kubeconfig: str) -> Figures:
    figures: Figures = {"before_mb": resident()}
    async with Forgetful.connect(kubeconfig) as api:
        cluster = new_cluster(api, NAMESPACE, StaticSources(StaticSource(load_of(Size(10, 10), hot=False))), Metrics())
        async with heartbeat() as heart:
            begun, cpu = time.perf_counter(), time.process_time()
            async with complete(cluster):
                figures |= {"synced_s": time.perf_counter() - begun, "synced_cpu_s": time.process_time() - cpu}
                figures |= {"bundles": len(cluster.stores.bundles.items), "mb": resident(), **heart.worst()}
                figures |= {f"relist_{name}": value for name, value in (await _relist(api, cluster)).items()}
                figures["relist_mb"] = resident()
    return figures


async def _relist(api: Api, cluster: ClusterState) -> Figures:
    counters = cluster.stores.bundles.counters
    async with heartbeat() as heart:
        api.forget = True  # type: ignore[attr-defined]  (a `Forgetful`)
        await until(lambda: counters.gone)
        api.forget = False  # type: ignore[attr-defined]
        begun, lists = time.perf_counter(), counters.lists
        await until(lambda: counters.lists > lists)
        return {"s": time.perf_counter() - begun, **heart.worst()}


# -- a policy --


@dataclass
class Stage:
    """One policy's loop, run reconcile by reconcile, with live stores. patched: start time of each patch."""

    cluster: ClusterState
    loop: PolicyLoop
    source: StaticSource
    requests: Counter[str] = field(default_factory=Counter)
    patched: list[float] = field(default_factory=list)
    offset: float = 0.0

    async def cycle(self) -> None:
        """Run a reconcile in which a decision is due."""
        self.offset += 70.0
        await self.loop.reconcile()


@asynccontextmanager
async def stage(kubeconfig: str, size: Size, *, hot: bool) -> AsyncIterator[Stage]:
    """The policy `main` with a generated load."""
    requests, patched = Counter[str](), list[float]()

    def observe(verb: str, _code: str, seconds: float) -> None:
        requests[verb] += 1
        if verb == "patch":
            patched.append(time.perf_counter() - seconds)

    async with Api.connect(kubeconfig, observe=observe) as api:
        source = StaticSource(load_of(size, hot=hot))
        clock = lambda: time.monotonic() + played.offset  # noqa: E731  (read once `played` exists)
        cluster = new_cluster(api, NAMESPACE, StaticSources(source), Metrics(), clock=clock)
        cluster.engine.set()
        body = {"apiVersion": "trimtab.dev/v1alpha1", "kind": "BalancingPolicy", "metadata": {"name": "main"}}
        made = await api.create(POLICIES, NAMESPACE, {**body, "spec": POLICY})
        loop = PolicyLoop("main", made["metadata"]["uid"], cluster, lambda: made)
        played = Stage(cluster, loop, source, requests, patched)
        async with complete(cluster):
            try:
                yield played
            finally:
                await api.delete(POLICIES, NAMESPACE, "main")


def idle(kubeconfig: str, size: Size) -> Figures:
    """Requests and processor time while nothing has to be done."""
    return asyncio.run(_idle(kubeconfig, size))


async def _idle(kubeconfig: str, size: Size) -> Figures:
    async with stage(kubeconfig, size, hot=False) as played:
        await played.cycle()  # writes the load of brokers for the first time
        await asyncio.sleep(1.0)
        played.requests.clear()
        figures = {}
        async with heartbeat() as heart:
            for name, seconds in (("reconcile", 2.0), ("refresh", 12.0), ("cycle", 70.0)):
                before, cpu = Counter(played.requests), time.process_time()
                played.offset += seconds
                await played.loop.reconcile()
                figures[f"{name}_cpu_ms"] = (time.process_time() - cpu) * 1000
                asked = played.requests - before
                figures[f"{name}_writes"] = sum(asked[verb] for verb in ("create", "patch", "delete"))
                figures[f"{name}_reads"] = sum(asked[verb] for verb in ("get", "list"))
        return figures | heart.worst() | {"mb": resident()}


def moving(kubeconfig: str, size: Size) -> Figures:
    """One cycle that moves about 1,700 bundles at once, until all have landed on simulated brokers."""
    return asyncio.run(_moving(kubeconfig, size))


async def _moving(kubeconfig: str, size: Size) -> Figures:
    async with stage(kubeconfig, size, hot=True) as played:
        bundles = played.cluster.stores.bundles
        landed = dict[str, float]()

        def see(old: BundleRecord | None, new: BundleRecord | None) -> None:
            if old is not None and new is not None and old.owner_pending and not new.owner_pending:
                landed[new.name] = time.perf_counter()

        bundles.subscribe(see)
        async with heartbeat() as heart:
            begun = time.perf_counter()
            await played.cycle()
            told = time.perf_counter()
            figures = {"cycle_s": told - begun, **heart.worst()}
        cycle = (await played.cluster.api.get(POLICIES, NAMESPACE, "main"))["status"]["lastCycle"]
        figures |= {"moves": cycle["moved"], "act_s": cycle["phases"].get("act", math.nan)}
        figures["written_per_s"] = cycle["moved"] / figures["act_s"]
        await until(lambda: len(landed) >= cycle["moved"])
        first = min(at for at in played.patched if at > begun)
        figures["landed"] = len(landed)
        after = np.array([at - first for at in landed.values()] or [np.nan])
        figures["landed_per_s"] = len(landed) / after.max()
        figures |= {"landed_p50_s": float(np.median(after)), "landed_p99_s": float(np.percentile(after, 99))}
        return figures


# -- writing --

ROUNDS, OF_ROUND = 8, 150
"""Pairs of rounds, and moves in each round; fewer in a small cluster."""


def writing(kubeconfig: str) -> Figures:
    """Moves written a second, in turn with a bare HTTP client, while the stores follow changes."""
    return asyncio.run(_writing(kubeconfig))


async def _writing(kubeconfig: str) -> Figures:
    rates: dict[str, list[float]] = {"ours": [], "bare": []}
    cpu: dict[str, list[float]] = {"ours": [], "bare": []}
    async with Api.connect(kubeconfig) as api, Bare.connect(kubeconfig) as bare:
        cluster = new_cluster(api, NAMESPACE, StaticSources(StaticSource(load_of(Size(10, 10), hot=False))), Metrics())
        actuator = DeclarativeActuator(api, NAMESPACE, "main", 2, time.time)
        async with complete(cluster):
            records = list(cluster.stores.bundles.items.values())
            each = min(OF_ROUND, len(records) // (2 * ROUNDS))
            for k in range(2 * ROUNDS):
                name, set_owner = (("ours", actuator.set_owner), ("bare", bare.set_owner))[(k + k // 2) % 2]
                part = records[k * each : (k + 1) * each]
                begun, used = time.perf_counter(), time.process_time()
                written = await at_most(
                    WRITERS, lambda one, set_owner=set_owner: set_owner(one, "broker-0001", Reason.OVERLOADED), part
                )
                rates[name].append(len(part) / (time.perf_counter() - begun))
                cpu[name].append((time.process_time() - used) / len(part) * 1000)
                assert all(one is None or one.reason is None for one in written), written
                await asyncio.sleep(0.5)
    pairs = [ours / plain for ours, plain in zip(rates["ours"], rates["bare"], strict=True)]
    return {
        "ours_per_s": float(np.median(rates["ours"])),
        "bare_per_s": float(np.median(rates["bare"])),
        "ratio": float(np.median(pairs)),
        "ours_cpu_ms": float(np.median(cpu["ours"])),
        "bare_cpu_ms": float(np.median(cpu["bare"])),
    }


def _server(kubeconfig: str) -> tuple[dict[str, str], dict[str, str]]:
    config = yaml.safe_load(Path(kubeconfig).read_text())
    return config["clusters"][0]["cluster"], config["users"][0]["user"]


class Bare:
    """The least code that writes a move: aiohttp, one session, the same bodies with the same precondition."""

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self.session = session

    @classmethod
    @asynccontextmanager
    async def connect(cls, kubeconfig: str) -> AsyncIterator[Bare]:
        """Connect with the token of that kubeconfig."""
        server, user = _server(kubeconfig)
        context = ssl.create_default_context(cafile=server["certificate-authority"])
        headers = {"Authorization": f"Bearer {user['token']}", "Content-Type": MERGE_PATCH}
        connector = aiohttp.TCPConnector(ssl=context, limit=256)
        async with aiohttp.ClientSession(server["server"], connector=connector, headers=headers) as session:
            yield cls(session)

    async def set_owner(self, bundle: BundleRecord, owner: str, reason: Reason) -> None:
        """Write a move."""
        chosen = {"owner": owner, "policy": "main", "epoch": 2, "reason": str(reason), "time": "2026-01-02T00:00:00Z"}
        body = {
            "metadata": {"resourceVersion": bundle.resource_version},
            "spec": {"owner": owner, "assignment": chosen},
        }
        url = path("bundles", bundle.name) + "?fieldValidation=Strict"
        async with self.session.patch(url, data=json.dumps(body)) as answer:
            await answer.read()
            answer.raise_for_status()


# -- watching --


def watching(kubeconfig: str, seconds: float) -> Figures:
    """The cost of following a recorded stream of changes."""
    return asyncio.run(_watching(kubeconfig, seconds))


async def _watching(kubeconfig: str, seconds: float) -> Figures:
    async with Api.connect(kubeconfig) as api:
        cluster = new_cluster(api, NAMESPACE, StaticSources(StaticSource(load_of(Size(10, 10), hot=False))), Metrics())
        async with complete(cluster):
            await asyncio.sleep(2.0)
            counters, begun, cpu = cluster.stores.bundles.counters, time.perf_counter(), time.process_time()
            events = counters.events
            await asyncio.sleep(seconds)
            took, used, came = time.perf_counter() - begun, time.process_time() - cpu, counters.events - events
            async with heartbeat() as heart:
                await asyncio.sleep(seconds / 2)
            figures = {"events_per_s": came / took, "core_percent": 100 * used / took}
            figures |= {"us_per_event": 1e6 * used / max(came, 1), **heart.worst(), "mb": resident()}
            return figures | {"failures": counters.failures, "open": len(cluster.pending_moves.open)}


# -- a hundred simulated brokers: each watches bundles by field selector, releases, takes and confirms them --

STAGGER = 0.3
"""Seconds between the starts of two brokers."""


class Servant:
    """A broker that serves bundles, by the names of Bundle objects."""

    def __init__(self) -> None:
        self.bundles: set[str] = set()

    def serve(self, bundle: str) -> None:
        self.bundles.add(bundle)

    def release(self, bundle: str) -> None:
        """Stop serving a bundle."""
        self.bundles.discard(bundle)


def brokers(kubeconfig: str, names: tuple[str, ...], bundles: int, ready: Any, done: Any) -> dict[str, float]:
    """Run the brokers `names` until `done` is set; `ready` is set once they serve `bundles` bundles in total."""
    return asyncio.run(_brokers(kubeconfig, names, bundles, ready, done))


async def _brokers(kubeconfig: str, names: tuple[str, ...], bundles: int, ready: Any, done: Any) -> dict[str, float]:
    configuration = client.Configuration()
    configuration.connection_pool_maxsize = 3 * len(names)  # two watches and the writes of each
    await config.load_kube_config(kubeconfig, client_configuration=configuration)
    begun = time.perf_counter()
    async with client.ApiClient(configuration) as connection:
        api, servants = client.CustomObjectsApi(connection), [Servant() for _ in names]
        running = []
        for name, servant in zip(names, servants, strict=True):  # all lists at once would dominate the figures
            running.append(asyncio.create_task(Ownership(api, NAMESPACE, name, servant).run()))
            await asyncio.sleep(STAGGER)
        await until(lambda: sum(len(servant.bundles) for servant in servants) == bundles)
        took, used = time.perf_counter() - begun, time.process_time()
        ready.set()
        await asyncio.to_thread(done.wait)
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
    served = [bundle for servant in servants for bundle in servant.bundles]
    return {
        "ready_s": took,
        "cpu_s": time.process_time() - used,
        "mb": resident(),
        "served": len(served),
        "twice": len(served) - len(set(served)),
    }
