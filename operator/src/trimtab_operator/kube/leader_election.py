"""`Elector`: elects one leader among equal processes, by a Lease in the API server.

The holder renews the Lease every `retry` seconds. A candidate takes the Lease over when it has not changed for its
whole duration. The candidate measures this with its own clock, so the clocks of machines need not agree. The holder
stops its writes before a candidate can take over: its fence stays open for `deadline` seconds from the moment at which
it *sent* a renewal that was granted, so the fence closes before another process can lead. Each write of the Lease
carries the resourceVersion that was read. So if two candidates write at the same time, one gets a conflict.

If the Lease was deleted, a candidate waits for one whole duration after it first finds the Lease missing. The holder
may have renewed the Lease just before the deletion, unseen by the candidate, and may still lead.

``leaseTransitions`` counts the leaders. It is also the *epoch* that a leader writes into its decisions. The count
starts again if the Lease was deleted, or if it is beyond `START_AGAIN`. `Elector.claim` then raises it above all epochs
in Bundles and stored states.

Each write has the whole spec, so a renewal repairs what a person edited.
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
from trimtab_operator.kube.naming import LONGEST, is_object_name

log = logging.getLogger(__name__)

LEASE = "trimtab"
"""Default name of the Lease."""

DURATION, DEADLINE, RETRY = 15.0, 10.0, 2.0
"""Default seconds of a `Candidacy`, as in Kubernetes' own components."""

LAST_EPOCH = 2**31 - 1
"""The largest number that ``leaseTransitions`` can be."""

START_AGAIN = 2**30
"""A count of leaders that only an edit by hand can reach: the next leader counts from 1. The other half of the numbers
remains for the leaders after one whose epoch came from such an edit."""

LONGEST_DURATION = 3600.0
"""The longest Lease, in seconds. A longer duration was edited by hand."""

_CHANCE = random.SystemRandom()
_ATTEMPTS = 3
"""Number of attempts without an answer that fit into the deadline."""


class LeaseLostError(RuntimeError):
    """This process no longer leads; the text says why. The process must exit."""


def own_identity() -> str:
    """The host name (in a pod, its name) and a random suffix: a restarted process has another identity."""
    return f"{socket.gethostname()}_{secrets.token_hex(4)}"


@dataclass(frozen=True, slots=True)
class Candidacy:
    """Identity of a candidate, and times of the Lease. Raises `ValueError` for times that let two processes lead.

    name:     name of the Lease object, the same in all replicas.
    duration: seconds without a renewal after which others may take over.
    deadline: seconds after which a leader that could not renew stops its writes.
    retry:    maximum seconds between two attempts. Each wait is shortened at random, so that replicas differ.
    """

    name: str = LEASE
    identity: str = field(default_factory=own_identity)
    duration: float = DURATION
    deadline: float = DEADLINE
    retry: float = RETRY

    def __post_init__(self) -> None:
        if not is_object_name(self.name):
            raise ValueError(
                f"--lease-name {self.name!r} is not an object name: use lowercase letters, digits, - and ., "
                f"at most {LONGEST}"
            )
        if not self.identity:
            raise ValueError("a Lease needs a holder: --identity must not be empty")
        if not 0 < self.retry < self.deadline < self.duration:
            raise ValueError(
                f"lease times {self.duration:g}/{self.deadline:g}/{self.retry:g} s (duration/deadline/retry) must "
                "decrease: a leader tries several times before its deadline, and stops before others may take over"
            )
        if not 1 <= self.duration <= LONGEST_DURATION:  # the API counts whole seconds, and an hour is long
            raise ValueError(f"lease duration {self.duration:g} s must be 1 to {LONGEST_DURATION:g} s")


@dataclass(slots=True)
class Elector:
    """Campaigns for the Lease, renews it and releases it, for one term. A process that lost it does not campaign again.

    api: a client without a fence, because the elector opens the fence, and without retries.
    leader: identity of the last known holder; empty if none. epoch: the epoch of our own term, 0 before it. wall: epoch
    seconds.
    """

    api: Api
    namespace: str
    candidacy: Candidacy
    fence: Fence
    leader: str = ""
    epoch: int = 0
    reference: Mapping[str, Any] = field(default_factory=dict)
    wall: Callable[[], float] = time.time
    _existed: bool = False
    _version: str = ""
    _transitions: int = 0
    _acquired: str = ""
    _free_at: float = 0.0
    _complaint: str = ""
    _turn: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def campaign(self, *, led_before: bool = False) -> None:
        """Wait until we lead. The fence is open then, and stays open only while `keep` runs.

        led_before: whether this cluster ever had a leader. If so, a missing Lease was deleted.
        """
        self._existed = led_before
        while not await self.attempt():
            pause = self._pause() / 2  # the sooner the last renewal is seen, the sooner the takeover
            held_for = self._free_at - self.fence.clock()
            await asyncio.sleep(min(pause, held_for) if held_for > 0 else pause)

    async def attempt(self) -> bool:
        """Take the Lease if it may be taken, and return whether we lead then."""
        return await self._try(self._reach)

    async def keep(self) -> None:
        """Renew until the Lease is lost. Raises `LeaseLostError`, with the fence closed."""
        try:
            while True:
                await asyncio.sleep(min(self._pause(), self.fence.left))
                await self.renew()
        finally:
            self.fence.close()

    async def renew(self) -> None:
        """Try once to renew the Lease. Raises `LeaseLostError`."""
        if not self.fence.left:
            raise LeaseLostError(f"the Lease could not be renewed for {self.candidacy.deadline:g} s")
        await self._try(self._renew)

    async def claim(self, epoch: int) -> int:
        """Raise our epoch to at least `epoch`, and return it. Call this before any write that carries our epoch.

        `keep` must be running. epoch: at most `LAST_EPOCH`. Raises `LeaseLostError`.
        """
        while self.epoch < epoch:
            if not self.fence.left:
                raise LeaseLostError("the Lease ran out before an epoch could be claimed")
            if not await self._try(lambda: self._renew(epoch)):
                await asyncio.sleep(self._pause())
        return self.epoch

    async def release(self) -> None:
        """Close the fence, and release the Lease if it is ours, so that another replica can lead immediately."""
        self.fence.close()
        if self._acquired and await self._try(self._give_back):
            log.info("released the Lease %s/%s", self.namespace, self.candidacy.name)

    def _pause(self) -> float:
        return self.candidacy.retry * _CHANCE.uniform(0.5, 1.0)

    async def _try(self, attempt: Callable[[], Awaitable[bool]]) -> bool:
        """Make one attempt, short enough that a hanging connection leaves time for another. Failures are logged."""
        try:
            async with asyncio.timeout(max(self.candidacy.retry, self.candidacy.deadline / _ATTEMPTS)), self._turn:
                done = await attempt()
        except TimeoutError:
            self._complain("the API server did not answer in time")
        except ApiError as error:
            self._complain(str(error), error.reason)
        else:
            self._complaint = ""
            return done
        return False

    def _complain(self, text: str, reason: str = "") -> None:
        """Log a failure, at a lower level if it repeats the last one.

        reason: the API server's. Its texts may quote the time of each attempt, so they can differ for the same failure.
        """
        same = reason or text
        level = logging.DEBUG if same == self._complaint else logging.WARNING
        log.log(level, "Lease %s/%s: %s", self.namespace, self.candidacy.name, text)
        self._complaint = same

    async def _reach(self) -> bool:
        """Take the Lease if it may be taken. Raises `ApiError`."""
        try:
            ours = self._look(await self._read())
        except NotFoundError:
            if self._existed:
                self._existed, self._version = False, ""
                self._free_at = self.fence.clock() + self.candidacy.duration
            self._transitions = 0
            return self._may_take() and await self._create(1)
        if ours:  # an earlier attempt took it, and its answer was lost
            return await self._write(self._transitions)
        return self._may_take() and await self._write(self._next_epoch(), taking=True)

    def _next_epoch(self) -> int:
        return self._transitions + 1 if self._transitions < START_AGAIN else 1

    async def _renew(self, epoch: int = 0) -> bool:
        """Renew the Lease. epoch: raises ours. Raises `ApiError`; `LeaseLostError` when another process holds it."""
        epoch = max(epoch, self.epoch)
        try:
            return await self._write(epoch)
        except NotFoundError:
            return await self._restore(epoch)
        except ConflictError:  # perhaps a renewal that was given up was stored, or a person edited the Lease
            if not self._look(await self._read()):
                raise LeaseLostError(f"the Lease is held by {self.leader or 'no one'} now") from None
            return await self._write(epoch)

    async def _restore(self, epoch: int) -> bool:
        """Create the deleted Lease again, before another process takes it.

        Raises `LeaseLostError` if the fence is closed: another process may have led, and may have held the Lease.
        """
        if not self.fence.left:
            raise LeaseLostError("the Lease was deleted, and this process had not renewed it in time")
        try:
            return await self._create(epoch)
        except ConflictError as error:
            raise LeaseLostError("the Lease was deleted, and another process created it again") from error

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
        """Note the holder of the Lease, and when it last changed; True if it has our identity and `acquireTime`."""
        self._existed = True
        spec, meta = lease.get("spec") or {}, lease["metadata"]
        self.leader, self._transitions = spec.get("holderIdentity") or "", spec.get("leaseTransitions") or 0
        if self._version != meta["resourceVersion"]:
            self._version = meta["resourceVersion"]
            self._free_at = self.fence.clock() + (self._lasts(spec.get("leaseDurationSeconds")) if self.leader else 0.0)
        ours = self.leader == self.candidacy.identity and spec.get("acquireTime") == self._acquired
        return ours and bool(self._acquired)

    def _lasts(self, seconds: int | None) -> float:
        """Seconds for which to leave the Lease to its holder. seconds: its duration, perhaps edited by hand.

        The holder may write for as long as our own duration, or for longer if it was started with other times.
        """
        return max(self.candidacy.duration, min(float(seconds or 0.0), LONGEST_DURATION))

    def _now(self) -> str:
        return micro_timestamp(self.wall())

    def _may_take(self) -> bool:
        return self.fence.clock() >= self._free_at

    def _spec(self, epoch: int, *, taking: bool) -> dict[str, Any]:
        """The whole spec of the Lease when we hold it. taking: whether our term begins."""
        now = self._now()
        if taking:
            self._acquired = now
        return {
            "holderIdentity": self.candidacy.identity,
            "leaseDurationSeconds": math.ceil(self.candidacy.duration),
            "acquireTime": self._acquired,
            "renewTime": now,
            "leaseTransitions": epoch,
        }

    async def _create(self, epoch: int) -> bool:
        body = {
            "apiVersion": LEASES.api_version,
            "kind": LEASES.kind,
            "metadata": {"name": self.candidacy.name},
            "spec": self._spec(epoch, taking=True),
        }
        asked = self.fence.clock()
        return self._granted(asked, await self.api.create(LEASES, self.namespace, body))

    async def _write(self, epoch: int, *, taking: bool = False) -> bool:
        """Change the Lease. Raises `ApiError`, and `ConflictError` if the Lease has changed since it was last read."""
        body = {"metadata": {"resourceVersion": self._version}, "spec": self._spec(epoch, taking=taking)}
        asked = self.fence.clock()
        return self._granted(asked, await self.api.patch(LEASES, self.namespace, self.candidacy.name, body))

    def _granted(self, asked: float, lease: Mapping[str, Any]) -> bool:
        """Open the fence for `deadline` seconds from `asked`, which is before the server granted the Lease."""
        self._look(lease)
        self.reference = {key: lease[key] for key in ("apiVersion", "kind", "metadata")}
        self.epoch = self._transitions
        self.fence.extend(asked + self.candidacy.deadline)
        return True


@asynccontextmanager
async def candidate(
    kubeconfig: str | None, context: str | None, namespace: str, candidacy: Candidacy, observe: Observer | None = None
) -> AsyncIterator[tuple[Api, Elector]]:
    """A client whose writes pass the fence, and the elector that opens it. Raises `ConnectionSettingsError`.

    The Lease has its own connection, so that other requests never delay a renewal.
    """
    fence = Fence()
    async with (
        Api.connect(kubeconfig, context, observe=observe, fence=fence) as api,
        Api.connect(kubeconfig, context, patience=0, observe=observe) as unfenced,
    ):
        yield api, Elector(unfenced, namespace, candidacy, fence)
