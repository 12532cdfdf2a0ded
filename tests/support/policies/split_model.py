"""Bundle objects in memory, brokers, people and an operator that may die, for the steps of a split."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from itertools import pairwise
from typing import Any

from trimtab_operator.splits.steps import (
    Child,
    SplitObservation,
    SplitOrder,
    SplitStep,
    next_step,
    owner_of,
    owner_pending,
    parent_of,
    to_move,
    unlocked_state,
)

PARENT = "trimtab.dev/parent"
EDGES = ("0x00000000", "0x40000000", "0x80000000", "0xffffffff")
CHILDREN = tuple(f"b-{lower}-{upper}" for lower, upper in pairwise(EDGES))


def order(*destinations: str) -> SplitOrder:
    """An order that splits the bundle `b` of broker `x` into three."""
    wanted = destinations or ("", "", "")
    cut = tuple(
        Child(name, lower, upper, destination)
        for name, (lower, upper), destination in zip(CHILDREN, pairwise(EDGES), wanted, strict=True)
    )
    return SplitOrder("split", "b", "t-n", "x", cut)


def _bundle(owner: str, lower: str, upper: str, **meta: Any) -> dict[str, Any]:
    spec = {"owner": owner, "range": {"lower": lower, "upper": upper}}
    return {"metadata": {"generation": 1, **meta}, "spec": spec, "status": {}}


class SplitModel:
    """The bundle `b` on broker `x`, which an operator splits one write at a time."""

    def __init__(self, what: SplitOrder) -> None:
        whole = _bundle("x", EDGES[0], EDGES[-1], name="b")
        whole["status"] = {"owner": "x", "state": "Owned", "observedGeneration": 1}
        self.order, self.bundles, self.give_up = what, {"b": whole}, ""
        self.deleted_by_somebody = False

    # -- the operator --

    def seen(self) -> SplitObservation:
        return deepcopy(SplitObservation(self.bundles.get("b"), [self.bundles.get(name) for name in CHILDREN]))

    def advance(self) -> SplitStep:
        """Make one write of an operator without any memory."""
        step, _ = next_step(self.order, (seen := self.seen()), self.give_up)
        writes: dict[SplitStep, Callable[[SplitObservation], None]] = {
            SplitStep.LOCK: lambda _: self._status("b", split="split", state="Splitting"),
            SplitStep.UNLOCK: lambda s: self._status("b", split="", state=unlocked_state(s.parent or {})),
            SplitStep.CREATE: self._create,
            SplitStep.DELETE: lambda _: self._drop("b"),
            SplitStep.REMOVE: lambda s: self._drop(next(name for name in CHILDREN if self._ours(name, s))),
            SplitStep.RELEASE: self._release,
            SplitStep.MOVE: self._move,
        }
        if step in writes:
            writes[step](seen)
        return step

    def _status(self, name: str, **fields: Any) -> None:
        self.bundles[name]["status"].update(fields)

    def _create(self, seen: SplitObservation) -> None:
        """Create one of the children: the operator may die before the next."""
        child = next(c for c, found in zip(self.order.children, seen.children, strict=True) if found is None)
        made = _bundle("x", child.lower, child.upper, name=child.bundle, annotations={PARENT: "b"})
        made["spec"]["assignment"] = {"reason": "Splitting"}
        self.bundles[child.bundle] = made

    def _ours(self, name: str, seen: SplitObservation) -> bool:
        found = seen.children[CHILDREN.index(name)]
        return found is not None and parent_of(found) == "b"

    def _drop(self, name: str) -> None:
        del self.bundles[name]

    def _release(self, seen: SplitObservation) -> None:
        name = next(name for name in CHILDREN if self._ours(name, seen))
        del self.bundles[name]["metadata"]["annotations"][PARENT]

    def _move(self, seen: SplitObservation) -> None:
        child, raw = next((c, r) for c, r in to_move(self.order, seen) if owner_of(r) == "x" and not owner_pending(r))
        self.set_owner(child.bundle, child.destination, "Admin")
        assert raw["metadata"]["name"] == child.bundle

    # -- brokers and people --

    def set_owner(self, name: str, owner: str, reason: str = "") -> None:
        """Set a bundle's desired owner, if the bundle exists."""
        if name in self.bundles:
            bundle = self.bundles[name]
            bundle["spec"].update(owner=owner, assignment={"reason": reason})
            bundle["metadata"]["generation"] += 1

    def serve(self, name: str) -> None:
        """Let the brokers carry out one half of a pending move: release or take."""
        if name not in self.bundles or not owner_pending(self.bundles[name]):
            return
        bundle, desired = self.bundles[name], self.bundles[name]["spec"]["owner"]
        if owner_of(bundle) not in {"", desired}:
            self._status(name, owner="", state="Free")
        else:
            self._status(name, owner=desired, state="Owned", observedGeneration=bundle["metadata"]["generation"])

    def delete_parent(self) -> None:
        """Delete the parent, as a person may."""
        self.deleted_by_somebody = self.bundles.pop("b", None) is not None or self.deleted_by_somebody

    # -- what must hold --

    def serving(self) -> list[tuple[str, str]]:
        """The served ranges, ascending."""
        served = [b for b in self.bundles.values() if owner_of(b) and parent_of(b) not in self.bundles]
        return sorted((b["spec"]["range"]["lower"], b["spec"]["range"]["upper"]) for b in served)

    def check_once(self) -> None:
        """Check that no hash is served twice."""
        ranges = self.serving()
        assert all(before[1] <= after[0] for before, after in pairwise(ranges)), ranges

    def check_whole(self) -> None:
        """Check that every hash is served exactly once."""
        self.check_once()
        edges = [EDGES[0], *(upper for _, upper in self.serving())]
        assert [lower for lower, _ in self.serving()] == edges[:-1]
        assert edges[-1] == EDGES[-1]
