"""Carries out the events of a schedule, and ends each when its time is over.

Events on processes happen immediately, in the thread that started them. Each event that needs the API server or a
broker gets its own thread, which retries until it succeeds, as kubelets and people do.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

import aiohttp
from kubernetes.aio import client

from chaos_cluster import API, POLICY, SHEDDER, ChaosCluster
from chaos_schedule import BROKERS, NO_DATA, Event, Kind
from chaos_trail import Span
from chaos_witness import AWAY
from faulty_proxy import Fault
from trimtab_testbed.servers.kube_rest import KubeApiError

Undo = Callable[[], object]
Act = Callable[[Event], Undo | None]
NEVER_MIND = frozenset(
    {HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT, HTTPStatus.UNPROCESSABLE_ENTITY, HTTPStatus.FORBIDDEN}
)
"""Errors of the API server for requests that are too late or impossible."""

INSIST = 60.0
"""Seconds after which a retried action gives up, which fails the test."""

_FAULTS = {
    Kind.PROMETHEUS_DOWN: Fault.DOWN,
    Kind.PROMETHEUS_SLOW: Fault.SLOW,
    Kind.PROMETHEUS_BROKEN: Fault.TRUNCATED,
    Kind.PROMETHEUS_PARTIAL: Fault.PARTIAL,
}
_SHEDDERS: tuple[dict[str, Any], ...] = (
    {"type": "OverloadShedder", "overloadShedder": {"overloadThreshold": 50}},
    {"type": "AvgShedder", "avgShedder": {}},
    {"type": "TransferShedder", "transferShedder": {}},
    {"type": "WeightedBalancer", "weightedBalancer": {}},
)


def insist(what: Callable[[], Any]) -> None:
    """Retry until the action succeeds or has become pointless."""
    until = time.monotonic() + INSIST
    while True:
        try:
            what()
        except KubeApiError as error:
            if error.status in NEVER_MIND:
                return
            if time.monotonic() > until:
                raise
        except (*AWAY, aiohttp.ClientError, client.ApiException):
            if time.monotonic() > until:
                raise
        else:
            return
        time.sleep(0.3)


@dataclass
class Acts:
    """Starts and ends events on `stage`.

    outages: times without load data. disturbed: times in which writes were delayed.
    """

    stage: ChaosCluster
    outages: list[Span] = field(default_factory=list)
    disturbed: list[Span] = field(default_factory=list)
    _lanes: dict[str, ThreadPoolExecutor] = field(default_factory=dict)
    _waiting: list[Future[Any]] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def begin(self, event: Event) -> Undo:
        """Start an event; returns the function that ends it."""
        began = time.time()
        undo = self._act(event)

        def end() -> None:
            undo()
            span = Span(began, time.time())
            if event.kind in NO_DATA:
                self.outages.append(span)
            elif event.kind in _LATE:
                self.disturbed.append(Span(span.begin, span.end + _LATE[event.kind]))

        return end

    def _act(self, event: Event) -> Undo:
        if (act := self._at_once().get(event.kind)) is not None:
            return act(event) or (lambda: None)
        act, lane = self._by_others()[event.kind], event.target if event.kind in _OF_BROKERS else "person"
        begun = self._in(lane, lambda: act(event))

        def end() -> None:
            if (undo := begun.result()) is not None:
                undo()

        return lambda: self._in(lane, end)

    def _in(self, lane: str, what: Callable[[], Any]) -> Future[Any]:
        pool = self._lanes.setdefault(lane, ThreadPoolExecutor(1, thread_name_prefix=lane))
        future = pool.submit(what)
        self._waiting.append(future)
        return future

    def finish(self) -> None:
        """Wait for all threads. Raises what went wrong in them."""
        for future in self._waiting:
            future.result(timeout=2 * INSIST)
        for pool in self._lanes.values():
            pool.shutdown()

    # -- immediate events --

    def _at_once(self) -> Mapping[Kind, Act]:
        crew = self.stage.crew
        return {
            Kind.KILL_LEADER: lambda event: crew.kill(crew.leading, event.seconds),
            Kind.KILL_STANDBY: lambda event: crew.kill(1 - crew.leading, event.seconds),
            Kind.KILL_BOTH: self._kill_both,
            Kind.END_LEADER: lambda event: crew.end(crew.leading, event.seconds),
            Kind.PAUSE_LEADER: lambda _: self._pause_operator(crew.leading),
            Kind.PAUSE_STANDBY: lambda _: self._pause_operator(1 - crew.leading),
            Kind.CUT_LEADER: lambda _: self._cut(),
            Kind.KILL_JVM: lambda _: crew.kill_jvm(crew.leading),
            Kind.KILL_APISERVER: lambda _: self._kill(self.stage.plane.server("kube-apiserver")),
            Kind.PAUSE_APISERVER: lambda _: self._pause(self.stage.plane.server("kube-apiserver")),
            Kind.KILL_ETCD: lambda _: self._kill(self.stage.plane.server("etcd")),
            Kind.PAUSE_ETCD: lambda _: self._pause(self.stage.plane.server("etcd")),
            Kind.KILL_PROMETHEUS: lambda _: self._kill(self.stage.prometheus.server),
            Kind.PAUSE_PROMETHEUS: lambda _: self._pause(self.stage.prometheus.server),
            **dict.fromkeys(_FAULTS, self._misbehave),
            Kind.SOURCE_DOWN: lambda _: self._forget_load(),
            Kind.SHIFT_LOAD: self._shift,
        }

    def _kill_both(self, event: Event) -> None:
        for slot in (0, 1):
            self.stage.crew.kill(slot, event.seconds)

    def _pause_operator(self, slot: int) -> Undo:
        paused = self.stage.crew.pause(slot)
        return lambda: self.stage.crew.resume(paused)

    def _cut(self) -> Undo:
        cut = self.stage.crew.cut(self.stage.crew.leading)
        return lambda: self.stage.crew.mend(cut)

    def _kill(self, server: Any) -> Undo:
        server.kill()
        return lambda: server.running or server.start()

    def _pause(self, server: Any) -> Undo | None:
        if not server.running:
            return None
        server.send(signal.SIGSTOP)
        return lambda: server.send(signal.SIGCONT) if server.running else None

    def _misbehave(self, event: Event) -> Undo:
        proxy = self.stage.proxy
        proxy.fault = _FAULTS[event.kind]
        return lambda: setattr(proxy, "fault", Fault.NONE)

    def _forget_load(self) -> Undo:
        self.stage.tell_ground(known=False)
        return lambda: self.stage.tell_ground(known=True)

    def _shift(self, event: Event) -> None:
        """Change the load of a part of a namespace, by a factor between a fifth and five."""
        factor = 5 ** (2 * event.amount - 1)
        if self.stage.schedule.measured:
            bundles = self.stage.world.first_bundles
            at = int(event.pick * len(bundles))
            for bundle in bundles[at : at + 4]:
                self.stage.world.scale(bundle, factor)
        else:
            cells = list(self.stage.ground.cells.values())[event.pick >= 0.5]
            at = int(event.pick * 2 % 1 * len(cells))
            cells[at : at + 12] = [min(0.08, load * factor) for load in cells[at : at + 12]]
            self.stage.tell_ground(known=self.stage.ground.known)

    # -- events that need an answer --

    def _by_others(self) -> Mapping[Kind, Act]:
        world = self.stage.world
        return {
            Kind.KILL_BROKER: lambda event: self._kill_broker(event.target, delete_pod=False),
            Kind.LOSE_POD: lambda event: self._kill_broker(event.target, delete_pod=True),
            Kind.DEAFEN_BROKER: lambda event: self._for_a_while(
                lambda: world.deafen(event.target), lambda: world.undeafen(event.target)
            ),
            Kind.MUTE_BROKER: lambda event: self._for_a_while(
                lambda: world.mute_metrics(event.target), lambda: world.unmute_metrics(event.target)
            ),
            Kind.MOVE: self._move,
            Kind.PIN: self._pin,
            Kind.DRAIN: self._drain,
            Kind.SPLIT: self._split,
            Kind.PAUSE_POLICY: lambda _: self._edit({"paused": True}, {"paused": False}),
            Kind.DRY_RUN: lambda _: self._edit({"mode": "DryRun"}, {"mode": "Auto"}),
            Kind.APPROVE: self._approve,
            Kind.OTHER_SHEDDER: self._other_shedder,
            Kind.DROP_LEASE: lambda _: insist(lambda: self.stage.rest.delete(_LEASE)),
        }

    def _for_a_while(self, begin: Undo, end: Undo) -> Undo:
        insist(begin)
        return lambda: insist(end)

    def _kill_broker(self, broker: str, *, delete_pod: bool) -> Undo:
        world = self.stage.world
        return self._for_a_while(lambda: world.kill(broker, delete_pod=delete_pod), lambda: world.revive(broker))

    def _bundle(self, pick: float) -> str:
        """Name of the bundle that `pick` selects (ratio 0-1) among those that exist now."""
        names = list[str]()
        insist(lambda: names.extend(sorted(self.stage.listed("bundles"))))
        return names[int(pick * len(names))]

    def _patch(self, path: str, body: Mapping[str, Any]) -> None:
        insist(lambda: self.stage.rest.patch(f"{API}/{path}", body))

    def _move(self, event: Event) -> None:
        self._patch(f"bundles/{self._bundle(event.pick)}", {"spec": {"owner": event.target}})

    def _pin(self, event: Event) -> Undo:
        name = self._bundle(event.pick)
        self._patch(f"bundles/{name}", {"spec": {"pinned": True}})
        return lambda: self._patch(f"bundles/{name}", {"spec": {"pinned": False}})

    def _drain(self, event: Event) -> Undo:
        self._patch(f"brokers/{event.target}", {"spec": {"schedulable": False}})
        return lambda: self._patch(f"brokers/{event.target}", {"spec": {"schedulable": True}})

    def _split(self, event: Event) -> None:
        body = {
            "apiVersion": "trimtab.dev/v1alpha1",
            "kind": "BundleSplit",
            "metadata": {"name": f"person-{event.at:.2f}"},
            "spec": {
                "bundle": self._bundle(event.pick),
                "algorithm": "range_equally_divide",
                "ttlSecondsAfterFinished": 2,
            },
        }
        insist(lambda: self.stage.rest.create(f"{API}/bundlesplits", body))

    def _edit(self, begin: Mapping[str, Any], end: Mapping[str, Any]) -> Undo:
        path = f"balancingpolicies/{POLICY}"
        self._patch(path, {"spec": begin})
        return lambda: self._patch(path, {"spec": end})

    def _approve(self, event: Event) -> Undo:
        undo = self._edit({"mode": "Approve"}, {"mode": "Auto"})
        time.sleep(event.seconds / 2)
        self._patch(f"balancingpolicies/{POLICY}", {"metadata": {"annotations": {"trimtab.dev/rebalance": "approve"}}})
        return undo

    def _other_shedder(self, event: Event) -> Undo:
        other = _SHEDDERS[int(event.amount * len(_SHEDDERS))]
        gone = dict.fromkeys(other.keys() - {"type"})
        return self._edit({"shedder": {**other, "thresholdShedder": None}}, {"shedder": {**gone, **SHEDDER}})

    def tidy_up(self) -> None:
        """Restore the policy, and remove all pins and drains, as a person would in the end."""
        self._patch(f"balancingpolicies/{POLICY}", {"spec": self.stage.policy_spec()})
        for name in self.stage.listed("bundles"):
            self._patch(f"bundles/{name}", {"spec": {"pinned": False}})
        for name in BROKERS:
            self._patch(f"brokers/{name}", {"spec": {"schedulable": True}})


_LEASE = "/apis/coordination.k8s.io/v1/namespaces/messaging/leases/trimtab"
_OF_BROKERS = frozenset({Kind.KILL_BROKER, Kind.LOSE_POD, Kind.DEAFEN_BROKER, Kind.MUTE_BROKER})
_LATE: Mapping[Kind, float] = {
    Kind.PAUSE_LEADER: 3.0,
    Kind.CUT_LEADER: 3.0,
    Kind.KILL_APISERVER: 8.0,
    Kind.PAUSE_APISERVER: 8.0,
    Kind.KILL_ETCD: 8.0,
    Kind.PAUSE_ETCD: 8.0,
    Kind.APPROVE: 10.0,
}
"""By kind of event, the seconds after its end during which delayed effects may still arrive."""
