"""Mode Approve: offers proposals, reads commands from annotations, and sees approved proposals through.

`attend` runs in every reconcile, `offer` after every cycle. States and transitions are the table in
`proposals.states`; `proposals.store` keeps them.

A waiting proposal is withdrawn when it expires, when the policy is edited, or when a broker in it is gone, not ready
or closed. A bundle that changed costs only its own move, at the moment that move is to be written.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from trimtab_operator.kube.broker_records import BrokerRecord
from trimtab_operator.kube.client import POLICIES
from trimtab_operator.kube.conditions import timestamp
from trimtab_operator.proposals.annotations import Asked, take_off
from trimtab_operator.proposals.executor import Executor
from trimtab_operator.proposals.model import ForeignProposalError, Proposal
from trimtab_operator.proposals.progress import Execution, Mark
from trimtab_operator.proposals.states import BECAME, COMMANDS, REFUSALS, Event, after, may
from trimtab_operator.proposals.status import Command, ProposalPublisher
from trimtab_operator.proposals.store import ProposalStore, Standing
from trimtab_operator.resources.policy import Mode
from trimtab_operator.resources.policy_status import REBALANCE_ANNOTATION, ProposalState
from trimtab_operator.state.cluster import ClusterState
from trimtab_operator.state.settings import PolicyRun, Settings
from trimtab_operator.status.conditions import pulsar_balancer_active
from trimtab_operator.status.publisher import StatusPublisher
from trimtab_strategies.model import ClusterLoad, HeldBack, counted

_INSTEAD = {
    Mode.DRY_RUN: "set it to Approve, and approve what is proposed then",
    Mode.AUTO: (
        "it moves by itself; `trimtab pause {policy} -n {namespace}` ends that at once, Approve would ask before each "
        "proposal"
    ),
}
"""What a person may do who commands where no proposal waits for it."""

_QUOTED = 40
"""Characters of what a person wrote that an answer quotes."""


def refusal(word: str, pinned: str, standing: Standing, settings: Settings) -> str | None:
    """Why a command is not carried out; None when it is. pinned: id of the proposal that is meant, empty any."""
    event = COMMANDS.get(word)
    if event is None:
        return f"annotation {REBALANCE_ANNOTATION} is {word[:_QUOTED]!r}: write approve, refresh or stop"
    if settings.mode is not Mode.APPROVE:
        names = {"policy": settings.name, "namespace": settings.prometheus.namespace}
        return f"spec.mode is {settings.mode}: {_INSTEAD[settings.mode].format(**names)}"
    if event is Event.APPROVE and settings.paused:
        where = f"{settings.name} -n {settings.prometheus.namespace}"
        return f"the policy is paused: resume it first (trimtab resume {where})"
    if not may(standing.state, event):
        why = REFUSALS[standing.state][event]
        return f"{standing.message}; {why}" if standing.message else why
    if event is Event.APPROVE and pinned and standing.kept is not None and pinned != standing.kept.id:
        return f"it is for proposal {pinned[:_QUOTED]}, and the one there is now is {standing.kept.id}"
    return None


def outdated(proposal: Proposal, generation: int, brokers: Mapping[str, BrokerRecord]) -> str | None:
    """Why what a proposal rests on is no longer so; None while it is.

    generation: of the policy now. brokers: those that it looks after.
    """
    if proposal.generation != generation:
        return "the policy was edited"
    for name in sorted(proposal.sources | proposal.destinations):
        broker = brokers.get(name)
        if broker is None or not broker.ready:
            return f"broker {name} is {'gone' if broker is None else 'not ready'}"
        if name in proposal.destinations and not broker.schedulable:
            return f"broker {name} takes no bundles any more (spec.schedulable)"
    return None


def in_short(proposal: Proposal) -> str:
    """How much it changes, and what that interrupts."""
    parts = [counted(len(proposal.moves), "move")]
    if proposal.splits:
        parts.append(counted(len(proposal.splits), "split"))
    return f"{' and '.join(parts)} (interrupts {proposal.cost})"


log = logging.getLogger(__name__)


TELL_EVERY = 2.0
"""Seconds between two reports of how far an execution has come, and between storing that. Its end is told at once; what
was not stored when the operator dies is found out again from the bundles."""


@dataclass(frozen=True, slots=True)
class Attended:
    """What came of a look. written: moves. decide: whether somebody asked for a new plan at once."""

    written: int = 0
    decide: bool = False


@dataclass(slots=True)
class Approver:
    """Speaks with people about one policy's proposals."""

    context: ClusterState
    policy: str
    uid: str
    publisher: StatusPublisher
    _speaker: ProposalPublisher = field(init=False)
    _store: ProposalStore = field(init=False)
    _standing: Standing | None = None
    _executor: Executor | None = None
    _mode: Mode | None = None
    _trusted: dict[str, bool] = field(default_factory=dict)
    _tell_at: float = 0.0
    _untold: bool = False
    _generation: int = 0
    _told_of: int = 0

    def __post_init__(self) -> None:
        self._store = ProposalStore(self.context.api, self.context.namespace, self.policy, self.uid)
        self._speaker = ProposalPublisher(self.publisher)

    @property
    def standing(self) -> Standing:
        """Where the policy stands."""
        return self._standing or Standing()

    async def attend(self, run: PolicyRun, policy: Mapping[str, Any]) -> Attended:
        """Take the annotation if there is one, and do what is to be done now. policy: as read. Raises `ApiError`."""
        self._generation = run.settings.generation
        await self._recall()
        await self._see_mode(run.settings, policy)
        if run.settings.mode is Mode.APPROVE:
            await self._withdraw(run.settings)
        decide = False
        if Asked.of(policy) is not None:
            decide = await self._obey(run.settings)
        if self._mode is Mode.APPROVE and self._told_of != self._generation:
            await self._tell()  # conditions of an older generation count as out of date, as in kubectl wait
        return Attended(await self._carry_on(run), decide)

    async def offer(self, proposal: Proposal, load: ClusterLoad, settings: Settings) -> None:
        """Offer the plan of a cycle, if it changes something and the table of states permits it. Raises `ApiError`.

        load: the one that was planned for.
        """
        self._trusted = dict(zip(load.brokers.names, load.brokers.trusted.tolist(), strict=True))
        if settings.mode is Mode.APPROVE and not proposal.empty and may(self.standing.state, Event.OFFER):
            until, what = timestamp(proposal.expires_at), in_short(proposal)
            how = f"trimtab approve {self.policy} -n {self.context.namespace} --proposal {proposal.id}"
            await self._pass(Event.OFFER, f"{what} can be approved until {until}: {how}", proposal)

    async def bar(self, refusal: HeldBack, generation: int) -> None:
        """Say that nothing can be approved while the policy is refused; the next look tells what can.

        generation: of the policy that was read. Raises `ApiError`.
        """
        self._told_of = 0
        await self._speaker.barred(refusal, generation)

    # -- where it stands --

    async def _recall(self) -> None:
        """What is stored, once per start."""
        if self._standing is not None:
            return
        try:
            self._standing = await self._store.load()
        except ForeignProposalError as error:
            await self.publisher.state_reset(f"begins without a proposal: {error}")
            self._standing = Standing()
        self._executor = self._worker(self._standing.execution)

    def _worker(self, execution: Execution | None) -> Executor | None:
        return None if execution is None or execution.finished is not None else Executor(self.context, execution)

    async def _pass(self, event: Event, message: str, proposal: Proposal | None = None) -> None:
        """Go where `event` leads, and say so."""
        state = after(self.standing.state, event)
        assert state is not None, (self.standing.state, event)
        changed = state is not self.standing.state
        if changed and event in BECAME:
            self.publisher.meter.became(BECAME[event])
        await self._keep(Standing(state, message, proposal, self.standing.execution))
        if changed:
            await self._speaker.reached(state, message)

    async def _keep(self, standing: Standing) -> None:
        """Stored first, then told: what was shown can always be carried out."""
        await self._store.save(standing)
        self._standing = standing
        await self._tell()

    async def _tell(self, command: Command | None = None) -> None:
        self._tell_at, self._untold, self._told_of = self.context.clock() + TELL_EVERY, False, self._generation
        shown = self.standing if self._mode is Mode.APPROVE else None
        self._gauge(shown)
        await self._speaker.status(shown, self.standing.execution, self._generation, command)

    def _gauge(self, shown: Standing | None) -> None:
        waits = None if shown is None else shown.proposal
        self.publisher.meter.proposal(shown.state if shown else None, waits.expires_at if waits else None)

    async def _see_mode(self, settings: Settings, policy: Mapping[str, Any]) -> None:
        """Begin when the mode becomes Approve, end when it is another: as by stop, and nothing waits any more."""
        if settings.mode is self._mode:
            return
        before, self._mode = self._mode, settings.mode
        if settings.mode is Mode.APPROVE:
            await self._tell()
            return
        if self.standing.state is not ProposalState.PENDING_PROPOSAL:
            if self.standing.execution is not None:
                self.standing.execution.stopped = True
            await self._keep(Standing(execution=self.standing.execution))
        elif before is Mode.APPROVE or ((policy.get("status") or {}).get("proposal") or {}).get("state"):
            await self._tell()

    async def _withdraw(self, settings: Settings) -> None:
        """Take a proposal back that must not be approved any more."""
        proposal = self.standing.proposal
        if proposal is None:
            return
        brokers = self.context.brokers_of(self.policy)
        if (why := outdated(proposal, settings.generation, brokers)) is not None:
            await self._pass(Event.SUPERSEDE, f"proposal {proposal.id} was superseded: {why}")
        elif self.context.now() >= proposal.expires_at:
            await self._pass(Event.EXPIRE, f"proposal {proposal.id} expired at {timestamp(proposal.expires_at)}")

    # -- what people ask for --

    async def _obey(self, settings: Settings) -> bool:
        """Take the annotation as it is on the API server now; whether a new plan is wanted at once."""
        policy = await self.context.api.get(POLICIES, self.context.namespace, self.policy)
        asked, meta = Asked.of(policy), policy["metadata"]
        if asked is None or meta["uid"] != self.uid or meta["generation"] != settings.generation:
            return False  # taken already, or the policy is another one by now: the next turn reads it whole
        word, why = asked.word, refusal(asked.word, asked.pinned, self.standing, settings)
        if why is None and COMMANDS[word] is Event.APPROVE:
            why = pulsar_balancer_active(self.context.link) or None
        if why is None:
            command = Command(word, f"{word}: {await self._do(COMMANDS[word])}")
        else:
            command = Command(word, f"{word} was refused: {why}", refused=True)
            await self._speaker.refused(command)
        await self._tell(command)
        await take_off(self.context.api, policy, asked)
        return why is None and COMMANDS[word] is Event.REFRESH

    async def _do(self, event: Event) -> str:
        """Carry out a command that the table allows; what came of it, in words."""
        standing = self.standing
        if event is Event.APPROVE and standing.proposal is not None:
            execution = Execution(standing.proposal, self.context.now())
            self._standing, self._executor = replace(standing, execution=execution), self._worker(execution)
            message = f"proposal {standing.proposal.id} is carried out: {in_short(standing.proposal)}"
        elif event is Event.APPROVE:
            return standing.message
        elif event is Event.STOP:
            message = self._stop()
        else:
            message = "a new proposal was asked for: the next cycle that would move something offers it"
        await self._pass(event, message)
        return message

    def _stop(self) -> str:
        execution = self.standing.execution
        if execution is None or execution.finished is not None:
            return "nothing is proposed until refresh"
        execution.stopped = True
        left = execution.counts[Mark.WAITING]
        return f"{counted(left, 'move')} not begun; {execution.in_flight} in flight land or are withdrawn"

    # -- what was approved --

    async def _carry_on(self, run: PolicyRun) -> int:
        """A round of the execution, if there is one; the moves written."""
        if (executor := self._executor) is None:
            return 0
        execution, failed = executor.execution, set(executor.execution.failures)
        ended, written = executor.follow(), 0
        if self.standing.state is ProposalState.REBALANCING and not run.settings.paused:
            written = await executor.advance(run, self._trusted)
        news = [execution.failures[row] for row in sorted(execution.failures.keys() - failed)]
        await self._speaker.round(execution, written, news)
        if execution.ended:
            await self._finish(execution)
            return written
        self._untold |= bool(ended or written or news)
        if self._untold and self.context.clock() >= self._tell_at:
            await self._store.save(self.standing)  # half a mebibyte for 10,000 moves, and each landing is a round
            await self._tell()
        return written

    async def _finish(self, execution: Execution) -> None:
        execution.finished, self._executor = self.context.now(), None
        if self.standing.state is not ProposalState.REBALANCING:
            await self._keep(self.standing)
            return
        landed, failed = execution.counts[Mark.LANDED], execution.counts[Mark.FAILED]
        text = f"proposal {execution.proposal.id}: {landed} of {counted(len(execution.marks), 'move')} landed"
        if failed:
            await self._pass(Event.FAIL, f"{text}, {failed} failed (status.progress.failures)")
        else:
            await self._pass(Event.COMPLETE, text)
