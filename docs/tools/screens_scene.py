"""What the pictures of terminals show: the demo's cluster at its first cycle, and the decision of this cycle."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from trimtab_operator.actuators import DryRunActuator, WriteResult
from trimtab_operator.decision_log.build import decision_record
from trimtab_operator.decision_log.record import DecisionRecord
from trimtab_operator.kube.conditions import timestamp
from trimtab_operator.kube.naming import bundle_name, parse_pulsar_bundle
from trimtab_operator.kube.records import BundleRecord, bundle_record
from trimtab_operator.loop.gates import Gate
from trimtab_operator.loop.preview import Preview
from trimtab_operator.observe.snapshot import Snapshot
from trimtab_operator.proposals.approver import in_short
from trimtab_operator.proposals.model import Proposal
from trimtab_operator.proposals.status import conditions, shown
from trimtab_operator.proposals.store import Standing
from trimtab_operator.resources.policy import Mode
from trimtab_operator.resources.policy_status import ProposalState
from trimtab_operator.state.cycle_result import CycleResult
from trimtab_operator.state.settings import Settings
from trimtab_operator.state.strategy_state import PolicyState
from trimtab_operator.status.conditions import policy_status
from trimtab_strategies.model import Brokers, Bundles, ClusterLoad, HeldBack, Memory, Move, Reason
from trimtab_strategies.model.cluster_load import FloatArray
from trimtab_strategies.planner.decide import decide
from trimtab_testbed.demo.cluster import NAMESPACE, POLICY
from trimtab_testbed.demo.snapshot import NIC
from trimtab_testbed.simulated.load import BrokerShape, SimulatedBrokerLoad
from trimtab_testbed.simulated.scenarios import ClusterScenario

NOW = 1_767_261_600.0
"""Time of the cycle (epoch seconds), the same for each drawing."""
LANDED_AFTER = 4.0
"""Seconds from that cycle until its moves land."""

_LONGEST = 20  # cycles
_WAITS = HeldBack("", Reason.NOT_APPROVED, "spec.mode is Approve: a person approves each proposal")
_CYCLE = {"snapshot": 0.012, "query": 0.190, "compute": 0.263, "decide": 0.010}


@dataclass(frozen=True)
class Scene:
    """A scenario at its first cycle, with a policy in `mode`."""

    scenario: ClusterScenario
    mode: Mode

    @cached_property
    def settings(self) -> Settings:
        """The policy, as the operator reads it."""
        return Settings.of(self._manifest())

    def policy(self) -> dict[str, Any]:
        """The BalancingPolicy object after the cycle; in mode Approve its proposal waits."""
        status = policy_status(self.result, {}, 0)
        if self.mode is not Mode.APPROVE:
            return {**self._manifest(), "status": status}
        made = Proposal.of(
            self.result.plan or self.foreseen.plan,
            self.result.load,
            names=self.result.names,
            generation=1,
            made_at=NOW,
            expires_after=self.settings.approval_expires_after,
        )
        told = f"{in_short(made)} can be approved until {timestamp(made.expires_at)}"
        standing = Standing(
            ProposalState.PROPOSAL_READY, f"{told}: trimtab approve {POLICY} -n {NAMESPACE} --proposal {made.id}", made
        )
        merged = conditions(status["conditions"], standing, None, 1, NOW)
        return {**self._manifest(), "status": {**status, "proposal": shown(standing), "conditions": merged}}

    @cached_property
    def foreseen(self) -> Preview:
        """The result of `trimtab plan`."""
        found = decide(self.load, self.settings.pair, self.settings.limits, Memory(), np.random.default_rng(1))
        records = {name: _record(name) for name in self.load.bundles.names}
        return Preview(self.settings, Snapshot(self.load, records), found.plan, None, Gate(DryRunActuator()))

    @cached_property
    def result(self) -> CycleResult:
        """The cycle: every move written, or none in mode Approve."""
        plan = self.foreseen.plan
        waits = _WAITS if self.mode is Mode.APPROVE else None
        names = {name: bundle_name(*parse_pulsar_bundle(name)) for name in plan.named}
        written = [WriteResult(names[move.bundle], waits and waits.reason) for move in plan.moves]
        return CycleResult(NOW, _CYCLE, 1, self.load, plan, restraint=waits, written=written, names=names)

    @cached_property
    def record(self) -> DecisionRecord:
        """The record of the decision, after all written moves landed."""
        record = decision_record(self.result, self.settings, PolicyState(Memory()))
        landed = {"outcome": Reason.LANDED, "ended": NOW + LANDED_AFTER}
        moves = tuple(move.model_copy(update=landed) if move.written else move for move in record.moves)
        return record.model_copy(update={"moves": moves})

    @cached_property
    def load(self) -> ClusterLoad:
        """The cluster, as it would be measured."""
        return measured(self.scenario, self.scenario.stage()[1], {}, NOW)

    @cached_property
    def moves(self) -> tuple[Move, ...]:
        """All moves until the cluster is level. The moves of a decision land before the next decision."""
        owners, moved, memory = dict(self.scenario.stage()[1]), dict[str, float](), Memory()
        made: list[Move] = []
        for cycle in range(_LONGEST):
            load = measured(self.scenario, owners, moved, NOW + cycle * self.settings.interval)
            chance = np.random.default_rng(cycle)
            found = decide(load, self.settings.pair, self.settings.limits, memory, chance, moved_last_hour=len(made))
            memory = found.memory
            if cycle and not found.plan.moves:
                break
            owners.update({move.bundle: move.destination for move in found.plan.moves})
            moved.update({move.bundle: load.now for move in found.plan.moves})
            made += found.plan.moves
        return tuple(made)

    def _manifest(self) -> dict[str, Any]:
        source = {"prometheus": {"url": "http://prometheus.monitoring.svc:9090"}}
        spec = {**self.scenario.policy, "mode": str(self.mode), "source": source}
        return {"metadata": {"name": POLICY, "namespace": NAMESPACE, "generation": 1}, "spec": spec}


def measured(
    scenario: ClusterScenario, owners: Mapping[str, str], moved: Mapping[str, float], now: float
) -> ClusterLoad:
    """A scenario's cluster at its mean loads. owners: brokers by bundle; moved: time of a bundle's last move."""
    loads, _ = scenario.stage()
    spaces = tuple(namespace.full_name for namespace in scenario.namespaces)
    brokers = [served(scenario, broker.shape, owners) for broker in scenario.brokers]
    names = [broker.shape.name for broker in brokers]
    owner = np.array([names.index(owners[load.name]) for load in loads])
    short = np.array([(load.rate_in, load.rate_out, load.throughput_in, load.throughput_out) for load in loads])
    bundles = Bundles(
        names=tuple(load.name for load in loads),
        namespace=np.array([spaces.index(load.name.rpartition("/")[0]) for load in loads]),
        owner=owner,
        short=short,
        long=short,
        topics=np.array([float(load.topics) for load in loads]),
        sessions=np.array([float(load.producers + load.consumers) for load in loads]),
        last_unload=np.array([moved.get(load.name, np.nan) for load in loads]),
        pinned=np.zeros(len(loads), dtype=bool),
        in_flight=np.zeros(len(loads), dtype=bool),
        moving_from=np.full(len(loads), -1),
        moving_share=np.zeros(len(loads)),
    )
    traffic = np.stack([np.bincount(owner, column, len(brokers)) for column in short.T], axis=1)
    return ClusterLoad(_brokers(brokers, traffic), bundles, spaces, now)


def _brokers(brokers: list[SimulatedBrokerLoad], traffic: FloatArray) -> Brokers:
    percents, all_of_them = np.array([usage(broker) for broker in brokers]), np.ones(len(brokers), dtype=bool)
    return Brokers(
        names=tuple(broker.shape.name for broker in brokers),
        usage=np.insert(percents, 2, 0.0, axis=1),
        limit=np.tile([100.0, 100.0, 0.0, 100.0, 100.0], (len(brokers), 1)),
        traffic=traffic,
        age=np.zeros(len(brokers)),
        ready=all_of_them,
        schedulable=all_of_them,
        trusted=all_of_them,
    )


def served(scenario: ClusterScenario, shape: BrokerShape, owners: Mapping[str, str]) -> SimulatedBrokerLoad:
    """A broker that serves the bundles it owns. owners: brokers by bundle."""
    loads, _ = scenario.stage()
    found = SimulatedBrokerLoad(shape, {load.name: load for load in loads}, 0.0)
    for bundle in (bundle for bundle, owner in owners.items() if owner == shape.name):
        found.serve(bundle, 0.0)
    return found


def usage(broker: SimulatedBrokerLoad) -> tuple[float, float, float, float]:
    """CPU, memory, network in and out of a broker in percent, at the mean loads of its bundles."""
    shape, loads = broker.shape, list(broker.loads())
    cores = (shape.idle + sum(load.cores for load in loads)) / shape.strength
    network = (sum(load.throughput_in for load in loads), sum(load.throughput_out for load in loads))
    shares = (cores / shape.cores, broker.memory(0.0) / shape.memory, network[0] / NIC, network[1] / NIC)
    return (100 * shares[0], 100 * shares[1], 100 * shares[2], 100 * shares[3])


def _record(bundle: str) -> BundleRecord:
    """The Bundle object of a bundle in Pulsar's spelling; only its name matters here."""
    metadata = {"name": bundle_name(*parse_pulsar_bundle(bundle)), "generation": 1, "resourceVersion": "1"}
    return bundle_record({"metadata": metadata, "spec": {"topicNamespace": "", "range": {"lower": "", "upper": ""}}})
