"""Simulated brokers by the hundred in one process: each watches by field selector, releases, takes and confirms."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from kubernetes.aio import client, config

from scale_cluster import NAMESPACE
from scale_parts import resident
from stalls import until
from trimtab_testbed.simulated.ownership import Ownership

STAGGER = 0.3
"""Seconds between the starts of two brokers."""


class Servant:
    """What a broker serves, by names of Bundle objects."""

    def __init__(self) -> None:
        self.bundles: set[str] = set()

    def serve(self, bundle: str) -> None:
        """Serve it."""
        self.bundles.add(bundle)

    def release(self, bundle: str) -> None:
        """Serve it no more."""
        self.bundles.discard(bundle)


def run(kubeconfig: str, names: tuple[str, ...], bundles: int, ready: Any, done: Any) -> dict[str, float]:
    """Run the brokers `names` until `done` is set; `ready` is set once all serve their `bundles`."""
    return asyncio.run(_run(kubeconfig, names, bundles, ready, done))


async def _run(kubeconfig: str, names: tuple[str, ...], bundles: int, ready: Any, done: Any) -> dict[str, float]:
    configuration = client.Configuration()
    configuration.connection_pool_maxsize = 3 * len(names)  # two watches each, and their writes
    await config.load_kube_config(kubeconfig, client_configuration=configuration)
    begun = time.perf_counter()
    async with client.ApiClient(configuration) as connection:
        api, servants = client.CustomObjectsApi(connection), [Servant() for _ in names]
        running = []
        for name, servant in zip(names, servants, strict=True):  # all at once, their lists would be what is measured
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
