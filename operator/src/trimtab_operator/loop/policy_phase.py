"""The phase of a policy, and what its loop does in that phase: one table, and one function that walks it.

`phase_of` returns the first row of `TABLE` whose condition holds. The module docstring of `policy_loop` shows the
table. A reconcile walks all rows. A cycle walks the last ones (`GATES`) again once its plan is made, because windows
and the connection to Pulsar may have changed while it measured.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import Enum

from trimtab_operator.kube.conditions import timestamp
from trimtab_operator.loop.schedule import opening
from trimtab_operator.resources.policy import Mode
from trimtab_operator.resources.urls import RefusedUrlError
from trimtab_operator.state.cluster import ClusterState
from trimtab_operator.state.competing_balancer import advises_until
from trimtab_operator.state.pulsar_link import NOT_ASKED
from trimtab_operator.state.settings import Settings
from trimtab_operator.state.strategy_state import PolicyState
from trimtab_strategies.model import HeldBack, Reason, some


class Action(Enum):
    """What a reconcile does. The last five include a round of `loop.confirmation`."""

    WAIT = "nothing"
    REPORT = "report the reason"
    REPAIR = "report the reason, and repair bundles with the last valid settings"
    CONFIRM = "confirm, and refresh the brokers"
    REFUSE = "run a cycle that only reports the reason"
    SHOW = "run a cycle that shows its plan"
    DRAIN = "run a cycle that shows its plan and applies drains"
    APPLY = "run a cycle that applies its plan"


CYCLES = frozenset({Action.REFUSE, Action.SHOW, Action.DRAIN, Action.APPLY})
"""Actions of a reconcile that runs a cycle."""

REFUSED = frozenset({Action.WAIT, Action.REPORT, Action.REPAIR, Action.REFUSE})
"""Actions of a reconcile that makes no plan, because of `PolicyPhase.held`."""


@dataclass(frozen=True, slots=True)
class PolicyFacts:
    """The facts that decide the phase. A text says what is wrong; it is empty when nothing is wrong.

    ran: whether the policy ran with valid settings before. refused_url, cut_off: why there is no Broker, if the
    connection to the policy's servers is the cause. discovering: no broker is ready, and discovery may still find one.
    due: whether the next cycle is due. warm: whether the load sources are ready. approved: whether an approved plan is
    being carried out.
    """

    invalid: str = ""
    ran: bool = False
    overlap: str = ""
    conflict: str = ""
    stale: str = ""
    no_brokers: str = ""
    refused_url: str = ""
    cut_off: str = ""
    discovering: str = ""
    warm: bool = True
    due: bool = True
    paused: bool = False
    unknown_brokers: str = ""
    mode: Mode = Mode.AUTO
    approved: bool = False
    contested: str = ""
    unreachable: str = ""
    own_balancer: str = ""
    closed: str = ""


@dataclass(frozen=True, slots=True)
class PhaseRow:
    """One row of the table. detail: what the status says; empty when the condition does not hold."""

    name: str
    detail: Callable[[PolicyFacts], str]
    action: Action
    reason: Reason | None


@dataclass(frozen=True, slots=True)
class PolicyPhase:
    """The phase of a policy. held: why it does not act, with reason and detail; None when there is no such reason."""

    name: str
    action: Action
    held: HeldBack | None


_PAUSED = "spec.paused or the annotation trimtab.dev/paused is true"
_NOT_APPROVED = "spec.mode is Approve: a person approves each proposal"
_APPROVED = "an approved plan is being carried out"
_DRY_RUN = "spec.mode is DryRun"

REFUSALS = (
    PhaseRow("invalid edit", lambda f: f.invalid if f.ran else "", Action.REPAIR, Reason.INVALID_POLICY),
    PhaseRow("invalid", lambda f: f.invalid, Action.REPORT, Reason.INVALID_POLICY),
    PhaseRow("overlapping", lambda f: f.overlap, Action.REPORT, Reason.INVALID_POLICY),
    PhaseRow("conflicting", lambda f: f.conflict, Action.REPORT, Reason.INVALID_POLICY),
    PhaseRow("not synced", lambda f: f.stale, Action.REPORT, Reason.STORE_NOT_SYNCED),
    PhaseRow("refused URL", lambda f: f.refused_url, Action.REPORT, Reason.INVALID_POLICY),
    PhaseRow("cut off", lambda f: f.cut_off, Action.REPORT, Reason.SOURCE_UNAVAILABLE),
    PhaseRow("discovering", lambda f: f.discovering, Action.WAIT, Reason.NO_BROKERS),
    PhaseRow("no brokers", lambda f: f.no_brokers, Action.REPORT, Reason.NO_BROKERS),
    PhaseRow("warming up", lambda f: "" if f.warm else "the load sources are not ready", Action.CONFIRM, None),
    PhaseRow("between cycles", lambda f: "" if f.due else "the next cycle is not due", Action.CONFIRM, None),
    PhaseRow("paused", lambda f: _PAUSED if f.paused else "", Action.REFUSE, Reason.PAUSED),
    PhaseRow("unknown brokers", lambda f: f.unknown_brokers, Action.REFUSE, Reason.UNKNOWN_BROKER),
)
"""Phases in which the policy makes no plan."""

GATES = (
    PhaseRow("dry run", lambda f: _DRY_RUN if f.mode is Mode.DRY_RUN else "", Action.SHOW, Reason.DRY_RUN),
    PhaseRow("approve", lambda f: _NOT_APPROVED if f.mode is Mode.APPROVE else "", Action.SHOW, Reason.NOT_APPROVED),
    PhaseRow("approved plan", lambda f: _APPROVED if f.approved else "", Action.DRAIN, Reason.IN_FLIGHT),
    PhaseRow("stood down", lambda f: f.contested, Action.DRAIN, Reason.COMPETING_BALANCER),
    PhaseRow("unreachable", lambda f: f.unreachable, Action.DRAIN, Reason.SOURCE_UNAVAILABLE),
    PhaseRow("two balancers", lambda f: f.own_balancer, Action.DRAIN, Reason.PULSAR_BALANCER_ACTIVE),
    PhaseRow("outside window", lambda f: f.closed, Action.DRAIN, Reason.OUTSIDE_WINDOW),
    PhaseRow("auto", lambda _: "spec.mode is Auto", Action.APPLY, None),
)
"""Phases in which the policy makes a plan, and how the plan is applied."""

TABLE = (*REFUSALS, *GATES)
"""All phases, in the order in which they are checked."""


def phase_of(facts: PolicyFacts, table: Sequence[PhaseRow] = TABLE) -> PolicyPhase:
    """The first row of `table` whose condition holds; the last row of each table always does."""
    row, detail = next((row, detail) for row in table if (detail := row.detail(facts)))
    return PolicyPhase(row.name, row.action, None if row.reason is None else HeldBack("", row.reason, detail))


def facts_of(
    cluster: ClusterState,
    settings: Settings,
    state: PolicyState | None = None,
    *,
    due: bool = True,
    warm: bool = True,
) -> PolicyFacts:
    """The facts of a valid policy as they are now. state: None leaves out what only gates need."""
    facts = PolicyFacts(
        overlap=_overlap(cluster, settings.name),
        conflict=_conflict(cluster, settings.name),
        stale=cluster.stores.stale(),
        no_brokers=(no_brokers := _no_brokers(cluster, settings)),
        refused_url=_refused_url(cluster, settings) if no_brokers else "",
        cut_off=_cut_off(cluster) if no_brokers else "",
        warm=warm,
        due=due,
        paused=settings.paused,
        unknown_brokers=_unknown_brokers(cluster, settings),
        mode=settings.mode,
    )
    return facts if state is None else _with_gates(facts, cluster, settings, state)


def _with_gates(facts: PolicyFacts, cluster: ClusterState, settings: Settings, state: PolicyState) -> PolicyFacts:
    link, now = cluster.link, cluster.now()
    contested = f"another client reverts its moves: the policy {advises_until(state.competition)}"
    return replace(
        facts,
        contested=contested if state.competition.retreating(now) else "",
        unreachable=_unreachable(cluster),
        own_balancer=link.own_balancer.text if link.linked and not link.own_balancer.disabled else "",
        closed=outside_windows(settings, now),
    )


def _overlap(cluster: ClusterState, policy: str) -> str:
    """Why the policy may not run next to an older one."""
    if (overlap := cluster.policies.shares.refused.get(policy)) is None:
        return ""
    shown = some(overlap.brokers) if overlap.brokers else "the same brokers"
    names = f"policies {overlap.older} and {policy} would both balance {shown}"
    if why := _standstill(cluster, overlap.older):
        older = f"{overlap.older} is older and keeps them, although it does not run ({why})"
        return f"{names}: {older}; correct or delete {overlap.older}, or give them spec.brokers that don't overlap"
    remedy = f"{overlap.older} is older and continues; give them spec.brokers that don't overlap, or delete one"
    return f"{names}: {remedy}"


_TOLD = frozenset({Reason.INVALID_POLICY, Reason.UNKNOWN_BROKER, Reason.PAUSED, Reason.NO_BROKERS})
"""Reasons whose texts hold no figures that change from second to second."""


def _standstill(cluster: ClusterState, policy: str) -> str:
    """Why a policy does not run, by its last reconcile or cycle; empty if it runs."""
    if (refusal := cluster.policies.refusals.get(policy)) is None:
        return ""
    return f"{refusal.reason}: {refusal.detail}" if refusal.reason in _TOLD else str(refusal.reason)


def _conflict(cluster: ClusterState, policy: str) -> str:
    """Why the policy may not run: its `spec.pulsar` differs from that of the oldest policy. Empty if it does not."""
    settings, oldest = cluster.policies.settings.get(policy), cluster.speaker()
    if settings is None or oldest is None or settings.pulsar == oldest.pulsar:
        return ""
    text = f"spec.pulsar differs from that of {oldest.name}, which is older"
    return f"{text}; one Kubernetes namespace holds one cluster: make them equal, or use another namespace"


def _no_brokers(cluster: ClusterState, settings: Settings) -> str:
    if not cluster.stores.brokers.items:
        return "there is no Broker object yet, and no pod to create one for"
    if settings.broker_names is None and not cluster.brokers_of(settings.name):
        return "spec.brokers selects no Broker object, and no pod to create one for"
    return ""


def _refused_url(cluster: ClusterState, settings: Settings) -> str:
    """Why the operator may not connect to a server that the policy names."""
    auth, pulsar = settings.auth, settings.pulsar
    servers = {"source.prometheus.url": (settings.prometheus.url, auth is not None and auth.secret)}
    if pulsar is not None:
        servers["pulsar.adminUrl"] = pulsar.admin_url, pulsar.auth is not None and pulsar.auth.secret
    for path, (url, secrets) in servers.items():
        try:
            cluster.urls.admit(url, cluster.namespace, secrets=secrets)
        except RefusedUrlError as error:
            return f"spec.{path}: {error}"
    return ""


def _unreachable(cluster: ClusterState) -> str:
    link = cluster.link
    return f"Pulsar can't be asked: {link.problem}" if link.linked and link.problem else ""


def _cut_off(cluster: ClusterState) -> str:
    """Why Pulsar lists no broker: it does not answer. Empty before the first request."""
    return "" if cluster.link.problem == NOT_ASKED else _unreachable(cluster)


def none_ready(cluster: ClusterState, settings: Settings) -> str:
    """Text for a policy none of whose brokers is ready; empty if one is."""
    ready = any(record.ready for record in cluster.brokers_of(settings.name).values())
    return "" if ready else "no Broker is ready yet"


def _unknown_brokers(cluster: ClusterState, settings: Settings) -> str:
    missing = cluster.missing_brokers(settings)
    return f"spec.brokers.names: no Broker object is called {some(missing)}" if missing else ""


def outside_windows(settings: Settings, now: float) -> str:
    """Why `spec.windows` do not let the policy act at `now` (epoch seconds); empty if they do."""
    if (window := opening(settings.windows, now)).open:
        return ""
    when = f"acts again from {timestamp(window.until)}" if window.until else "no window opens within a week"
    return f"spec.windows: {when}"
