"""Splits that Pulsar carries out: an operator that may die, and a Pulsar cluster in memory."""

from __future__ import annotations

from typing import Any

from declarative_splits import API_WRITES, PARENT, Life, Mortal, order, split_status
from policy_environment import PolicyEnvironment, refit
from pulsar_in_memory import InMemoryPulsar
from ring_check import check_ring
from trimtab_operator.kube.naming import parse_pulsar_bundle
from trimtab_operator.resources.pulsar import PulsarSpec
from trimtab_operator.splits.controller import SplitController
from trimtab_operator.splits.pulsar import PulsarSplitExecutor


class PulsarSplitOperator:
    """The splits of an operator on a Pulsar cluster. life: ends after a number of writes to either API."""

    def __init__(self, env: PolicyEnvironment, pulsar: InMemoryPulsar) -> None:
        self.env, self.pulsar = env, pulsar
        self.cluster, self.living = env.cluster, env.cluster.api
        self.life = Life(check=lambda *_: self.check())
        self.whole = env.load.bundles.names[0]
        self.begin()

    def begin(self, *, dies_after: int | None = None) -> None:
        """Start an operator that remembers nothing of earlier operators."""
        self.life.writes = dies_after
        self.mortal: Any = Mortal(self.living, self.life, *API_WRITES)
        self.admin: Any = Mortal(self.pulsar, self.life, "split")
        self.splits = SplitController(self.cluster, PulsarSplitExecutor(self.cluster, self.admin))

    async def round(self, *, after: float = 0.0) -> None:
        self.env.clock += after
        await self.env.seen()
        refit(self.cluster, api=self.mortal)
        try:
            await self.splits.round()
        finally:
            refit(self.cluster, api=self.living)
        await self.env.seen()

    async def finish(self, name: str = "split") -> Any:
        for _ in range(6):
            await self.round()
            if (status := split_status(self.env, name)).get("phase") in {"Completed", "Failed"}:
                return status
        raise AssertionError(f"{name} has not ended: {status}")

    def check(self) -> None:
        """Check that the Bundles, without children of unfinished splits, cover the ring once."""
        bundles = self.env.bundles()
        born = [b for b in bundles.values() if b["metadata"].get("annotations", {}).get(PARENT, "") not in bundles]
        space = "/".join(parse_pulsar_bundle(self.whole)[:2])
        ranges = [b["spec"]["range"] for b in born if b["spec"]["topicNamespace"] == space.replace("/", "-")]
        check_ring([f"{space}/{r['lower']}_{r['upper']}" for r in ranges])

    def mirrored(self) -> dict[str, str]:
        """Owner by bundle in Pulsar's spelling, from the objects."""
        found = {}
        for bundle in self.env.bundles().values():
            if bundle["spec"]["topicNamespace"] == "public-a":
                r = bundle["spec"]["range"]
                found[f"public/a/{r['lower']}_{r['upper']}"] = bundle["status"].get("owner", "")
        return found

    def truth(self) -> dict[str, str]:
        """Owner by bundle in Pulsar's spelling, from Pulsar."""
        names = {address: name for name, address in (self.cluster.link.ids or {}).items()}
        return {b: names[owner] for b, owner in self.pulsar.owners.items() if b.startswith("public/a/")}


def link(env: PolicyEnvironment, *, extensible: bool, topics: tuple[float, ...]) -> InMemoryPulsar:
    """A Pulsar cluster in memory with the bundles of the environment's objects."""
    context = env.cluster
    context.link.spec = PulsarSpec(admin_url="http://pulsar:8080")
    context.link.ids = {name: f"{name}:8080" for name in ("a", "b", "c")}
    pulsar = InMemoryPulsar(extensible=extensible)
    for name in ("a", "b", "c"):
        pulsar.broker(f"{name}:8080")
    edges: dict[str, set[int]] = {}
    for full, row in zip(env.load.bundles.names, env.load.bundles.owner.tolist(), strict=True):
        tenant, name, lower, upper = parse_pulsar_bundle(full)
        edges.setdefault(f"{tenant}/{name}", set()).update((int(lower, 16), int(upper, 16)))
        pulsar.owners[full] = f"{env.load.brokers.names[row]}:8080"
    pulsar.spaces = {space: tuple(sorted(found)) for space, found in edges.items()}
    *_, lower, upper = parse_pulsar_bundle(env.load.bundles.names[0])
    low, high = int(lower, 16), int(upper, 16)
    pulsar.topics["public/a"] = {f"t{k}": int(low + ratio * (high - low)) for k, ratio in enumerate(topics)}
    return pulsar


def at(env: PolicyEnvironment, *ratios: float) -> list[str]:
    """Positions inside the first bundle, as ratios of its range."""
    *_, lower, upper = parse_pulsar_bundle(env.load.bundles.names[0])
    low, high = int(lower, 16), int(upper, 16)
    return [f"0x{int(low + ratio * (high - low)):08x}" for ratio in ratios]


def parent(env: PolicyEnvironment) -> str:
    return env.names[env.load.bundles.names[0]]


def ask(env: PolicyEnvironment, *ratios: float, name: str = "split", **spec: Any) -> None:
    order(env, name, **{"bundle": parent(env), "boundaries": at(env, *ratios), **spec})
