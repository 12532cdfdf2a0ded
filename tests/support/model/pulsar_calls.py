"""Pulsar's admin REST API for one process: each call is a request to the model, whose cluster is one object."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, cast

from objects import Request
from process import Wire
from trimtab_operator.pulsar.client.api import LoadManager
from trimtab_operator.pulsar.client.http import Admin
from trimtab_operator.state.cluster import ClusterState

CLUSTER = ("pulsar", "cluster")
"""Kind and name of the object that is the Pulsar cluster."""


IDS = {name: f"{name}:8080" for name in ("x", "y", "z")}
"""Pulsar's ids of the brokers."""

LINKED: dict[str, Any] = {"pulsar": {"adminUrl": "http://pulsar:8080"}}
"""The part of a policy's spec that names the cluster."""


def link(cluster: ClusterState) -> None:
    """Tell the state of an operator with the policy `LINKED` about the cluster's brokers."""
    cluster.relink()
    cluster.link.ids = dict(IDS)


class MemoryAdmin:
    """`Admin` for one process. brokers: ids of the active brokers. manager: the load manager."""

    def __init__(self, wire: Wire, brokers: tuple[str, ...], manager: LoadManager = LoadManager.MODULAR) -> None:
        self._wire, self._brokers, self._manager = wire, brokers, manager

    @property
    def real(self) -> Admin:
        """This object, typed as production code requires."""
        return cast("Admin", self)

    async def _call(self, call: str, *arguments: Any) -> Any:
        answer = await self._wire.ask(Request(call, *CLUSTER, json.dumps(arguments)))
        return json.loads(answer.text)

    def without_budget(self) -> MemoryAdmin:
        """This object: the number of requests has no budget here."""
        return self

    async def load_manager(self) -> LoadManager:
        """The load manager."""
        return self._manager

    async def brokers(self) -> frozenset[str]:
        """Ids of the active brokers."""
        return frozenset(self._brokers)

    async def runtime(self, broker: str) -> Mapping[str, str]:
        """The configuration of a broker."""
        return cast("Mapping[str, str]", await self._call("runtime", broker))

    async def version(self, _broker: str) -> str:
        """A version in which the removal of a dynamic value takes effect immediately."""
        return "4.0.8"

    async def overrides(self) -> Mapping[str, str]:
        """The dynamic configuration."""
        return cast("Mapping[str, str]", await self._call("overrides"))

    async def override(self, name: str, value: str) -> None:
        """Set a dynamic value."""
        await self._call("override", name, value)

    async def drop_override(self, name: str) -> None:
        """Remove a dynamic value."""
        await self._call("drop_override", name)

    async def owner(self, bundle: str, broker: str) -> str:
        """The owner of a bundle."""
        return str(await self._call("owner", bundle, broker))

    async def owned(self, broker: str) -> frozenset[str]:
        """The bundles of a broker."""
        return frozenset(await self._call("owned", broker))

    async def reported(self, broker: str) -> frozenset[str]:
        """The bundles of a broker's load report."""
        return frozenset(await self._call("reported", broker))

    async def boundaries(self, namespace: str) -> tuple[int, ...]:
        """The edges of a namespace's bundles."""
        return tuple(await self._call("boundaries", namespace))

    async def policies(self, namespace: str) -> Mapping[str, Any]:
        """The policies of a namespace."""
        return cast("Mapping[str, Any]", await self._call("policies", namespace))

    async def topic_positions(self, bundle: str) -> Mapping[str, int]:
        """The hashes of a bundle's topics."""
        return cast("Mapping[str, int]", await self._call("topic_positions", bundle))

    async def split(self, bundle: str, positions: Sequence[int]) -> None:
        """Split a bundle."""
        await self._call("split", bundle, list(positions))

    async def unload(self, bundle: str, destination: str = "") -> None:
        """Unload a bundle."""
        await self._call("unload", bundle, destination)

    async def lookup(self, topic: str) -> str:
        """Look a topic up."""
        return str(await self._call("lookup", topic))
