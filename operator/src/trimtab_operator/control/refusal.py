"""Why a policy's cycle does not even look at the load: the policy, or the cluster's objects, do not allow it yet."""

from __future__ import annotations

from trimtab_operator.control.context import Context
from trimtab_operator.control.settings import Settings
from trimtab_pipeline.source import SourceMisconfiguredError, SourceUnavailableError
from trimtab_strategies.model import HeldBack, Reason, some


def refused_turn(context: Context, policy: str) -> HeldBack | None:
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


def overlapping(context: Context, policy: str) -> HeldBack | None:
    """Why a policy may not run beside an older one, or None."""
    if (overlap := context.shares.refused.get(policy)) is None:
        return None
    shown = some(overlap.brokers) if overlap.brokers else "whatever brokers come"
    names = f"policies {overlap.older} and {policy} would both balance {shown}"
    remedy = f"{overlap.older} is older and goes on; give them spec.brokers that don't overlap, or delete one"
    return HeldBack("", Reason.INVALID_POLICY, f"{names}: {remedy}")


def disagreeing(context: Context, policy: str) -> HeldBack | None:
    """Why a policy may not run that has wishes carried out by another than the oldest policy has, or None."""
    settings, speaker = context.policies.get(policy), context.speaker()
    if settings is None or speaker is None or settings.pulsar == speaker.pulsar:
        return None
    text = f"spec.actuator and spec.pulsar differ from those of {speaker.name}, which is older"
    remedy = "one Kubernetes namespace holds one cluster: make them equal, or use another namespace"
    return HeldBack("", Reason.INVALID_POLICY, f"{text}; {remedy}")


def refused_cycle(context: Context, settings: Settings) -> HeldBack | None:
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
