"""Helpers for splits that brokers carry out: a person's requests, the ring, and an operator that may die."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from manifests import bundle_split
from policy_environment import PolicyEnvironment, refit
from ring_check import check_ring
from strategy_testing.clusters import cluster
from trimtab_operator.splits.controller import SplitController
from trimtab_operator.splits.declarative import DeclarativeSplitExecutor
from trimtab_strategies.hash_ring import parse_bundle

PARENT = "trimtab.dev/parent"
SPLIT_LOAD = cluster(bundles={"a": [1] * 32, "b": [1]}, a=0.5, b=0.5, c=0.1)
"""Broker a has a bundle for each split of a test."""


class DiedError(BaseException):
    """The operator died. The operator's code does not catch this exception."""


@dataclass
class Life:
    """The life of an operator that dies after `writes` writes (None: never).

    check: called with the arguments of each write that was made. error: what each later write raises.
    alive: whether every write was made.
    """

    writes: int | None = None
    check: Callable[..., None] = lambda *_: None
    error: BaseException = field(default_factory=DiedError)
    alive: bool = True


class Mortal:
    """Forwards calls to `inner` as long as `life` lasts. names: the methods that write."""

    def __init__(self, inner: Any, life: Life, *names: str) -> None:
        self.inner, self._life, self._names = inner, life, names

    def __getattr__(self, name: str) -> Any:
        method = getattr(self.inner, name)
        if name not in self._names:
            return method

        async def write(*arguments: Any, **options: Any) -> Any:
            if self._life.writes == 0:
                self._life.alive = False
                raise self._life.error
            answer = await method(*arguments, **options)
            self._life.check(*arguments)
            if self._life.writes is not None:
                self._life.writes -= 1
            return answer

        return write


API_WRITES = ("create", "patch", "delete")


class SplitOperator:
    """The part of an operator that carries out splits. A new one knows nothing of what another one did."""

    def __init__(self, env: PolicyEnvironment, *, dies_after: int | None = None) -> None:
        self.env, self.life, self.lost = env, Life(dies_after, self._check), frozenset[str]()
        self.api: Any = Mortal(env.cluster.api, self.life, *API_WRITES)
        divider = DeclarativeSplitExecutor(self.api, env.namespace, env.cluster.now)
        self.splits = SplitController(env.cluster, divider)

    def _check(self, ref: Any, *_: Any) -> None:
        if ref.plural == "bundles":
            check_served(self.env, self.lost)

    async def round(self, *, after: float = 0.0, lost: str = "") -> None:
        """Run one round on up-to-date stores, `after` seconds later. lost: a broker that serves nothing."""
        self.env.clock += after
        self.lost = frozenset({lost} - {""})
        await self.env.seen()
        living = self.env.cluster.api
        refit(self.env.cluster, api=self.api)
        try:
            await self.splits.round()
        finally:
            refit(self.env.cluster, api=living)
        await self.env.seen()
        check_served(self.env, self.lost)

    async def finish(self, name: str) -> Any:
        """Run rounds, with brokers that follow, until the split has ended; returns its status."""
        for _ in range(5):
            await self.round()
            await self.env.land()
            if (status := split_status(self.env, name)).get("phase") in {"Completed", "Failed"}:
                return status
        raise AssertionError(f"{name} has not ended: {status}")


def order(env: PolicyEnvironment, name: str, **spec: Any) -> None:
    """Create a BundleSplit, as a person does."""
    manifest = bundle_split(name, **spec)
    manifest["spec"] = {key: value for key, value in manifest["spec"].items() if value is not None}
    env.rest.create(env.path("bundlesplits"), manifest)


def bundle_of(env: PolicyEnvironment, row: int = 0) -> str:
    """Object name of the bundle in this row of the environment's load."""
    return env.names[env.load.bundles.names[row]]


def halve(env: PolicyEnvironment, row: int = 0, name: str = "halve", **spec: Any) -> str:
    """Create a BundleSplit that halves a bundle, as a person does; returns the bundle's name."""
    bundle = bundle_of(env, row)
    order(env, name, **{"bundle": bundle, "boundaries": [half(bundle)], **spec})
    return bundle


def failed(env: PolicyEnvironment, name: str = "halve") -> tuple[str, str]:
    """Type and reason of the condition that says why a split failed."""
    status = split_status(env, name)
    assert status["phase"] == "Failed", status
    accepted, complete = condition(status, "Accepted"), condition(status, "Complete")
    assert status["reason"] == (accepted if accepted[0] == "False" else complete)[1]
    return ("Accepted", accepted[1]) if accepted[0] == "False" else ("Complete", complete[1])


def split_status(env: PolicyEnvironment, name: str) -> Any:
    return env.rest.get(env.path("bundlesplits", name)).get("status", {})


def splits(env: PolicyEnvironment) -> dict[str, Any]:
    return {item["metadata"]["name"]: item for item in env.rest.get(env.path("bundlesplits"))["items"]}


def condition(status: Mapping[str, Any], kind: str) -> tuple[str, str]:
    return {c["type"]: (c["status"], c["reason"]) for c in status.get("conditions", [])}.get(kind, ("", ""))


def half(bundle: str) -> str:
    """The middle of a bundle, by its object name."""
    lower, upper = (int(text, 16) for text in bundle.split("-")[-2:])
    return f"0x{lower + (upper - lower) // 2:08x}"


def halves(bundle: str) -> list[str]:
    """Names of the two halves of a bundle."""
    space, lower, upper = bundle.rsplit("-", 2)
    return [f"{space}-{lower}-{half(bundle)}", f"{space}-{half(bundle)}-{upper}"]


def serving(bundles: Mapping[str, Any]) -> dict[str, str]:
    """Serving broker by bundle: its owner, unless the parent's owner still serves it."""
    found = {}
    for name, bundle in bundles.items():
        parent = bundle["metadata"].get("annotations", {}).get(PARENT, "")
        owner = bundle.get("status", {}).get("owner", "")
        if owner and parent not in bundles:
            found[name] = owner
    return found


def check_served(env: PolicyEnvironment, lost: Collection[str] = ()) -> None:
    """Check that each hash of a namespace is in exactly one served bundle; if brokers are `lost`, in at most one."""
    bundles = env.bundles()
    if lost:
        return _check_once(bundles)
    rings = _rings(bundles, serving(bundles))
    for ring in rings.values():
        check_ring(ring)
    assert set(rings) == {bundle["spec"]["topicNamespace"] for bundle in bundles.values()}
    return None


def _rings(bundles: Mapping[str, Any], names: Iterable[str]) -> dict[str, list[str]]:
    rings: dict[str, list[str]] = {}
    for name in names:
        spec = bundles[name]["spec"]
        full = f"public/{spec['topicNamespace']}/{spec['range']['lower']}_{spec['range']['upper']}"
        rings.setdefault(spec["topicNamespace"], []).append(full)
    return rings


def _check_once(bundles: Mapping[str, Any]) -> None:
    for ring in _rings(bundles, serving(bundles)).values():
        ranges = sorted(parse_bundle(name)[1:] for name in ring)
        assert all(before[1] <= after[0] for before, after in pairwise(ranges)), ranges


def leftovers(env: PolicyEnvironment) -> list[str]:
    """Bundles that are locked, or marked as being split off."""
    return [
        name
        for name, bundle in env.bundles().items()
        if bundle.get("status", {}).get("split") or PARENT in bundle["metadata"].get("annotations", {})
    ]
