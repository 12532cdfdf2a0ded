"""A large Pulsar cluster that is only an admin REST: brokers, namespaces, bundles and owners, as many as one likes.

``python -m trimtab_testbed.simulated.many_bundles_admin --brokers 100 --namespaces 100 --bundles 600`` says where it
is, answers what the mirror asks with the bodies of a real broker, and counts it at ``/counts``. Nothing changes but by
``PUT /serve/TENANT/NAME/RANGE?broker=ID``.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from collections import Counter
from itertools import pairwise
from typing import Any

from aiohttp import web

HASHES = 2**32


class SimulatedAdmin:
    """brokers: how many; namespaces of the tenant ``t``, each cut into `bundles`, which are served in turn.

    port: of all brokers; they differ in their hosts, all of which are this one (Linux: 127.0.0.0/8).
    """

    def __init__(self, brokers: int, namespaces: int, bundles: int, port: int = 8080) -> None:
        self.hosts = [f"127.0.{1 + n // 250}.{1 + n % 250}" for n in range(brokers)]
        self.brokers = [f"{host}:{port}" for host in self.hosts]
        edges = [f"0x{n * (HASHES // bundles):08x}" for n in range(bundles)]
        self.edges = [*edges, "0xffffffff"]
        self.namespaces = [f"t/ns-{n:04d}" for n in range(namespaces)]
        names = [f"{space}/{a}_{b}" for space in self.namespaces for a, b in pairwise(self.edges)]
        self.owners = {name: self.brokers[i % brokers] for i, name in enumerate(names)}
        self.counts = Counter[str]()

    def app(self) -> web.Application:
        """What an `aiohttp.web` runner serves."""
        app = web.Application(middlewares=[self._count])
        v2 = "/admin/v2"
        space = f"{v2}/namespaces/t/{{name}}"
        app.add_routes(
            [
                web.get(f"{v2}/brokers", self._told(lambda _: self.brokers)),
                web.get(f"{v2}/clusters", self._told(lambda _: ["simulated"])),
                web.get(f"{v2}/brokers/configuration/runtime", self._told(lambda _: {"clusterName": "simulated"})),
                web.get(f"{v2}/brokers/simulated/{{broker}}/ownedNamespaces", self._told(self._owned)),
                web.get(f"{v2}/tenants", self._told(lambda _: ["t", "pulsar"])),
                web.get(f"{v2}/namespaces/t", self._told(lambda _: self.namespaces)),
                web.get(f"{v2}/namespaces/pulsar", self._told(lambda _: ["pulsar/system"])),
                web.get(f"{v2}/clusters/simulated/namespaceIsolationPolicies", self._told(lambda _: {})),
                web.get(space, self._told(self._policies)),
                web.get(f"{space}/antiAffinity", self._told(lambda _: "")),
                web.put("/serve/t/{name}/{range}", self._serve),
                web.get("/counts", self._told(lambda _: self.counts)),
            ],
        )
        return app

    @web.middleware
    async def _count(self, request: web.Request, handler: Any) -> web.StreamResponse:
        self.counts["requests"] += request.path != "/counts"
        answer: web.StreamResponse = await handler(request)
        return answer

    def _told(self, found: Any) -> Any:
        async def handle(request: web.Request) -> web.Response:
            return web.json_response(found(request))

        return handle

    def _owned(self, request: web.Request) -> dict[str, Any]:
        broker, state = request.match_info["broker"], {"broker_assignment": "shared", "is_active": True}
        return {name: state for name, owner in self.owners.items() if owner == broker}

    def _policies(self, request: web.Request) -> dict[str, Any]:
        if f"t/{request.match_info['name']}" not in self.namespaces:
            raise web.HTTPNotFound(text=json.dumps({"reason": "Namespace does not exist"}))
        return {"bundles": {"boundaries": self.edges, "numBundles": len(self.edges) - 1}, "deleted": False}

    async def _serve(self, request: web.Request) -> web.Response:
        bundle = f"t/{request.match_info['name']}/{request.match_info['range']}"
        self.owners[bundle] = request.query["broker"]
        return web.Response(status=204)


async def _run(asked: argparse.Namespace) -> None:
    admin = SimulatedAdmin(asked.brokers, asked.namespaces, asked.bundles, asked.port)
    runner = web.AppRunner(admin.app(), access_log=None)
    await runner.setup()
    for host in ("127.0.0.1", *admin.hosts):
        await web.TCPSite(runner, host, asked.port).start()
    print(f"http://127.0.0.1:{asked.port}", flush=True)
    await asyncio.Event().wait()


def main() -> None:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name, default in (("brokers", 100), ("namespaces", 100), ("bundles", 600), ("port", 8080)):
        parser.add_argument(f"--{name}", type=int, default=default)
    asyncio.run(_run(parser.parse_args()))


if __name__ == "__main__":
    main()
