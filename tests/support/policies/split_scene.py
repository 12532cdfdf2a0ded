"""What splits need beside a policy's scene: orders by a person, a ring to look at, and an operator that dies."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from itertools import pairwise
from typing import Any

from manifests import bundle_split
from policy_scene import PolicyScene, refit
from trimtab_operator.splits.controller import SplitController
from trimtab_operator.splits.declarative import DeclarativeSplitExecutor
from trimtab_strategies.hash_ring import check_ring, parse_bundle

PARENT = "trimtab.dev/parent"


class DiedError(BaseException):
    """The operator died: nothing in it can catch that."""


class MortalApi:
    """The API as an operator sees it that dies after `writes` writes (None: it lives).

    error: what a write raises from then on; `alive`: whether none was refused.
    """

    def __init__(self, scene: PolicyScene, writes: int | None = None) -> None:
        self._api, self._left, self._scene = scene.context.api, writes, scene
        self.error: BaseException = DiedError()
        self.lost: frozenset[str] = frozenset()
        self.alive = True

    def dies_after(self, writes: int | None) -> None:
        self._left = writes

    def __getattr__(self, name: str) -> Any:
        asked = getattr(self._api, name)
        if name not in {"create", "patch", "delete"}:
            return asked

        async def write(ref: Any, *arguments: Any, **options: Any) -> Any:
            if self._left == 0:
                self.alive = False
                raise self.error
            answer = await asked(ref, *arguments, **options)
            if ref.plural == "bundles":
                check_served(self._scene, self.lost)
            if self._left is not None:
                self._left -= 1
            return answer

        return write


class Operator:
    """The part of an operator that carries out splits; another one knows nothing of what this one did."""

    def __init__(self, scene: PolicyScene, *, dies_after: int | None = None) -> None:
        self.scene, self.api = scene, MortalApi(scene, dies_after)
        divider = DeclarativeSplitExecutor(self.api, scene.namespace, scene.context.now)  # type: ignore[arg-type]
        self.splits = SplitController(scene.context, divider)

    async def round(self, *, after: float = 0.0, lost: str = "") -> None:
        """One round, on stores that have seen all there is, `after` seconds later. lost: who serves nothing."""
        self.scene.clock += after
        self.api.lost = frozenset({lost} - {""})
        await self.scene.seen()
        living = self.scene.context.api
        refit(self.scene.context, api=self.api)
        try:
            await self.splits.round()
        finally:
            refit(self.scene.context, api=living)
        await self.scene.seen()
        check_served(self.scene, self.api.lost)

    async def finish(self, name: str) -> Any:
        """Rounds, and brokers that do as wished, until the split has ended; its status."""
        for _ in range(5):
            await self.round()
            await self.scene.land()
            if (status := split_status(self.scene, name)).get("phase") in {"Completed", "Failed"}:
                return status
        raise AssertionError(f"{name} has not ended: {status}")


def order(scene: PolicyScene, name: str, **spec: Any) -> None:
    """A person creates a BundleSplit."""
    manifest = bundle_split(name, **spec)
    manifest["spec"] = {key: value for key, value in manifest["spec"].items() if value is not None}
    scene.rest.create(scene.path("bundlesplits"), manifest)


def split_status(scene: PolicyScene, name: str) -> Any:
    return scene.rest.get(scene.path("bundlesplits", name)).get("status", {})


def splits(scene: PolicyScene) -> dict[str, Any]:
    return {item["metadata"]["name"]: item for item in scene.rest.get(scene.path("bundlesplits"))["items"]}


def condition(status: Mapping[str, Any], kind: str) -> tuple[str, str]:
    return {c["type"]: (c["status"], c["reason"]) for c in status.get("conditions", [])}.get(kind, ("", ""))


def half(bundle: str) -> str:
    """The middle of a bundle, by its object name."""
    lower, upper = (int(text, 16) for text in bundle.split("-")[-2:])
    return f"0x{lower + (upper - lower) // 2:08x}"


def halves(bundle: str) -> list[str]:
    """Names of what comes of halving it."""
    space, lower, upper = bundle.rsplit("-", 2)
    return [f"{space}-{lower}-{half(bundle)}", f"{space}-{half(bundle)}-{upper}"]


def serving(bundles: Mapping[str, Any]) -> dict[str, str]:
    """Which broker serves which bundle: its owner, unless its parent's does."""
    found = {}
    for name, bundle in bundles.items():
        parent = bundle["metadata"].get("annotations", {}).get(PARENT, "")
        owner = bundle.get("status", {}).get("owner", "")
        if owner and parent not in bundles:
            found[name] = owner
    return found


def check_served(scene: PolicyScene, lost: Collection[str] = ()) -> None:
    """Every hash of every namespace is served by exactly one bundle; by none only if its broker is lost.

    Raises `InvalidRingError`.
    """
    bundles = scene.bundles()
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


def leftovers(scene: PolicyScene) -> list[str]:
    """Bundles that are locked, or marked as being cut out."""
    return [
        name
        for name, bundle in scene.bundles().items()
        if bundle.get("status", {}).get("split") or PARENT in bundle["metadata"].get("annotations", {})
    ]
