"""Offers proposals in mode Approve, takes commands from annotations, and carries out approved proposals and plans.

`attend` runs in every reconcile, `offer` after every cycle. `proposals.states` has the table of states and transitions,
and `proposals.store` keeps the state.

A waiting proposal is withdrawn when it expires, when the policy is edited, when a drain is requested, or when one of
its brokers is gone, not ready, or no longer takes bundles. If a bundle has changed, only its own move fails, at the
time it would be written.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from trimtab_operator.kube.broker_records import BrokerRecord
from trimtab_operator.kube.client import POLICIES, ConflictError
from trimtab_operator.kube.conditions import timestamp
from trimtab_operator.kube.config_map_store import ConfigMapStore, UnreadableContentError
from trimtab_operator.observe.departures import departures_of
from trimtab_operator.proposals.automatic import BY_CRITERIA, Findings, failed_criterion
from trimtab_operator.proposals.commands import Asked, Command, left_behind, proposal_of, refusal, take_off
from trimtab_operator.proposals.executor import Executor
from trimtab_operator.proposals.model import Proposal
from trimtab_operator.proposals.progress import Execution, Mark
from trimtab_operator.proposals.saved_plan import InvalidPlanError
from trimtab_operator.proposals.states import APPROVALS, BECAME, COMMANDS, Event, after, may
from trimtab_operator.proposals.status import ProposalPublisher
from trimtab_operator.proposals.store import Standing, proposal_store
from trimtab_operator.resources.policy import Mode
from trimtab_operator.resources.policy_status import ProposalState
from trimtab_operator.state.cluster import ClusterState
from trimtab_operator.state.settings import PolicyRun, Settings
from trimtab_operator.status.conditions import pulsar_balancer_active
from trimtab_operator.status.publisher import StatusPublisher
from trimtab_strategies.model import ClusterLoad, HeldBack, counted, some


def outdated(
    proposal: Proposal, generation: int, brokers: Mapping[str, BrokerRecord], draining: Collection[str] = ()
) -> str | None:
    """Why a proposal is outdated; None while it is not.

    generation: the policy's generation now. brokers: those that the policy selects. draining: those that are to be
    emptied, and serve bundles.
    """
    if proposal.generation != generation:
        return "the policy was edited"
    for name in sorted(proposal.sources | proposal.destinations):
        broker = brokers.get(name)
        if broker is None or not broker.ready:
            return f"broker {name} is {'gone' if broker is None else 'not ready'}"
        if name in proposal.destinations and not broker.schedulable:
            return f"broker {name} takes no bundles any more (spec.schedulable)"
    if names := sorted(set(draining) - set(proposal.drained)):
        return f"a drain of {some(names)} was requested since"
    return None


def in_short(proposal: Proposal) -> str:
    """The size of a proposal, and what it interrupts."""
    parts = [counted(len(proposal.moves), "move")]
    if proposal.splits:
        parts.append(counted(len(proposal.splits), "split"))
    return f"{' and '.join(parts)} (interrupts {proposal.cost})"


REPORT_EVERY = 2.0
"""Minimum number of seconds between two reports of an execution's progress, and between two writes of this progress.
The end of the execution is reported immediately. After a restart, progress that was not stored is found again from the
bundles."""


@dataclass(slots=True)
class Approver:
    """Offers one policy's proposals, and carries out commands about them.

    uncounted: number of moves that were written since the last `take_uncounted`.
    _report_owed: whether a report was begun and not written. _event_owed: state and message of a transition whose Event
    was not posted.
    """

    cluster: ClusterState
    policy: str
    uid: str
    publisher: StatusPublisher
    uncounted: int = 0
    _publisher: ProposalPublisher = field(init=False)
    _store: ConfigMapStore[Standing] = field(init=False)
    _standing: Standing | None = None
    _executor: Executor | None = None
    _mode: Mode | None = None
    _trusted: dict[str, bool] = field(default_factory=dict)
    _report_at: float = 0.0
    _unreported: bool = False
    _report_owed: bool = False
    _event_owed: tuple[ProposalState, str] | None = None
    _generation: int = 0
    _reported_generation: int = 0

    def __post_init__(self) -> None:
        self._store = proposal_store(self.cluster.api, self.cluster.namespace, self.policy, self.uid)
        self._publisher = ProposalPublisher(self.publisher)

    @property
    def standing(self) -> Standing:
        """The state of the policy's proposals."""
        return self._standing or Standing()

    @property
    def under_way(self) -> bool:
        """Whether an approved proposal or plan is being carried out."""
        return self.standing.state is ProposalState.REBALANCING

    async def attend(self, run: PolicyRun, policy: Mapping[str, Any]) -> bool:
        """Take the command if there is one, and advance the execution.

        Returns whether a person requested a new plan or a drain, which must follow immediately. policy: the object, as
        it was read. Raises `ApiError`.
        """
        self._generation = run.settings.generation
        await self._load()
        await self._follow_mode(run.settings, policy)
        if self._executor is not None:
            execution = self._executor.execution
            waited, execution.paused = execution.waits, run.settings.paused
            self._unreported |= execution.waits != waited
        decide = False
        if run.settings.mode is Mode.APPROVE:
            decide = await self._withdraw(run.settings)
        if Asked.of(policy) is not None:
            decide |= await self._take_command(run.settings)
        elif left_behind(policy):
            await take_off(self.cluster.api, policy, None)
        # conditions of an older generation count as out of date, as in kubectl wait
        outdated_report = self._mode is Mode.APPROVE and self._reported_generation != self._generation
        if self._report_owed or outdated_report:
            await self._report()
        await self._advance(run)
        return decide

    def take_uncounted(self) -> int:
        """Number of moves that were written since the last call, also by rounds that failed."""
        count, self.uncounted = self.uncounted, 0
        return count

    async def offer(self, proposal: Proposal, load: ClusterLoad, settings: Settings, findings: Findings) -> None:
        """Offer the plan of a cycle, if it is not empty and the state allows a new proposal. Raises `ApiError`.

        load: the load that was planned for. findings: what else automatic approval judges. A proposal that meets its
        criteria is approved immediately.
        """
        self._trusted = dict(zip(load.brokers.names, load.brokers.trusted.tolist(), strict=True))
        if settings.mode is Mode.APPROVE and not proposal.empty and may(self.standing.state, Event.OFFER):
            until, what = timestamp(proposal.expires_at), in_short(proposal)
            how = f"trimtab approve {self.policy} -n {self.cluster.namespace} --proposal {proposal.id}"
            missed = self._missed(proposal, settings, findings)
            waits = f"; not approved by itself: {missed}" if missed else ""
            await self._pass(Event.OFFER, f"{what} can be approved until {until}: {how}{waits}", proposal)
            if settings.auto_approval is not None and not missed:
                await self._do(Event.APPROVE, BY_CRITERIA)

    def _missed(self, proposal: Proposal, settings: Settings, findings: Findings) -> str:
        """Why automatic approval does not approve `proposal`; empty if it does, or if the policy has none."""
        if settings.auto_approval is None:
            return ""
        return failed_criterion(settings.auto_approval, proposal, findings) or pulsar_balancer_active(self.cluster.link)

    async def bar(self, refusal: HeldBack, generation: int) -> None:
        """Report that nothing can be approved while the policy is refused.

        The next `attend` reports again what can be approved. generation: the policy's, as read. Raises
        `ApiError`.
        """
        self._reported_generation = 0
        await self._publisher.barred(refusal, generation)

    # -- state --

    async def _load(self) -> None:
        """Read the stored state, once per start."""
        if self._standing is not None:
            return
        try:
            standing = await self._store.load() or Standing()
        except UnreadableContentError as error:
            await self.publisher.state_reset(f"begins without a proposal: {error}")
            standing = Standing()
        if (executor := self._worker(standing.execution)) is not None:
            await executor.resume()
        self._standing, self._executor = standing, executor

    def _worker(self, execution: Execution | None) -> Executor | None:
        return None if execution is None or execution.finished is not None else Executor(self.cluster, execution)

    async def _pass(self, event: Event, message: str, proposal: Proposal | None = None) -> None:
        """Make the transition of `event`, store and report it."""
        state = after(self.standing.state, event)
        assert state is not None, (self.standing.state, event)
        changed = state is not self.standing.state
        if changed and event in BECAME:
            self.publisher.meter.became(BECAME[event])
        if changed:
            self._event_owed = state, message
        await self._keep(Standing(state, message, proposal, self.standing.execution))

    async def _keep(self, standing: Standing) -> None:
        """Store, then report: a proposal that is shown can always be carried out."""
        await self._save(standing)
        self._standing = standing
        if standing.execution is None or standing.execution.finished is not None:
            self._executor = None
        await self._report()

    async def _save(self, standing: Standing) -> None:
        """Store; after a conflict the next round goes on from what is stored. Raises `ApiError`.

        A conflict has one of two causes: the answer to our own write was lost, or a person or another leader wrote.
        """
        try:
            await self._store.save(standing)
        except ConflictError:
            self._standing = self._executor = self._mode = None  # what is stored may be of another mode
            self._report_owed = True
            raise

    async def _report(self, command: Command | None = None) -> None:
        self._report_owed = True
        shown = self.standing if self._mode is Mode.APPROVE else None
        self._gauge(shown)
        await self._publisher.status(shown, self.standing.execution, self._generation, command)
        self._report_at, self._reported_generation = self.cluster.clock() + REPORT_EVERY, self._generation
        self._unreported = self._report_owed = False
        await self._post_event()

    async def _post_event(self) -> None:
        """Post the Event of the last transition, if it is owed. One that was not stored has not happened."""
        owed, self._event_owed = self._event_owed, None
        if owed is not None and owed == (self.standing.state, self.standing.message):
            await self._publisher.reached(*owed)

    def _gauge(self, shown: Standing | None) -> None:
        waits = None if shown is None else shown.proposal
        self.publisher.meter.proposal(shown.state if shown else None, waits.expires_at if waits else None)

    async def _follow_mode(self, settings: Settings, policy: Mapping[str, Any]) -> None:
        """Report when the mode becomes Approve. When it becomes another, withdraw a proposal that waits.

        An execution goes on in mode Auto, and is stopped in mode DryRun.
        """
        if settings.mode is self._mode:
            return
        before, self._mode = self._mode, settings.mode
        try:
            await self._change_mode(before, policy)
        except BaseException:
            self._mode = before  # the next round tries again
            raise

    async def _change_mode(self, before: Mode | None, policy: Mapping[str, Any]) -> None:
        if self._mode is Mode.APPROVE or (self._mode is Mode.AUTO and self.under_way):
            await self._report()
        elif self.standing.state is not ProposalState.PENDING_PROPOSAL:
            if self.standing.execution is not None:
                self.standing.execution.stopped = True
            await self._keep(Standing(execution=self.standing.execution))
        elif before is Mode.APPROVE or ((policy.get("status") or {}).get("proposal") or {}).get("state"):
            await self._report()

    async def _withdraw(self, settings: Settings) -> bool:
        """Withdraw a proposal that may no longer be approved. Returns whether a drain needs a new one at once."""
        proposal = self.standing.proposal
        if proposal is None:
            return False
        brokers = self.cluster.brokers_of(self.policy)
        draining = [name for name in departures_of(self.cluster, self.policy).drained if self.cluster.served.get(name)]
        if (why := outdated(proposal, settings.generation, brokers, draining)) is not None:
            await self._pass(Event.SUPERSEDE, f"proposal {proposal.id} was superseded: {why}")
        elif self.cluster.now() >= proposal.expires_at:
            await self._pass(Event.EXPIRE, f"proposal {proposal.id} expired at {timestamp(proposal.expires_at)}")
        return why is not None and bool(draining)

    # -- commands --

    async def _take_command(self, settings: Settings) -> bool:
        """Take the command that the API server has now. Returns whether a new plan must follow immediately."""
        policy = await self.cluster.api.get(POLICIES, self.cluster.namespace, self.policy)
        asked, meta = Asked.of(policy), policy["metadata"]
        if asked is None or meta["uid"] != self.uid or meta["generation"] != settings.generation:
            return False  # taken already, or the policy has changed: the next round reads it again
        command = await self._answer(asked, settings)
        await self._report(command)
        await take_off(self.cluster.api, policy, asked)
        return COMMANDS.get(asked.word) is Event.REFRESH and not command.refused

    async def _answer(self, asked: Asked, settings: Settings) -> Command:
        """Carry out a command, or post why it is refused."""
        word, why, plan = asked.word, refusal(asked, self.standing, settings), None
        if (event := asked.event(self.standing)) in APPROVALS:
            why = why or pulsar_balancer_active(self.cluster.link) or None
        if event is Event.CARRY_OUT and why is None:
            try:
                plan = proposal_of(asked.plan, self.cluster, settings)
            except InvalidPlanError as error:
                why = f"the plan {error}"
        if why is None and event is not None:
            return Command(word, f"{word}: {await self._do(event, asked.by, plan)}")
        command = Command(word, f"{word} was refused: {why}", refused=True)
        await self._publisher.refused(command)
        return command

    async def _do(self, event: Event, by: str, plan: Proposal | None = None) -> str:
        """Carry out a command of `by` that the table allows. Returns a text with the result.

        plan: the proposal to carry out instead of the one that waits.
        """
        standing, proposal = self.standing, plan or self.standing.proposal
        if event in APPROVALS and proposal is not None:
            execution = Execution(proposal, self.cluster.now(), by=by)
            self._standing, self._executor = replace(standing, execution=execution), self._worker(execution)
            approved = f", approved by {by}," if by else ""
            message = f"proposal {proposal.id}{approved} is carried out: {in_short(proposal)}"
        elif event is Event.APPROVE:
            return standing.message
        elif event is Event.STOP:
            message = self._stop()
        else:
            message = "a new proposal was requested: the next cycle that would move something offers it"
        await self._pass(event, message)
        return message

    def _stop(self) -> str:
        execution = self.standing.execution
        if execution is None or execution.finished is not None:
            return "nothing is proposed until refresh"
        execution.stopped = True
        left = execution.counts[Mark.WAITING]
        return f"{counted(left, 'move')} not started; {execution.in_flight} pending moves land or are withdrawn"

    # -- execution --

    async def _advance(self, run: PolicyRun) -> None:
        """Run a round of the execution, if there is one."""
        if (executor := self._executor) is None:
            return
        execution, failed = executor.execution, set(executor.execution.failures)
        waited = execution.waits
        ended, written = await executor.follow(), 0
        allowed = run.settings.mode is not Mode.DRY_RUN and not execution.paused
        if allowed and self.under_way:
            try:
                await executor.advance(run, self._trusted)
            finally:
                written = executor.written
                self.uncounted += written
        news = [execution.failures[row] for row in sorted(execution.failures.keys() - failed)]
        await self._publisher.round(execution, written, news)
        if execution.ended:
            await self._finish(execution)
            return
        self._unreported |= bool(ended or written or news) or execution.waits != waited
        if self._unreported and self.cluster.clock() >= self._report_at:
            # not in every round: each landed move starts a round, and a save writes half a mebibyte for 10,000 moves
            await self._save(self.standing)
            await self._report()

    async def _finish(self, execution: Execution) -> None:
        """End the execution. If this can't be stored, the next round tries again."""
        execution.finished = self.cluster.now()
        try:
            await self._end(execution)
        except BaseException:
            if self._executor is not None:
                execution.finished = None
            raise

    async def _end(self, execution: Execution) -> None:
        if self.standing.state is not ProposalState.REBALANCING:
            await self._keep(self.standing)
            return
        landed, failed = execution.counts[Mark.LANDED], execution.counts[Mark.FAILED]
        text = f"proposal {execution.proposal.id}: {landed} of {counted(len(execution.marks), 'move')} landed"
        if failed:
            await self._pass(Event.FAIL, f"{text}, {failed} failed (status.progress.failures)")
        else:
            await self._pass(Event.COMPLETE, text)
