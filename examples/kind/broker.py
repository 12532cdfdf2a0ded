"""One simulated broker in a pod: serves the bundles that Bundle objects give it, and a `/metrics` page.

It runs in the image of Trimtab, which contains the testbed. $POD_NAME is the name of the broker, $NAMESPACE its
namespace. $STRENGTHS ("trimtab-worker3=2") says how much work a core of each node does, and $NODE_NAME names the
broker's node. The broker computes its load, and uses hardly any CPU.
"""

from __future__ import annotations

import asyncio
import os
import signal
from dataclasses import replace

from kubernetes.aio import client, config

from trimtab_testbed.simulated import broker
from trimtab_testbed.simulated.cluster import Spellings
from trimtab_testbed.simulated.load import Catalogue
from trimtab_testbed.simulated.scenarios import scenario


async def main() -> None:
    """Run the broker until SIGTERM."""
    await _configured()
    story, name = scenario(os.environ.get("SCENARIO", "mixed-48")), os.environ["POD_NAME"]
    loads, _ = story.stage()
    shape = next(one.shape for one in story.brokers if one.shape.name == name)
    broker.HOST = os.environ.get("LISTEN", "0.0.0.0")  # noqa: S104  a pod's own network
    async with client.ApiClient() as api:
        served = broker.SimulatedBroker(
            replace(shape, strength=_strength()),
            Catalogue(loads),
            Spellings(load.name for load in loads),
            client.CustomObjectsApi(api),
            os.environ["NAMESPACE"],
        )
        served.port = int(os.environ.get("PORT", "8080"))
        await served.start()
        print(f"{name}: strength {served.shape.strength:g}, metrics on port {served.port}", flush=True)
        await _told_to_end()
        await served.stop()


async def _configured() -> None:
    if "KUBECONFIG" in os.environ:
        await config.load_kube_config()
    else:
        config.load_incluster_config()


def _strength() -> float:
    known = dict(pair.split("=") for pair in os.environ.get("STRENGTHS", "").split(",") if pair)
    return float(known.get(os.environ.get("NODE_NAME", ""), 1))


async def _told_to_end() -> None:
    ended = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    await ended.wait()


if __name__ == "__main__":
    asyncio.run(main())
