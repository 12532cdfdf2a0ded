"""A chaos round: the events of a schedule, then a quiet time until all has settled, then a check of the invariants."""

from __future__ import annotations

import heapq
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from chaos_acts import Acts
from chaos_cluster import POLICY, ChaosCluster
from chaos_schedule import BROKERS, Event, Schedule
from chaos_trail import blind, by_older_leaders, deeds, over
from chaos_witness import AWAY, holes
from trimtab_testbed.programs.find import KubeBinaries
from trimtab_testbed.simulated.cluster import landed, object_name

TICK = 0.1
READY_WITHIN = 90.0
"""Seconds for two operators to start, and for one to lead."""
SETTLED_WITHIN = 75.0
"""Seconds after the last fault until all must be settled. They include the start of the API server, of operators and of
a JVM, and the time until an operator gets the Lease."""


@dataclass
class Outcome:
    """The result of a round. broken: the invariants that did not hold, each with its evidence."""

    schedule: Schedule
    begun: list[Event] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)
    moves: int = 0
    writes: int = 0
    leaders: int = 0
    bundles: int = 0
    unserved: tuple[float, str] = (0.0, "")
    cycles: Counter[str] = field(default_factory=Counter)

    def __str__(self) -> str:
        """One line of the table."""
        how = "measured" if self.schedule.measured else "drawn"
        verdict = f"{len(self.broken)} BROKEN" if self.broken else "ok"
        settled = self.seconds.get("settling", 0.0)
        return (
            f"{self.schedule.seed:>10}  {how:8}  {len(self.begun):>6}  {self.leaders:>7}  {self.moves:>5}  "
            f"{self.writes:>6}  {self.bundles:>7}  {self.unserved[0]:>8.1f}  {settled:>7.1f}  {verdict}"
        )

    HEAD = "      seed  load      events  leaders  moves  writes  bundles  unserved  settled  verdict"

    def report(self) -> str:
        """Everything needed to find the cause: seed, schedule so far, evidence."""
        so_far = "\n".join(map(str, self.begun))
        head = f"seed {self.schedule.seed}, measured={self.schedule.measured}, {self.schedule.seconds:.0f} s"
        return f"{head}\n" + "\n".join(f"BROKEN: {text}" for text in self.broken) + f"\nevents so far:\n{so_far}"


def play(binaries: KubeBinaries, prometheus: Path, folder: Path, schedule: Schedule) -> Outcome:
    """Play a whole round on its own cluster, in `folder`."""
    outcome, watch = Outcome(schedule), _Stopwatch()
    with ChaosCluster(binaries, prometheus, folder, schedule) as stage:
        acts = Acts(stage)
        watch.note("stage")
        outcome.broken += _wait(
            stage, READY_WITHIN, lambda: [] if _two_stand_by(stage) else ["no two operators, one leading"]
        )
        watch.note("leader")
        _run(stage, acts, outcome)
        watch.note("faults")
        acts.finish()
        acts.tidy_up()
        watch.note("tidying up")
        calm = time.time()
        left = _wait(stage, SETTLED_WITHIN, lambda: list(unsettled(stage, calm)))
        watch.note("settling")
        late = [f"not settled after {SETTLED_WITHIN:.0f} s: {text}" for text in left]
        outcome.broken += [] if stage.crew.broken else late  # after a bad exit `_wait` did not wait
        _judge(stage, acts, outcome)
        watch.note("judging")
    outcome.broken += stage.crew.complaints()
    watch.note("end")
    outcome.seconds = watch.seconds
    return outcome


def _two_stand_by(stage: ChaosCluster) -> bool:
    """Whether both operators run and are ready, and one leads."""
    return any(stage.users.values()) and all(
        replica and "engine is warm" in replica.log for replica in stage.crew.slots
    )


class _Stopwatch:
    """Measures the seconds of each phase."""

    def __init__(self) -> None:
        self.seconds, self._last = dict[str, float](), time.monotonic()

    def note(self, phase: str) -> None:
        """Note the end of a phase."""
        now = time.monotonic()
        self.seconds[phase], self._last = round(now - self._last, 1), now


def _run(stage: ChaosCluster, acts: Acts, outcome: Outcome) -> None:
    """Wait until the last event has ended or an invariant is broken, then end all events."""
    begun, number = time.monotonic(), 0
    due: list[tuple[float, int, Event | Callable[[], Any]]] = []
    for number, event in enumerate(outcome.schedule.events):
        heapq.heappush(due, (event.at, number, event))
    while due:
        stage.crew.look_after()
        _revive(stage)
        broken = bool(stage.served.violations or stage.bundles.violations or stage.crew.broken)
        now = time.monotonic() - begun
        while due and (due[0][0] <= now or broken):
            _, _, what = heapq.heappop(due)
            if not isinstance(what, Event):
                what()
            elif not broken:
                number += 1
                outcome.begun.append(what)
                heapq.heappush(due, (what.at + what.seconds, number, acts.begin(what)))
        time.sleep(TICK)


def _revive(stage: ChaosCluster) -> None:
    """Restart an API server that gave up because it could not reach etcd, as a kubelet would."""
    server = stage.plane.server("kube-apiserver")
    if server.returncode is not None and server.returncode != -signal.SIGKILL:
        server.start()


def _wait(stage: ChaosCluster, within: float, missing: Callable[[], list[str]]) -> list[str]:
    """Wait until nothing is `missing`; returns what still is after `within` seconds.

    If an operator exits with a problem, the wait ends immediately.
    """
    until = time.monotonic() + within
    while left := missing():
        if time.monotonic() > until or stage.crew.broken:
            return left
        stage.crew.look_after()
        _revive(stage)
        time.sleep(TICK * 2)
    return []


def unsettled(stage: ChaosCluster, since: float) -> Iterator[str]:
    """What is not as it should be. since: when the last fault ended (epoch seconds)."""
    try:
        bundles, brokers = stage.listed("bundles"), stage.listed("brokers")
        splits, policy = stage.listed("bundlesplits"), stage.listed("balancingpolicies")[POLICY]
    except AWAY as error:
        yield f"the API server: {error}"
        return
    ready = {name for name in BROKERS if (brokers.get(name, {}).get("status") or {}).get("ready")}
    yield from (f"{name} is not ready" for name in BROKERS if name not in ready)
    for name, bundle in bundles.items():
        if not landed(bundle) or bundle["status"]["owner"] not in ready:
            yield f"{name} should be with {bundle['spec'].get('owner')}, its status {bundle.get('status')}"
        if (bundle.get("status") or {}).get("split"):
            yield f"{name} is locked by {bundle['status']['split']}"
    if hole := holes(bundles.values()):
        yield hole
    done = {"Completed", "Failed"}
    yield from (
        f"{n} is {s.get('status')}" for n, s in splits.items() if (s.get("status") or {}).get("phase") not in done
    )
    yield from _unserved(stage, bundles)
    yield from _not_ready(stage, policy, since)


def _unserved(stage: ChaosCluster, bundles: dict[str, Any]) -> Iterator[str]:
    wanted = {(name, (bundle.get("status") or {}).get("owner")) for name, bundle in bundles.items()}
    served = {(object_name(name), broker) for broker, names in stage.world.serving().items() for name in names}
    for name, broker in sorted(wanted ^ served, key=str):
        yield f"{name} {'should be' if (name, broker) in wanted else 'is'} served by {broker}"


def _not_ready(stage: ChaosCluster, policy: dict[str, Any], since: float) -> Iterator[str]:
    status, epoch = policy.get("status") or {}, max(stage.users.values())
    told = {c["type"]: c for c in status.get("conditions", [])}
    if told.get("Ready", {}).get("status") != "True":
        yield f"the policy is not Ready: {told.get('Ready')}"
    if f" leads, epoch {epoch}, with the Lease " not in told.get("Led", {}).get("message", ""):
        yield f"the newest leader, with epoch {epoch}, does not decide: {told.get('Led')}"
    if datetime.fromisoformat(status.get("lastCycle", {}).get("time", "1970-01-01T00:00:00Z")).timestamp() < since:
        yield f"there was no cycle since the last fault: {status.get('lastCycle')}"
    if status.get("observedGeneration") != policy["metadata"]["generation"]:
        yield f"the operator has not seen the policy's last edit: {status.get('observedGeneration')}"


def _judge(stage: ChaosCluster, acts: Acts, outcome: Outcome) -> None:
    """Check what can be checked only at the end."""
    users = stage.users
    done = deeds(stage.plane.audit_log, users)
    cycles = list(stage.cycles.seen.values())
    outcome.broken += stage.served.violations + stage.bundles.violations
    outcome.broken += by_older_leaders(done, users) + over(stage.caps, done)
    outcome.broken += blind(done, cycles, acts.outages, acts.disturbed)
    outcome.moves, outcome.writes = sum(deed.moves for deed in done), len(done)
    outcome.leaders = sum(epoch > 0 for epoch in users.values())
    outcome.bundles, outcome.unserved = len(stage.bundles.there), stage.served.longest
    outcome.cycles = Counter(cycle["outcome"] for cycle in cycles)
