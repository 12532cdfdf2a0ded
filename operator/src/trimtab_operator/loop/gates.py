"""Gates of a cycle: whether a policy may decide, and whether its plan is carried out or only shown.

| gate | function |
|---|---|
| the policy overlaps another, the stores are stale, there are no brokers | `refused_reconcile` |
| the policy is paused, brokers are missing | `refused_cycle` |
| the source can't measure | `unmeasurable` |
| mode, windows, competing balancer, Pulsar's own balancer | `gate` |

`moved_lately` counts moves that bundles carry and the policy's state lacks, because the leader died in between.
Without them a new leader would exceed the hourly cap.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from trimtab_operator.actuators import Actuator, DryRunActuator, WriteResult
from trimtab_operator.kube.conditions import epoch, timestamp
from trimtab_operator.kube.records import BundleRecord
from trimtab_operator.resources.common import LONGEST, Day, Window, WindowKind, seconds
from trimtab_operator.resources.policy import Mode
from trimtab_operator.state.cluster import ClusterState
from trimtab_operator.state.competing_balancer import advises_until
from trimtab_operator.state.ownership_changes import BALANCING, EVACUATIONS, HOUR
from trimtab_operator.state.policy_run import PolicyRun
from trimtab_operator.state.settings import Settings
from trimtab_pipeline.api import SourceMisconfiguredError, SourceUnavailableError
from trimtab_strategies.model import HeldBack, Reason, Split, some


def refused_reconcile(context: ClusterState, policy: str) -> HeldBack | None:
    """Why not even upkeep may run for the policy of that name, or None."""
    if (overlap := overlapping(context, policy)) is not None:
        return overlap
    if (other := disagreeing(context, policy)) is not None:
        return other
    if stale := context.stores.stale():
        return HeldBack("", Reason.STORE_NOT_SYNCED, stale)
    if not context.stores.brokers.items:
        return HeldBack("", Reason.NO_BROKERS, "there is no Broker object yet, and no pod that became one")
    if not context.brokers_of(policy) and context.claims[policy].names is None:
        return HeldBack("", Reason.NO_BROKERS, "spec.brokers selects no Broker object, and no pod that became one")
    return None


def overlapping(context: ClusterState, policy: str) -> HeldBack | None:
    """Why a policy may not run beside an older one, or None."""
    if (overlap := context.shares.refused.get(policy)) is None:
        return None
    shown = some(overlap.brokers) if overlap.brokers else "whatever brokers come"
    names = f"policies {overlap.older} and {policy} would both balance {shown}"
    remedy = f"{overlap.older} is older and goes on; give them spec.brokers that don't overlap, or delete one"
    return HeldBack("", Reason.INVALID_POLICY, f"{names}: {remedy}")


def disagreeing(context: ClusterState, policy: str) -> HeldBack | None:
    """Why a policy may not run that has wishes carried out by another than the oldest policy has, or None."""
    settings, speaker = context.policies.get(policy), context.speaker()
    if settings is None or speaker is None or settings.pulsar == speaker.pulsar:
        return None
    text = f"spec.actuator and spec.pulsar differ from those of {speaker.name}, which is older"
    remedy = "one Kubernetes namespace holds one cluster: make them equal, or use another namespace"
    return HeldBack("", Reason.INVALID_POLICY, f"{text}; {remedy}")


def refused_cycle(context: ClusterState, settings: Settings) -> HeldBack | None:
    """Why a cycle with `settings` would decide nothing, or None."""
    if settings.paused:
        return HeldBack("", Reason.PAUSED, "spec.paused or the annotation trimtab.dev/paused says so")
    if missing := context.missing_brokers(settings):
        return HeldBack("", Reason.UNKNOWN_BROKER, f"spec.brokers.names: no Broker object is called {some(missing)}")
    return None


def unmeasurable(error: SourceUnavailableError) -> HeldBack:
    """Why nothing was measured: the policy asks for what can't be had, or the source does not answer."""
    misconfigured = isinstance(error, SourceMisconfiguredError)
    return HeldBack("", Reason.INVALID_POLICY if misconfigured else Reason.SOURCE_UNAVAILABLE, str(error))


_REFUSALS = frozenset(
    {
        Reason.MASS_FAILURE,
        Reason.NO_LOAD_DATA,
        Reason.OUT_DATED_DATA,
        Reason.UNTRUSTED,
        Reason.PARTIAL_DATA,
        Reason.NO_BROKERS,
    },
)


def refused_by_guard(held_back: tuple[HeldBack, ...], *, moves: bool) -> HeldBack | None:
    """The refusal of the whole cycle, which is the first thing that was said and names no subject.

    What the guard says of some bundles, as that they were never measured, comes last, and refuses nothing.
    """
    if moves:
        return None
    return next((held for held in held_back[:1] if not held.subject and held.reason in _REFUSALS), None)


_DAYS = LONGEST // 24 + 1
"""Days before and after a moment on which a window may have begun that matters to it."""


@dataclass(frozen=True, slots=True)
class Opening:
    """Whether the policy may act, and until when that stays so (epoch seconds); None: for the next week."""

    open: bool
    until: float | None


def opening(windows: Sequence[Window], now: float) -> Opening:
    """What the windows say at `now` (epoch seconds).

    With windows of kind Allow it is open within any of them, else always; and never within one of kind Deny.
    """
    if not windows:
        return Opening(open=True, until=None)
    spans = {kind: list(_spans((w for w in windows if w.kind is kind), now)) for kind in WindowKind}
    needs_one = any(window.kind is WindowKind.ALLOW for window in windows)

    def is_open(at: float) -> bool:
        allowed = not needs_one or _within(spans[WindowKind.ALLOW], at)
        return allowed and not _within(spans[WindowKind.DENY], at)

    present, horizon = is_open(now), now + LONGEST * 3600
    edges = sorted({edge for found in spans.values() for span in found for edge in span if now < edge <= horizon})
    return Opening(present, next((edge for edge in edges if is_open(edge) != present), None))


def _within(spans: Iterable[tuple[float, float]], at: float) -> bool:
    return any(begin <= at < end for begin, end in spans)


def _spans(windows: Iterable[Window], now: float) -> Iterator[tuple[float, float]]:
    """Beginning and end (epoch seconds) of each occurrence around `now`."""
    order = list(Day)
    for window in windows:
        zone, days = ZoneInfo(window.time_zone), {order.index(day) for day in window.days} or set(range(7))
        hour, minute = map(int, window.start.split(":"))
        today = datetime.fromtimestamp(now, zone).date()
        for offset in range(-_DAYS, _DAYS + 1):
            day = today + timedelta(days=offset)
            if day.weekday() in days:
                local = datetime(day.year, day.month, day.day, hour, minute, tzinfo=zone)
                begin = local.astimezone(UTC).timestamp()
                yield begin, begin + seconds(window.duration)


@dataclass(frozen=True, slots=True)
class Gate:
    """How a plan is acted upon: through `actuator`. restraint: why it is only shown, None when it is carried out."""

    actuator: Actuator
    restraint: HeldBack | None = None


@dataclass(frozen=True, slots=True)
class DrainsOnly:
    """Carries out evacuations through `acting`, and all else through `otherwise`."""

    acting: Actuator
    otherwise: Actuator

    async def set_owner(self, bundle: BundleRecord, owner: str, reason: Reason) -> WriteResult:
        """Write `owner`, if it is because of an evacuation."""
        through = self.acting if reason in EVACUATIONS else self.otherwise
        return await through.set_owner(bundle, owner, reason)

    async def free(self, bundle: BundleRecord) -> WriteResult:
        """As `otherwise` does."""
        return await self.otherwise.free(bundle)

    async def request_split(self, bundle: BundleRecord, split: Split) -> WriteResult:
        """As `otherwise` does."""
        return await self.otherwise.request_split(bundle, split)


def gate(context: ClusterState, run: PolicyRun) -> Gate:
    """What becomes of the plan of this turn."""
    if run.settings.mode is Mode.AUTO:
        ruling = _restrained(context, run)
        if ruling.restraint is None:
            return ruling
        return Gate(DrainsOnly(run.actuator, ruling.actuator), ruling.restraint)
    if run.settings.mode is Mode.APPROVE:
        return shown(Reason.NOT_APPROVED, "spec.mode is Approve: proposals wait for a person")
    return shown(Reason.DRY_RUN, "spec.mode is DryRun")


def _restrained(context: ClusterState, run: PolicyRun) -> Gate:
    """What becomes of a plan in mode Auto, but for what is evacuated."""
    if (competition := run.remembered.competition).retreating(context.now()):
        return shown(Reason.COMPETING_BALANCER, f"others undo what it moves: it {advises_until(competition)}")
    if context.link.linked and context.link.problem:
        return shown(Reason.SOURCE_UNAVAILABLE, f"Pulsar can't be asked: {context.link.problem}")
    if context.link.linked and not context.link.own_balancer.disabled:
        return shown(Reason.PULSAR_BALANCER_ACTIVE, context.link.own_balancer.text)
    if not (window := opening(run.settings.windows, context.now())).open:
        when = f"acts again from {timestamp(window.until)}" if window.until else "no window opens within a week"
        return shown(Reason.OUTSIDE_WINDOW, f"spec.windows: {when}")
    return Gate(run.actuator)


def shown(reason: Reason, detail: str) -> Gate:
    """The plan is shown and nothing is written, because of `reason`."""
    return Gate(DryRunActuator(reason), HeldBack("", reason, detail))


CAPPED = BALANCING | EVACUATIONS
"""Why a policy moves a bundle, where the caps count it."""


def moved_lately(bundles: Iterable[BundleRecord], policy: Mapping[str, Any], now: float) -> list[float]:
    """When (epoch seconds) each bundle that `policy` (as JSON) moved within the hour before `now` was moved last."""
    meta = policy["metadata"]
    born = epoch(meta.get("creationTimestamp"))  # one of that name may have been there before
    moved = (b.assigned_at for b in bundles if b.policy == meta["name"] and b.reason in CAPPED)
    return [at for at in moved if now - at < HOUR and not at < born]
