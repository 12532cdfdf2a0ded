"""The model of the election: two processes campaign for one Lease, and at most one may write at any time.

Time passes in ticks of a third of the Lease's duration. A tick may pass at any moment, even while a request or its
answer is on its way. That also covers a process that is paused or slow. All clocks run at the same speed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

from explorer import Event, State
from kube_world import LOST, NAMES, put
from model_objects import Clock, bundle, cluster_of, policy
from objects import ABSENT, Answer, Objects, Request
from process import IDLE, Processes, Wire
from trimtab_operator.kube.client import LEASES
from trimtab_operator.kube.errors import ApiError
from trimtab_operator.kube.fence import Fence
from trimtab_operator.kube.leader_election import LEASE, Candidacy, Elector, LeaseLostError
from trimtab_operator.leadership import _begin
from trimtab_operator.state.cluster import ProcessState
from trimtab_operator.state.clusters import Clusters

DURATION, DEADLINE, RETRY = 3.0, 2.0, 1.0
"""Seconds of the Lease; a tick is one second."""

TERMS = 4
"""The most terms that are explored: a state with more of them is not followed."""

WAITS, BEGINS, LEADS, LEAVES = "waits", "begins", "leads", "leaves"
"""What a process does between two attempts. It begins when it has the Lease, and leads once it has claimed an epoch."""


TOGETHER = "two processes may write at the same time"
REPEATED = "a leader has an epoch that was used before"


class Budgets(NamedTuple):
    """How much may still go wrong. acts: how often a person may delete the Lease or ask a leader to stop."""

    faults: int = 0
    acts: int = 0


class Memory(NamedTuple):
    """What an elector remembers between two attempts.

    free: ticks until it may take the Lease. life: how often it restarted.
    """

    life: int = 0
    existed: bool = False
    leader: str = ""
    version: str = ""
    transitions: int = 0
    acquired: str = ""
    free: int = 0
    stamp: int = 0


class Voter(NamedTuple):
    """One process. fence: ticks for which it may write. waited: ticks since its last answer.

    answer: the one that is on its way.
    """

    at: str = WAITS
    memory: Memory = Memory()
    fence: int = 0
    node: int = IDLE
    waited: int = 0
    answer: Answer | None = None


class Ballot(NamedTuple):
    """A state. lease: the object's number. led: whether there ever was a leader.

    top: the highest epoch so far. carried: the highest epoch that a Bundle carries. deleted: whether a person deleted
    the Lease: then only epochs that a Bundle carries can't repeat.
    """

    lease: int
    voters: tuple[Voter, ...]
    late: Request | None
    left: Budgets
    led: bool = False
    top: int = 0
    carried: int = 0
    deleted: bool = False


BEGUN = (
    f"{NAMES[0]} looks whether it may lead",
    f"the reading of the Lease of {NAMES[0]} is carried out and answered",
    f"the creation of the Lease of {NAMES[0]} is carried out and answered",
    f"{NAMES[0]} begins to lead, and leads with epoch 1",
    f"{NAMES[0]} writes epoch 1 into a Bundle",
    f"{NAMES[1]} looks whether it may lead",
    f"the reading of the Lease of {NAMES[1]} is carried out and answered",
)
"""The events by which the first operator becomes the leader, and the second one sees that."""


FENCED = "fenced"


class TimedLeases:
    """The elector's `Api`: each answer advances the clock by the number of ticks in the answer's text.

    Each request says by its `sub` if the fence is closed while it is under way.
    """

    def __init__(self, wire: Wire, clock: Clock, fence: Fence) -> None:
        self._wire, self._clock, self._fence = wire, clock, fence

    async def _ask(self, verb: str, body: str = "") -> dict[str, Any]:
        try:
            answer = await self._wire.ask(Request(verb, "leases", LEASE, body, "" if self._fence.left else FENCED))
        except ApiError as error:
            self._clock.seconds += float(str(error))
            raise
        self._clock.seconds += float(answer.text)
        return self._wire.objects[answer.objects[0]]

    async def get(self, *_: Any) -> dict[str, Any]:
        """The Lease."""
        return await self._ask("get")

    async def create(self, _ref: Any, _namespace: str, body: Any) -> dict[str, Any]:
        """Create the Lease."""
        return await self._ask("create", json.dumps(body, sort_keys=True))

    async def patch(self, _ref: Any, _namespace: str, _name: str, body: Any) -> dict[str, Any]:
        """Change the Lease."""
        return await self._ask("patch", json.dumps(body, sort_keys=True))


class ElectionWorld:
    """The model."""

    name = "the election"

    def __init__(self, left: Budgets, *, begun: bool = False) -> None:
        """left: how much may go wrong. begun: whether the first operator leads at first, and the second knows that."""
        self._left, self._begun, self.objects = left, begun, Objects()
        programs = {"attempt": self._attempt, "begin": self._begin, "renew": self._renew, "release": self._release}
        self.processes = Processes(self.objects, programs, frozenset({LEASES.plural}), {})

    # -- the processes --

    async def _attempt(self, api: Any, what: tuple[int, Memory, int]) -> Voter:
        elector = _elector(api.wire, *what)
        led = await elector.attempt()
        return _rests(elector, what[1].life, BEGINS if led else WAITS)

    async def _begin(self, api: Any, what: tuple[int, Memory, int, int]) -> Voter:
        """Begin to lead. what: also the epoch that a Bundle carries."""
        place, memory, fence, epoch = what
        elector = _elector(api.wire, place, memory, fence)
        clusters = _clusters(api, epoch)
        try:
            await _begin(clusters, elector)
        except LeaseLostError:
            elector.fence.close()
            return _rests(elector, memory.life, LEAVES)
        assert clusters.process.epoch == elector.epoch
        return _rests(elector, memory.life, LEADS)

    async def _renew(self, api: Any, what: tuple[int, Memory, int]) -> Voter:
        elector = _elector(api.wire, *what)
        try:
            await elector.renew()
        except LeaseLostError:
            elector.fence.close()  # as `keep` does
            return _rests(elector, what[1].life, LEAVES)
        return _rests(elector, what[1].life, LEADS)

    async def _release(self, api: Any, what: tuple[int, Memory, int]) -> Voter:
        elector = _elector(api.wire, *what)
        await elector.release()
        return _rests(elector, what[1].life, LEAVES)

    # -- the model --

    def initial(self) -> State:
        """Two processes have started, in a new namespace unless the election has `begun`."""
        state: State = Ballot(ABSENT, (Voter(), Voter()), None, self._left)
        for line in BEGUN if self._begun else ():
            state = next(event.state for event in self.events(state) if event.text == line)
        return state

    def events(self, state: State) -> Iterator[Event]:
        """All events."""
        ballot = Ballot(*state)  # type: ignore[arg-type]
        if self._transitions(ballot) >= TERMS:
            return
        for place, voter in enumerate(ballot.voters):
            if voter.node:
                yield from self._of_request(ballot, place, voter)
            else:
                yield from self._begins(ballot, place, voter)
        if ballot.late is not None:
            after, _ = self._served(ballot._replace(late=None), ballot.late)
            yield Event(f"the delayed request arrives: {_told(ballot.late)}", after)
        if any(voter.fence or voter.node or voter.memory.free for voter in ballot.voters):
            yield Event("time passes", ballot._replace(voters=tuple(map(_older, ballot.voters))))
        if ballot.left.acts:
            yield from self._acts(ballot)

    def _begins(self, ballot: Ballot, place: int, voter: Voter) -> Iterator[Event]:
        who = NAMES[place]
        if voter.at == WAITS:
            yield self._starts(ballot, place, "attempt", f"{who} looks whether it may lead")
        elif voter.at == BEGINS:
            yield self._starts(ballot, place, "begin", f"{who} begins to lead")
        elif voter.at == LEADS:
            yield self._starts(ballot, place, "renew", f"{who} wants to renew the Lease")
            if voter.fence and ballot.carried < (epoch := voter.memory.transitions):
                yield Event(f"{who} writes epoch {epoch} into a Bundle", ballot._replace(carried=epoch))
        else:
            yield Event(f"{who} has ended, and starts again", self._restarted(ballot, place))
        if ballot.left.faults and voter.at == LEADS:
            yield Event(f"{who} ends, and starts again", self._restarted(_faulty(ballot), place), calm=False)

    def _of_request(self, ballot: Ballot, place: int, voter: Voter) -> Iterator[Event]:
        request = self.processes[voter.node].request
        assert request is not None
        who, what = NAMES[place], _told(request)
        if voter.answer is not None:
            yield self._answered(ballot, place, voter.answer, f"{who} gets the answer")
        else:
            after, answer = self._served(ballot, request)
            yield self._answered(after, place, answer, f"{what} of {who} is carried out and answered")
            under_way = after.voters[place]._replace(answer=answer)
            yield Event(f"{what} of {who} is carried out, and the answer is on its way", _with(after, place, under_way))
        if not ballot.left.faults:
            return
        faulty = _faulty(ballot)
        yield self._answered(faulty, place, LOST, f"{who} gets no answer to: {what}", calm=False)
        if voter.answer is None and request.writes and ballot.late is None:
            hangs = faulty._replace(late=request)
            yield self._answered(hangs, place, LOST, f"{who}: {what} hangs on its way, and is given up", calm=False)
            yield Event(f"{who} ends while {what} is on its way", self._restarted(hangs, place), calm=False)

    def _acts(self, ballot: Ballot) -> Iterator[Event]:
        acted = ballot._replace(left=ballot.left._replace(acts=ballot.left.acts - 1))
        known = all(voter.memory.existed or voter.at == LEADS for voter in ballot.voters)
        if ballot.lease and ballot.led and known:
            yield Event("a person deletes the Lease", acted._replace(lease=ABSENT, deleted=True), calm=False)
        for place, voter in enumerate(ballot.voters):
            if voter.at == LEADS and not voter.node:
                yield self._starts(acted, place, "release", f"{NAMES[place]} is asked to stop", calm=False)

    def _starts(self, ballot: Ballot, place: int, program: str, text: str, *, calm: bool = True) -> Event:
        voter = ballot.voters[place]
        what: tuple[Any, ...] = (place, voter.memory, voter.fence)
        if program == "begin":
            what = (*what, ballot.carried)
        held = frozenset({int(voter.memory.version)} if voter.memory.version else ())
        running = voter._replace(node=self.processes.start(program, what, held), waited=0, answer=None)
        return self._rested(_with(ballot, place, running), place, text, calm=calm)

    def _answered(self, ballot: Ballot, place: int, answer: Answer, text: str, *, calm: bool = True) -> Event:
        voter = ballot.voters[place]
        node = self.processes.answered(voter.node, answer._replace(text=str(voter.waited)))
        after = _with(ballot, place, voter._replace(node=node, waited=0, answer=None))
        return self._rested(after, place, text, calm=calm)

    def _rested(self, ballot: Ballot, place: int, text: str, *, calm: bool) -> Event:
        """The event after which a process continues. If its attempt has ended, the state has what it then remembers."""
        voter = ballot.voters[place]
        node = self.processes[voter.node]
        if node.request is not None:
            if node.request.sub == FENCED and voter.fence:
                ballot = _with(ballot, place, voter._replace(fence=0))
            return Event(text, ballot, calm)
        ended: Voter = node.result
        leads = ended.at == LEADS and ended.fence > 0
        epoch = ended.memory.transitions
        broken = ""
        if leads and voter.at == BEGINS:
            broken = REPEATED if epoch <= (ballot.carried if ballot.deleted else ballot.top) else ""
            text += f", and leads with epoch {epoch}"
        top = max(ballot.top, epoch) if leads else ballot.top
        after = _with(ballot, place, ended)._replace(led=ballot.led or leads, top=top)
        return Event(text, after, calm, broken)

    def _restarted(self, ballot: Ballot, place: int) -> Ballot:
        memory = Memory(life=ballot.voters[place].memory.life + 1, existed=ballot.led)
        return _with(ballot, place, Voter(memory=memory))

    def _served(self, ballot: Ballot, request: Request) -> tuple[Ballot, Answer]:
        lease, answer = self.objects.serve(ballot.lease, request, self._held(ballot))
        return ballot._replace(lease=lease), answer

    def _held(self, ballot: Ballot) -> frozenset[int]:
        """Versions of the Lease that a process may still send as a precondition."""
        named = {int(voter.memory.version) for voter in ballot.voters if voter.memory.version}
        if ballot.late is not None and ballot.late.body:
            named.add(int(json.loads(ballot.late.body)["metadata"].get("resourceVersion", ABSENT)))
        for voter in ballot.voters:
            named |= self.processes[voter.node].held if voter.node else frozenset()
            named |= set(voter.answer.objects) if voter.answer is not None else set()
        return frozenset(named)

    def broken(self, state: State) -> str:
        """The violation if both processes may write."""
        ballot = Ballot(*state)  # type: ignore[arg-type]
        return TOGETHER if all(voter.fence for voter in ballot.voters) else ""

    def settled(self, state: State) -> bool:
        """Whether one process leads and the Lease says so, or the bound on terms is reached."""
        ballot = Ballot(*state)  # type: ignore[arg-type]
        if self._transitions(ballot) >= TERMS:
            return True
        spec = self.objects[ballot.lease].get("spec", {})
        return any(
            voter.at == LEADS and voter.fence and spec.get("holderIdentity") == _identity(place, voter.memory.life)
            for place, voter in enumerate(ballot.voters)
        )

    def _transitions(self, ballot: Ballot) -> int:
        return max(ballot.top, int(self.objects[ballot.lease].get("spec", {}).get("leaseTransitions", 0)))


def _identity(place: int, life: int) -> str:
    return f"{'ab'[place]}{life}"


def _elector(wire: Wire, place: int, memory: Memory, fence: int) -> Elector:
    """The real elector with this memory, on a clock that begins at 100."""
    clock, stamps = Clock(100.0), iter(range(memory.stamp + 1, memory.stamp + 9))
    gate = Fence(clock)
    if fence:
        gate.extend(clock() + fence)
    candidacy = Candidacy(LEASE, _identity(place, memory.life), DURATION, DEADLINE, RETRY)
    api: Any = TimedLeases(wire, clock, gate)
    elector = Elector(api, "ns", candidacy, gate, memory.leader, wall=lambda: float(next(stamps) % STAMPS))
    elector._existed, elector._version, elector._acquired = memory.existed, memory.version, memory.acquired
    elector._transitions, elector._free_at = memory.transitions, clock() + memory.free
    elector.epoch = memory.transitions  # for a leader, its own
    elector.reference = {"kind": LEASES.kind, "metadata": {"name": LEASE}}
    return elector


def _clusters(api: Any, epoch: int) -> Clusters:
    """The clusters of a process, with one Bundle that carries `epoch` (0: none does)."""
    raw = bundle("b", "0x00000000", "0xffffffff", "x")
    if epoch:
        raw["spec"]["assignment"] = {"owner": "x", "epoch": epoch, "reason": "Overloaded"}
    raw["metadata"]["resourceVersion"] = "1"
    cluster = cluster_of(api, Clock(100.0), 0, {"bundles": [raw]}, policy())
    found = Clusters(ProcessState(), cluster.metrics, cluster.events, cluster.engine)
    found.by_namespace["ns"] = cluster
    return found


STAMPS = 4
"""Number of different wall-clock times: enough to distinguish two renewals."""


def _rests(elector: Elector, life: int, at: str) -> Voter:
    """The state of a process between two attempts."""
    clock = elector.fence.clock
    stamp = (round(elector.wall()) - 1) % STAMPS
    memory = Memory(
        life,
        elector._existed,
        elector.leader,
        elector._version,
        elector._transitions,
        elector._acquired,
        round(max(0.0, elector._free_at - clock())),
        stamp,
    )
    return Voter(at, memory, round(elector.fence.left))


def _older(voter: Voter) -> Voter:
    """The process one tick later. Waiting times longer than the Lease's duration are equivalent."""
    fence = max(0, voter.fence - 1)
    if voter.node:
        return voter._replace(fence=fence, waited=min(voter.waited + 1, round(DURATION) + 1))
    memory = voter.memory._replace(free=max(0, voter.memory.free - 1))
    return voter._replace(fence=fence, memory=memory)


def _with(ballot: Ballot, place: int, voter: Voter) -> Ballot:
    return ballot._replace(voters=put(ballot.voters, place, voter))


def _faulty(ballot: Ballot) -> Ballot:
    return ballot._replace(left=ballot.left._replace(faults=ballot.left.faults - 1))


def _told(request: Request) -> str:
    return {"get": "the reading", "create": "the creation", "patch": "the writing"}[request.verb] + " of the Lease"
