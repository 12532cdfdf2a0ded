"""Mutants of the product's code, each with one mistake. The explorer must find the violation of each mutant.

A mutant replaces one named function, property or value of the product while a model is explored.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from election_world import REPEATED, TOGETHER
from explorer import Exploration, explore
from trimtab_operator.actuators import WriteResult
from trimtab_operator.kube.client import BUNDLES
from trimtab_operator.kube.errors import ConflictError
from trimtab_operator.kube.leader_election import LeaseLostError
from trimtab_operator.pulsar.bridge.unload_request import UnloadRequest, UnloadResult
from trimtab_operator.splits.pulsar_steps import PulsarSplitStep
from trimtab_operator.splits.steps import SplitStep
from trimtab_strategies.model import Reason
from worlds import (
    BudgetedWorld,
    budgeted_moves,
    election,
    hourly_moves,
    moves,
    own_balancer,
    pulsar_splits,
    splits,
    unloads,
)

TWICE = "serve the same hashes"
STUCK = "no calm event leads to a settled state"
PERSON = "the desired owner of a person was lost"
DEPOSED = "a write of a deposed leader landed"
DELAYED = "a delayed write of an older leader landed"
PENDING = "two moves of the proposal are pending"
SPENT = "a second move was written"
PINNED = "a pinned bundle leaves"
FORGOTTEN = "nothing stores what it was"
UNCOVERED = "a hash belongs to no bundle"


@dataclass(frozen=True)
class Mutant:
    """A mistake. target: ``module:name.of.attribute``. mistake: a description. world: the model to explore.

    violated: a part of the text of the invariant that must be found violated.
    """

    target: str
    mistake: str
    instead: Callable[[Any], Any]
    world: BudgetedWorld
    violated: str

    @property
    def short(self) -> str:
        """The target without the package's name."""
        return self.target.removeprefix("trimtab_operator.").replace(":", ".")

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Replace the target while the block runs. `instead` makes the replacement from the original."""
        module, _, path = self.target.partition(":")
        *parents, name = path.split(".")
        holder: Any = importlib.import_module(module)
        for parent in parents:
            holder = getattr(holder, parent)
        before = holder.__dict__[name]
        type.__setattr__(holder, name, self.instead(before)) if isinstance(holder, type) else setattr(
            holder, name, self.instead(before)
        )
        try:
            yield
        finally:
            type.__setattr__(holder, name, before) if isinstance(holder, type) else setattr(holder, name, before)

    def explored(self, most: int) -> Exploration:
        """The result of exploring the mutant."""
        with self.applied():
            return explore(self.world(), most)


def _always(value: Any) -> Callable[[Any], Any]:
    return lambda _: lambda *_, **__: value


def _a_property(value: Any) -> Callable[[Any], Any]:
    return lambda _: property(lambda _: value)


def _nothing(_: Any) -> Any:
    async def nothing(*_: Any, **__: Any) -> None:
        return None

    return nothing


def _without_version(original: Any) -> Any:
    async def write(self: Any, bundle: Any, body: Mapping[str, Any], subresource: str = "") -> Any:
        bare = replace(bundle, resource_version="")
        return await original(self, bare, body, subresource)

    return write


def _patch_without_version(_: Any) -> Any:
    async def patch(self: Any, bundle: Any, body: dict[str, Any], *, subresource: str = "") -> None:
        await self.api.patch(BUNDLES, self.namespace, bundle["metadata"]["name"], body, subresource=subresource)

    return patch


def _delete_without_version(_: Any) -> Any:
    async def delete(self: Any, bundle: Any, **_: Any) -> None:
        await self.api.delete(BUNDLES, self.namespace, bundle["metadata"]["name"])

    return delete


def _step_instead(step: SplitStep, other: SplitStep) -> Callable[[Any], Any]:
    def wrap(original: Any) -> Any:
        def decide(*arguments: Any) -> Any:
            found, why = original(*arguments)
            return (other if found is step else found), why

        return decide

    return wrap


def _without(question: str) -> Callable[[Any], Any]:
    return lambda original: tuple(q for q in original if q.__name__ != question)


def _without_frees(original: Any) -> Any:
    def repairs(*arguments: Any, **more: Any) -> Any:
        work = original(*arguments, **more)
        work.frees.clear()
        return work

    return repairs


def _believes_the_answer(_: Any) -> Any:
    async def wait_for_owner(_: Any, request: UnloadRequest) -> str:
        return request.destination

    return wait_for_owner


def _from_the_answer(original: Any) -> Any:
    def granted(self: Any, _asked: float, lease: Mapping[str, Any]) -> bool:
        return bool(original(self, self.fence.clock(), lease))

    return granted


def _deleted_is_free(original: Any) -> Any:
    async def reach(self: Any) -> bool:
        self._existed = False
        return bool(await original(self))

    return reach


def _restored_late(_: Any) -> Any:
    async def restore(self: Any, epoch: int) -> bool:
        try:
            return bool(await self._create(epoch))
        except ConflictError as error:
            raise LeaseLostError("another process created it") from error

    return restore


def _same_epoch(_: Any) -> Any:
    return lambda self: max(1, self._transitions)


async def _release_open(self: Any) -> None:
    if self._acquired:
        await self._try(self._give_back)
    self.fence.close()


async def _claims_nothing(self: Any, _epoch: int) -> int:
    return int(self.epoch)


async def _wished(self: Any, request: Any, _owner: str) -> UnloadResult:
    await self._write(request, self._served(request, request.record.owner))
    return UnloadResult.ELSEWHERE


def _counts_as_made(original: Any) -> Any:
    async def write(*arguments: Any, **more: Any) -> WriteResult:
        found: WriteResult = await original(*arguments, **more)
        return replace(found, reason=None) if found.reason is Reason.INTERNAL_ERROR else found

    return write


def _with_leftovers(original: Any) -> Any:
    def step(order: Any, seen: Any, give_up: str = "") -> Any:
        found, why = original(order, seen, give_up)
        again = found is SplitStep.REMOVE and not why
        return (SplitStep.LOCK if again else found), why

    return step


def _with_locked(original: Any) -> Any:
    def changes(edges: Any, record: Any, bundles: Any, *more: Any, **options: Any) -> Any:
        known = list(bundles)
        found = original(edges, record, known, *more, **options)
        ranges = {(f"0x{lower:08x}", f"0x{upper:08x}") for lower, upper in pairwise(edges)}
        found.delete = [b for b in known if b.made and (b.lower, b.upper) not in ranges]
        return found

    return changes


def _unguarded(original: Any) -> Any:
    return replace(original, guarded=False)


def _another(replacement: Any) -> Callable[[Any], Any]:
    return lambda _: replacement


_P = "trimtab_operator."

MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        f"{_P}kube.fence:Fence.check", "the fence lets everything pass",
        _always(None), moves(takeovers=1), DEPOSED,
    ),
    Mutant(
        f"{_P}actuators:DeclarativeActuator._write", "a desired owner is written without the version decided on",
        _without_version, moves(acts=1), PERSON,
    ),
    Mutant(
        f"{_P}proposals.executor:QUESTIONS", "an approved move ignores that the bundle is pinned",
        _without("_bundle"), moves(acts=1, lag=False), PINNED,
    ),
    Mutant(
        f"{_P}proposals.executor:QUESTIONS", "an approved move ignores the bundle's current owner and its destination",
        _without("_owner"), moves(acts=1), PERSON,
    ),
    Mutant(
        f"{_P}proposals.progress:Execution.in_flight", "pending moves are not counted",
        _a_property(0), moves(), PENDING,
    ),
    Mutant(
        f"{_P}budget.left:pending_by_namespace", "a budget does not count the pending moves of a namespace",
        _always({}), budgeted_moves(), PENDING,
    ),
    Mutant(
        f"{_P}budget.account:BudgetAccount.keep", "what a move spends is not stored",
        _nothing, hourly_moves(lag=False), SPENT,
    ),
    Mutant(
        f"{_P}budget.account:ACCOUNT_FORMAT", "what was spent is stored without the version that was read",
        lambda original: replace(original, epoch=None), hourly_moves(faults=1, takeovers=1), DELAYED,
    ),
    Mutant(
        f"{_P}proposals.executor:TRIES", "a write without an answer counts as a failed move",
        lambda _: 1, moves(faults=1), PENDING,
    ),
    Mutant(
        f"{_P}actuators:DeclarativeActuator._write", "a write without an answer counts as made",
        _counts_as_made, moves(faults=1, lag=False), STUCK,
    ),
    Mutant(
        f"{_P}proposals.progress:Execution.ended", "a proposal whose moves have ended goes on",
        _a_property(value=False), moves(lag=False), STUCK,
    ),
    Mutant(
        f"{_P}proposals.approver:take_off", "the annotation of a command is not removed",
        _nothing, moves(lag=False), STUCK,
    ),
    Mutant(
        f"{_P}reconcile.bundles:repairs_of", "bundles of lost brokers are not freed",
        _without_frees, moves(crashes=1, lag=False), STUCK,
    ),
    Mutant(
        f"{_P}splits.steps:parent_overtaken", "a split does not notice that its bundle moves",
        _always(""), splits(acts=1, lag=False), TWICE,
    ),
    Mutant(
        f"{_P}kube.naming:BundleObjects.delete", "a parent is deleted although it has changed",
        _delete_without_version, splits(acts=1, lag=False), TWICE,
    ),
    Mutant(
        f"{_P}splits.steps:_before_parent_goes", "the parent is deleted before its children exist",
        _step_instead(SplitStep.CREATE, SplitStep.DELETE), splits(), UNCOVERED,
    ),
    Mutant(
        f"{_P}splits.declarative:next_step", "a split that begins again keeps the children of the attempt before",
        _with_leftovers, splits(faults=1, lag=False), UNCOVERED,
    ),
    Mutant(
        f"{_P}splits.controller:SplitController._finish", "the end of a split is not written",
        _nothing, splits(lag=False), STUCK,
    ),
    Mutant(
        f"{_P}splits.pulsar_steps:_cut", "the parent is deleted before Pulsar's new bundles have objects",
        _step_instead(PulsarSplitStep.CREATE, PulsarSplitStep.DELETE), pulsar_splits(lag=False), UNCOVERED,
    ),
    Mutant(
        f"{_P}splits.pulsar_steps:_as_created", "a child that a person moved is moved to the split's destination",
        _always(value=True), pulsar_splits(acts=1, lag=False), PERSON,
    ),
    Mutant(
        f"{_P}splits.pulsar:PulsarSplitExecutor._confirm", "the owner of a child is not written",
        _nothing, pulsar_splits(lag=False), STUCK,
    ),
    Mutant(
        f"{_P}pulsar.bridge.sync.namespaces:bundle_changes", "the sync deletes a bundle that is being split",
        _with_locked, pulsar_splits(takeovers=1, lag=False), UNCOVERED,
    ),
    Mutant(
        f"{_P}pulsar.client.dynamic_config:FoundSettings.noting", "former settings are not stored",
        lambda _: lambda self, *_: self, own_balancer(), FORGOTTEN,
    ),
    Mutant(
        f"{_P}pulsar.client.dynamic_config:FoundSettings.to_restore", "former settings are not put back",
        _always({}), own_balancer(acts=1), FORGOTTEN,
    ),
    Mutant(
        f"{_P}pulsar.own_balancer.controller:needed", "a policy that no longer acts still keeps Pulsar's balancer off",
        lambda _: _true, own_balancer(acts=1), STUCK,
    ),
    Mutant(
        f"{_P}pulsar.own_balancer.restore:_FORMAT", "former settings are stored without the version that was read",
        _unguarded, own_balancer(faults=1, takeovers=1), DELAYED,
    ),
    Mutant(
        f"{_P}pulsar.bridge.ownership:OwnershipSource.wait_for_owner",
        "a response to an unload counts as the new owner's confirmation",
        _believes_the_answer, unloads(acts=1, lag=False), STUCK,
    ),
    Mutant(
        f"{_P}pulsar.bridge.unload_attempt:BundleUnload._confirm", "the new owner's confirmation is not written",
        _nothing, unloads(lag=False), STUCK,
    ),
    Mutant(
        f"{_P}pulsar.bridge.unload_attempt:BundleUnload._elsewhere",
        "after the last unload the desired owner is written as the owner",
        _another(_wished), unloads(acts=3, lag=False, person=False), STUCK,
    ),
    Mutant(
        f"{_P}kube.leader_election:Elector._granted",
        "the time in which a leader may write is counted from the response, not from the request",
        _from_the_answer, election(), TOGETHER,
    ),
    Mutant(
        f"{_P}kube.leader_election:Elector._may_take", "a candidate takes a Lease that others hold",
        _always(value=True), election(), TOGETHER,
    ),
    Mutant(
        f"{_P}kube.leader_election:Elector._reach", "a deleted Lease counts as free immediately",
        _deleted_is_free, election(acts=1, begun=True), TOGETHER,
    ),
    Mutant(
        f"{_P}kube.leader_election:Elector._restore", "a deleted Lease is restored after the fence has closed",
        _restored_late, election(acts=1, begun=True), TOGETHER,
    ),
    Mutant(
        f"{_P}kube.leader_election:Elector._next_epoch", "a new leader keeps the epoch of the former one",
        _same_epoch, election(), REPEATED,
    ),
    Mutant(
        f"{_P}kube.leader_election:Elector.claim", "a new leader claims no epoch",
        _another(_claims_nothing), election(acts=1, begun=True), REPEATED,
    ),
    Mutant(
        f"{_P}kube.leader_election:Elector.release", "the Lease is given back while the fence is open",
        _another(_release_open), election(acts=1, begun=True), TOGETHER,
    ),
)  # fmt: skip


async def _true(*_: Any) -> bool:
    return True
