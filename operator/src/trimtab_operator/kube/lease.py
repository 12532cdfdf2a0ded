"""`Elector`: which of several equal processes leads, by a Lease in the API server.

The holder renews it every `retry` seconds. Whoever finds that it has not changed for its whole duration, by a clock of
his own (no two machines need agree on the time), takes it over. The holder gives up earlier than that: its fence stays
open for `deadline` seconds from the moment it *asked* for a renewal that was granted, so it closes before anybody else
can lead. Each write of the Lease carries the resourceVersion it rests on: of two who reach for it, one gets a conflict.

``leaseTransitions`` counts the leaders, and is at the same time the *epoch* that each of them writes into what it
decides. It is moved on past any epoch that was ever written elsewhere (`Elector.claim`), should the Lease get lost.
"""

from __future__ import annotations

import asyncio
import logging
import math
import random
import secrets
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from trimtab_operator.kube.client import LEASES, Api, ApiError, ConflictError, NotFoundError, Observer
from trimtab_operator.kube.conditions import micro_timestamp
from trimtab_operator.kube.fence import Fence

log = logging.getLogger(__name__)

LEASE = "trimtab"
"""Name of the Lease, unless told otherwise."""

DURATION, DEADLINE, RETRY = 15.0, 10.0, 2.0
"""Seconds, unless told otherwise: what Kubernetes' own components take. See `Candidacy`."""

LAST_EPOCH = 2**31 - 1
"""The largest number that ``leaseTransitions`` can be."""

_CHANCE = random.SystemRandom()
_ATTEMPTS = 3
"""How many attempts that are not answered fit into the deadline."""


class LeaseLostError(RuntimeError):
    """This process led and does not any more. Says why; the only thing left to do is to end."""


class EpochsUsedUpError(RuntimeError):
    """There is no epoch after the largest one that was seen; says what to do."""


def own_identity() -> str:
    """The host's name (a pod's is that of the pod) and a random word: a process that starts again is another one."""
    return f"{socket.gethostname()}_{secrets.token_hex(4)}"


@dataclass(frozen=True, slots=True)
class Candidacy:
    """Who wants to lead, and by which rules. Raises `ValueError` for rules by which two could lead at once.

    name:     of the Lease object; all replicas must agree on it.
    duration: seconds without a renewal after which others may take over.
    deadline: seconds after which a leader that could not renew stops writing.
    retry:    seconds between two attempts, at most; each wait is shortened by chance, so that they do not coincide.
    """

    name: str = LEASE
    identity: str = field(default_factory=own_identity)
    duration: float = DURATION
    deadline: float = DEADLINE
    retry: float = RETRY

    def __post_init__(self) -> None:
        if not self.name or not self.identity:
            raise ValueError("a Lease needs a name and a holder: give --lease-name and --identity some letters")
        if not 0 < self.retry < self.deadline < self.duration:
            raise ValueError(
                f"lease times {self.duration:g}/{self.deadline:g}/{self.retry:g} s (duration/deadline/retry) must "
                "fall: a leader tries several times before its deadline, and stops before others may take over"
            )
        if not 1 <= self.duration <= 3600:  # noqa: PLR2004  the API counts whole seconds, and an hour is long
            raise ValueError(f"lease duration {self.duration:g} s must be 1 to 3600 s")


@dataclass(slots=True)
class Elector:
    """Campaigns for the Lease, keeps it and gives it back. For one process and one term: who lost does not return.

    api: has no fence and little patience, as this is what opens the fence.
    leader: who holds the Lease as far as is known, empty for nobody. epoch: of our own term, 0 before it.
    """

    api: Api
    namespace: str
    candidacy: Candidacy
    fence: Fence
    leader: str = ""
    epoch: int = 0
    reference: Mapping[str, Any] = field(default_factory=dict)
    _version: str = ""
    _transitions: int = 0
    _acquired: str = ""
    _free_at: float = 0.0
    _complaint: str = ""
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def campaign(self, *, led_before: bool = False) -> None:
        """Wait until we lead. The fence is open then, and stays so only while `keep` runs.

        led_before: whether somebody led this cluster once. Then a Lease that is not there was deleted, perhaps a moment
        ago and while its holder goes on, who puts it back: it is taken as one that was renewed just now.
        """
        if led_before:
            self._free_at = self.fence.clock() + self.candidacy.duration
        while True:
            if await self._try(self._reach):
                return
            pause = self._pause() / 2  # the sooner a renewal is seen, the sooner the last one runs out
            held_for = self._free_at - self.fence.clock()
            await asyncio.sleep(min(pause, held_for) if held_for > 0 else pause)

    async def keep(self) -> None:
        """Renew for ever. Raises `LeaseLostError`, with the fence closed."""
        try:
            while True:
                await asyncio.sleep(min(self._pause(), self.fence.left))
                if not self.fence.left:
                    raise LeaseLostError(f"the Lease could not be renewed for {self.candidacy.deadline:g} s")
                await self._try(self._renew)
        finally:
            self.fence.close()

    async def claim(self, epoch: int) -> int:
        """Make `epoch`, or a larger one, the epoch of our term, before anything is written with it. Returns it.

        `keep` must be running. Raises `LeaseLostError`, `EpochsUsedUpError`.
        """
        if epoch > LAST_EPOCH:
            raise EpochsUsedUpError(
                f"epoch {epoch} is past {LAST_EPOCH}: remove spec.assignment of the Bundle that carries {epoch - 1}"
            )
        while self.epoch < epoch:
            if not self.fence.left:
                raise LeaseLostError("the Lease ran out before an epoch could be claimed")
            if not await self._try(lambda: self._write({"leaseTransitions": epoch})):
                await asyncio.sleep(self._pause())
        return self.epoch

    async def release(self) -> None:
        """Close the fence, and give the Lease back if it is ours, so that another may lead at once."""
        self.fence.close()
        if self._acquired and await self._try(self._give_back):
            log.info("gave back the Lease %s/%s", self.namespace, self.candidacy.name)

    def _pause(self) -> float:
        return self.candidacy.retry * _CHANCE.uniform(0.5, 1.0)

    async def _try(self, attempt: Callable[[], Awaitable[bool]]) -> bool:
        """One attempt, so bounded that a connection which hangs leaves time for another. What fails is logged."""
        try:
            async with asyncio.timeout(max(self.candidacy.retry, self.candidacy.deadline / _ATTEMPTS)), self._turn:
                done = await attempt()
        except TimeoutError:
            self._complain("the API server did not answer in time")
        except ApiError as error:
            self._complain(str(error))
        else:
            self._complaint = ""
            return done
        return False

    def _complain(self, text: str) -> None:
        """Log what went wrong, but not the same over and over."""
        level = logging.DEBUG if text == self._complaint else logging.WARNING
        log.log(level, "Lease %s/%s: %s", self.namespace, self.candidacy.name, text)
        self._complaint = text

    async def _reach(self) -> bool:
        """Take the Lease if it may be taken. Raises `ApiError`."""
        try:
            ours = self._look(await self._read())
        except NotFoundError:
            return self._may_take() and await self._create(1)
        if ours:  # an earlier attempt got it, whose answer was lost
            return await self._write({"renewTime": _now()})
        return self._may_take() and await self._write(self._taken(self._transitions + 1))

    async def _renew(self) -> bool:
        """Raises `ApiError`; `LeaseLostError` when somebody else has it."""
        try:
            return await self._write({"renewTime": _now()})
        except NotFoundError:
            return await self._restore()
        except ConflictError:
            if not self._look(await self._read()):
                raise LeaseLostError(f"the Lease is held by {self.leader or 'nobody'} now") from None
            return False

    async def _restore(self) -> bool:
        """Somebody deleted the Lease: put it back before another one takes our place."""
        try:
            return await self._create(self.epoch)
        except ConflictError as error:
            raise LeaseLostError("the Lease was deleted, and somebody else made it anew") from error

    async def _give_back(self) -> bool:
        if not self._look(await self._read()):
            return False
        free = {"holderIdentity": "", "leaseDurationSeconds": 1}
        body = {"metadata": {"resourceVersion": self._version}, "spec": free}
        await self.api.patch(LEASES, self.namespace, self.candidacy.name, body)
        return True

    async def _read(self) -> dict[str, Any]:
        return await self.api.get(LEASES, self.namespace, self.candidacy.name)

    def _look(self, lease: Mapping[str, Any]) -> bool:
        """Note who holds the Lease and when it was seen to change; whether that is us, and no namesake."""
        spec, meta = lease.get("spec") or {}, lease["metadata"]
        self.leader, self._transitions = spec.get("holderIdentity") or "", spec.get("leaseTransitions") or 0
        if self._version != meta["resourceVersion"]:
            self._version = meta["resourceVersion"]
            lasts = float(spec.get("leaseDurationSeconds") or 0) if self.leader else 0.0
            self._free_at = self.fence.clock() + lasts
        ours = self.leader == self.candidacy.identity and spec.get("acquireTime") == self._acquired
        return ours and bool(self._acquired)

    def _may_take(self) -> bool:
        return self.fence.clock() >= self._free_at

    def _taken(self, epoch: int) -> dict[str, Any]:
        """The spec of a Lease that we take now."""
        self._acquired = _now()
        return {
            "holderIdentity": self.candidacy.identity,
            "leaseDurationSeconds": math.ceil(self.candidacy.duration),
            "acquireTime": self._acquired,
            "renewTime": self._acquired,
            "leaseTransitions": epoch,
        }

    async def _create(self, epoch: int) -> bool:
        body = {
            "apiVersion": LEASES.api_version,
            "kind": LEASES.kind,
            "metadata": {"name": self.candidacy.name},
            "spec": self._taken(epoch),
        }
        asked = self.fence.clock()
        return self._granted(asked, await self.api.create(LEASES, self.namespace, body))

    async def _write(self, spec: Mapping[str, Any]) -> bool:
        """Take or renew. Raises `ApiError`, above all `ConflictError` when somebody wrote it meanwhile."""
        body = {"metadata": {"resourceVersion": self._version}, "spec": spec}
        asked = self.fence.clock()
        return self._granted(asked, await self.api.patch(LEASES, self.namespace, self.candidacy.name, body))

    def _granted(self, asked: float, lease: Mapping[str, Any]) -> bool:
        """We lead for `deadline` seconds from before we asked: not later than the server began to count."""
        self._look(lease)
        self.reference = {key: lease[key] for key in ("apiVersion", "kind", "metadata")}
        self.epoch = self._transitions
        self.fence.extend(asked + self.candidacy.deadline)
        return True


@asynccontextmanager
async def candidate(
    kubeconfig: str | None,
    context: str | None,
    namespace: str,
    candidacy: Candidacy,
    observe: Observer | None = None,
) -> AsyncIterator[tuple[Api, Elector]]:
    """A client whose writes pass the fence, and the elector that opens it. Raises `ConnectionSettingsError`.

    The Lease has a connection of its own, so that no amount of other requests holds a renewal up.
    """
    fence = Fence()
    async with (
        Api.connect(kubeconfig, context, observe=observe, fence=fence) as api,
        Api.connect(kubeconfig, context, patience=0, observe=observe) as unfenced,
    ):
        yield api, Elector(unfenced, namespace, candidacy, fence)


def _now() -> str:
    return micro_timestamp(time.time())
