"""What each `Reason` means to a person on call, and what to do to change the outcome.

Each new `Reason` needs a row here; a test checks that. `why` is a clause without a full stop, in which *it* is the
bundle or broker in question. `otherwise` are steps: words, a colon, and a command if there is one. Steps may contain
{bundle}, {broker} (the broker in question, or the bundle's), {to} (a better broker), {policy} and {namespace}.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trimtab_strategies.model import Reason


@dataclass(frozen=True, slots=True)
class Sentence:
    """why: the clause. otherwise: what a person can do, best first; empty if nothing is needed."""

    why: str
    otherwise: tuple[str, ...] = ()

    def steps(self, **names: str) -> tuple[str, ...]:
        """`otherwise` with the names filled in."""
        return tuple(step.format(**names) for step in self.otherwise)


def _set(**spec: Any) -> str:
    """A command that sets fields of the policy's spec."""
    text = json.dumps({"spec": spec}).replace("{", "{{").replace("}", "}}")
    return f"kubectl patch bpol {{policy}} -n {{namespace}} --type merge -p '{text}'"


_MOVE = "move it manually: trimtab move {bundle} {to} -n {namespace}"
_LIMITS = "set the limit in the policy"
_OBSERVE = "look at the measured load: trimtab observe --policy {policy} -n {namespace}"
_LOG = "read the operator's log, and report the error"
_STATUS = "see the state of the policy: trimtab status {policy} -n {namespace}"
_SPACE = "see the TopicNamespace: kubectl get topicnamespaces -n {namespace} -o yaml"
_DRAWN = "see its Broker object: kubectl get broker {broker} -n {namespace} -o yaml"
_OPEN = "make the broker schedulable again: trimtab undrain {broker} -n {namespace}"
_SPLIT = "split it: trimtab split {bundle} -n {namespace}"
_SHEDDER = "change the shedder's parameters: kubectl edit bpol {policy} -n {namespace} (spec.shedder)"
_PLACEMENT = "change the placement: kubectl edit bpol {policy} -n {namespace} (spec.placement)"
_SELECTION = "change spec.selection of the policy: kubectl edit bpol {policy} -n {namespace}"
_SPREAD = "stop spreading its namespace: kubectl edit tns -n {namespace} (spec.spread)"
_PATCH_BUNDLE = "kubectl patch bundle {bundle} -n {namespace} --type merge -p"
_UNPIN = f'remove the pin: {_PATCH_BUNDLE} \'{{{{"spec": {{{{"pinned": false}}}}}}}}\''
_SPLITTER = "change the split rule: kubectl edit bpol {policy} -n {namespace} (spec.split)"

SENTENCES: Mapping[Reason, Sentence] = {
    # why a bundle moves
    Reason.OVERLOADED: Sentence(
        "the broker itself carries more than the strategy allows, and should give bundles away", (_SHEDDER,)
    ),
    Reason.UNDERLOADED: Sentence("another broker carries much less than the rest", (_SHEDDER,)),
    Reason.UNOWNED: Sentence(
        "it has no owner, and gets one as soon as a broker may have it",
        ("see the brokers: kubectl get brokers -n {namespace}",),
    ),
    Reason.BROKER_LOST: Sentence("its broker is gone, so it got another owner"),
    Reason.ADMIN: Sentence(
        "a person or Git set its owner", ("move it elsewhere: trimtab move {bundle} {to} -n {namespace}",)
    ),
    Reason.APPROVED: Sentence("it is in a saved plan that a person approved", (_MOVE,)),
    Reason.ADOPTED: Sentence("its owner changed outside the operator, which adopted the new owner", (_MOVE,)),
    Reason.FAILED_OVER: Sentence("its broker was away, and another one took it", (_MOVE,)),
    Reason.FOUND: Sentence("it was found there, and has not moved", (_MOVE,)),
    Reason.RESTORED: Sentence("it is pinned, left its owner, and was moved back"),
    Reason.DRAINED: Sentence("the broker is being drained, so its bundles leave it", (_OPEN,)),
    Reason.ROLLING_OUT: Sentence("brokers are restarting one by one"),
    # why a bundle is split
    Reason.TOPICS: Sentence("it has more topics than a bundle may have", (_SPLITTER,)),
    Reason.SESSIONS: Sentence("it has more producers and consumers than a bundle may have", (_SPLITTER,)),
    Reason.MSG_RATE: Sentence("it carries more messages a second than a bundle may", (_SPLITTER,)),
    Reason.BANDWIDTH: Sentence("it carries more bytes a second than a bundle may", (_SPLITTER,)),
    Reason.NO_ROOM: Sentence("no broker has room for the whole bundle", (_SPLITTER,)),
    # why nothing was split
    Reason.HOT_TOPIC: Sentence(
        "a single topic makes up its load, and a split does not divide a topic", ("give that topic (more) partitions",)
    ),
    Reason.TOO_FEW_TOPICS: Sentence("it has too few topics for a useful split"),
    Reason.TOO_NARROW: Sentence("its hash range can't be split further"),
    Reason.MAX_BUNDLES: Sentence("its namespace has as many bundles as it may have", (_SPLITTER,)),
    Reason.SPLIT_CAP: Sentence(
        "the policy's splits of this cycle are used up", (f"{_LIMITS}: {_set(limits={'maxSplitsPerCycle': 20})}",)
    ),
    Reason.SPLIT_BUDGET: Sentence("its namespace's splits are used up; they can't be undone", (_SPLITTER,)),
    # why a broker may not have a bundle
    Reason.ISOLATION: Sentence("the isolation policy of its namespace names other brokers", (_SPACE,)),
    Reason.ANTI_AFFINITY: Sentence(
        "another broker, or failure domain, serves less of its namespace's anti-affinity group", (_SPACE,)
    ),
    Reason.TOPIC_LIMIT: Sentence("the broker has as many topics as a broker may have", (_SELECTION,)),
    Reason.VERSION: Sentence("the broker runs an older version than another one", (_SELECTION,)),
    Reason.LOAD_MANAGER: Sentence("the broker runs another load manager", (_SELECTION,)),
    Reason.UNEVEN: Sentence("the broker has more bundles of that namespace than another one", (_SELECTION, _SPREAD)),
    Reason.ZONE: Sentence(
        "brokers in the zone of its namespace have room",
        ("let it go anywhere: kubectl edit tns -n {namespace} (spec.zone)", _MOVE),
    ),
    # why nothing moved: the strategy
    Reason.BALANCED: Sentence("no broker is far enough from the others", (_SHEDDER, _MOVE)),
    Reason.HIT_COUNT: Sentence("no imbalance has lasted for enough cycles", ("wait for more cycles", _SHEDDER)),
    Reason.AVERAGING: Sentence(
        "brokers differ now, but not for long enough",
        ("wait: the figures say for how long", _SHEDDER),
    ),
    Reason.COOL_DOWN: Sentence(
        "it moved too recently to be moved again", (_MOVE, f"{_LIMITS}: {_set(limits={'coolDown': '10m'})}")
    ),
    Reason.NO_BUNDLES: Sentence(
        "the broker has no bundle that may leave it",
        ("see what keeps each of its bundles there: trimtab explain broker {broker} -n {namespace}",),
    ),
    Reason.SOLE_BUNDLE: Sentence(
        "it carries all the load of its broker, and a move would only shift that load to another broker",
        (_SPLIT, "give its topics partitions"),
    ),
    Reason.NO_BROKERS: Sentence(
        "fewer than two brokers take part", ("see the brokers: kubectl get brokers -n {namespace}",)
    ),
    Reason.NO_CANDIDATE: Sentence(
        "its new broker would be busier than the current one is now", ("add a broker", _SPLIT, _MOVE)
    ),
    Reason.NOT_CHOSEN: Sentence("the strategy preferred another one", (_MOVE, _PLACEMENT)),
    Reason.SAME_BROKER: Sentence("the placement chose the current broker", (_MOVE, _PLACEMENT)),
    Reason.BELOW_MINIMUM: Sentence("a move would gain too little", (_SHEDDER, _MOVE)),
    # why nothing moved: data
    Reason.NO_LOAD_DATA: Sentence("one of its metrics was never measured", (_OBSERVE,)),
    Reason.OUT_DATED_DATA: Sentence(
        "its newest sample is too old",
        (_OBSERVE, f"allow older samples: {_set(source={'prometheus': {'maxAge': '2m'}})}"),
    ),
    Reason.UNTRUSTED: Sentence("its metrics can't be right, and are not trusted", (_OBSERVE,)),
    Reason.PARTIAL_DATA: Sentence("Prometheus answered for only a part of the cluster", (_OBSERVE,)),
    Reason.SOURCE_UNAVAILABLE: Sentence(
        "a source that the policy needs does not work",
        (
            _OBSERVE,
            "if Prometheus did not answer: check spec.source.prometheus.url, and that Prometheus runs",
            "if the history can't be used: give `trimtab run --history` a folder that can be read and written",
        ),
    ),
    # why nothing moved: the guard
    Reason.PAUSED: Sentence(
        "the policy is paused",
        ("resume it: trimtab resume {policy} -n {namespace}", f"if Git pauses it: {_set(paused=False)}"),
    ),
    Reason.DRY_RUN: Sentence(
        "the policy only shows what it would do (spec.mode is DryRun)",
        (f"let it act: {_set(mode='Auto')}", f"let it ask first: {_set(mode='Approve')}", _MOVE),
    ),
    Reason.NOT_APPROVED: Sentence(
        "it is proposed, and not approved yet",
        ("look at it: trimtab status {policy} -n {namespace}", "approve it: trimtab approve {policy} -n {namespace}"),
    ),
    Reason.PINNED: Sentence(
        "a person pinned it to its owner",
        (
            _UNPIN,
            _MOVE,
        ),
    ),
    Reason.OUTSIDE_WINDOW: Sentence(
        "the policy's windows do not let it act now",
        ("change them: kubectl edit bpol {policy} -n {namespace} (spec.windows)", _MOVE),
    ),
    Reason.COMPETING_BALANCER: Sentence(
        "a competing balancer reverts the policy's moves, so the policy only shows its plans for a while",
        (
            "switch the other balancer off; the policy's Events name it: kubectl describe bpol {policy} -n {namespace}",
            'then let it act immediately: kubectl annotate bpol {policy} -n {namespace} trimtab.dev/release="true"',
        ),
    ),
    Reason.PULSAR_BALANCER_ACTIVE: Sentence(
        "Pulsar's own shedding or automatic split is on, and two balancers would revert each other's moves",
        (
            "see where it is on: kubectl describe balancingpolicy {policy} -n {namespace}",
            "set spec.pulsar.ownBalancing: SwitchOff, or switch it off yourself",
        ),
    ),
    Reason.IN_FLIGHT: Sentence(
        "an earlier move of it has not landed yet", ("wait: it lands, or is withdrawn after limits.moveTimeout",)
    ),
    Reason.SPLITTING: Sentence("it is being split", ("see its progress: kubectl get bundlesplits -n {namespace}",)),
    Reason.CYCLE_CAP: Sentence(
        "the policy's moves of this cycle are used up by others",
        ("wait for the next cycle", f"{_LIMITS}: {_set(limits={'maxMovesPerCycle': 50})}"),
    ),
    Reason.BROKER_CAP: Sentence(
        "the moves from or to one broker in this cycle are used up",
        ("wait for the next cycle", f"{_LIMITS}: {_set(limits={'maxMovesPerBroker': 20})}"),
    ),
    Reason.HOUR_CAP: Sentence(
        "the policy's moves of this hour are used up", (f"{_LIMITS}: {_set(limits={'maxMovesPerHour': 400})}", _MOVE)
    ),
    Reason.DISRUPTION_BUDGET: Sentence(
        "a disruption budget has too little left for it",
        (
            "see what is spent: trimtab status {policy} -n {namespace}",
            "see the namespaces: kubectl get tns -n {namespace} -o yaml (status.budget)",
            "raise it: kubectl edit bpol {policy} -n {namespace} (spec.budget), or edit the TopicNamespace",
            _MOVE,
        ),
    ),
    Reason.LAST_PRIORITY: Sentence(
        "its namespace has the priority Last, and other bundles can move",
        ("let it move like others: kubectl edit tns -n {namespace} (spec.priority)", _MOVE),
    ),
    Reason.UNSCHEDULABLE: Sentence(
        "it is not schedulable (spec.schedulable is false, or its node is cordoned)", (_OPEN, _DRAWN)
    ),
    Reason.RAMPING_UP: Sentence(
        "it started recently, and receives fewer bundles per cycle for a while",
        ("wait until spec.limits.rampUp has passed", f"{_LIMITS}: {_set(limits={'rampUp': '0s'})}"),
    ),
    Reason.NOT_READY: Sentence(
        "it is not ready", (_DRAWN, "see its pod: kubectl describe pod {broker} -n {namespace}")
    ),
    Reason.MASS_FAILURE: Sentence(
        "so many brokers are lost that moves would make it worse",
        (
            "see the brokers: kubectl get brokers -n {namespace}",
            f"{_LIMITS}: {_set(limits={'maxLostBrokersPercent': 60})}",
        ),
    ),
    Reason.STORE_NOT_SYNCED: Sentence(
        "the operator's data on bundles is not complete, or not fresh",
        ("wait a minute, then read the operator's log",),
    ),
    # how a move ended
    Reason.LANDED: Sentence("the destination confirmed it"),
    Reason.CONFLICT: Sentence(
        "another client changed the bundle first", ("wait for the next cycle, which decides again",)
    ),
    Reason.DEPOSED: Sentence(
        "another leader, with a higher epoch, has already decided where it goes",
        (
            "see who leads (condition Led): kubectl describe bpol {policy} -n {namespace}",
            "run one operator for the namespace, or give all of them the same --lease-name",
            f'if a person wrote that epoch, remove it: {_PATCH_BUNDLE} \'{{{{"spec": {{{{"assignment": null}}}}}}}}\'',
        ),
    ),
    Reason.TIMED_OUT: Sentence(
        "the destination did not confirm it in time",
        (f"give it longer: {_set(limits={'moveTimeout': '120s'})}", "read the log of the broker"),
    ),
    Reason.ELSEWHERE: Sentence("its owner released it, and another broker than the destination took it"),
    Reason.SUPERSEDED: Sentence("a newer request replaced it"),
    Reason.DEADLINE: Sentence("the cycle ran out of time", (_LOG,)),
    Reason.UNKNOWN_BUNDLE: Sentence(
        "there is no bundle with this name", ("see the bundles: kubectl get bundles -n {namespace}",)
    ),
    Reason.INVALID_SPLIT: Sentence(
        "it can't be split as requested", ("see why: kubectl get bundlesplits -n {namespace} -o yaml",)
    ),
    Reason.OVERLAP: Sentence(
        "another bundle covers some of its hashes",
        ("delete one of the two: kubectl get tns -n {namespace} -o wide names them",),
    ),
    Reason.UNKNOWN_BROKER: Sentence(
        "a bundle's spec.owner, or the policy, names a broker that does not exist",
        (
            "see the names: kubectl get brokers -n {namespace}",
            "correct spec.brokers.names: kubectl edit bpol {policy} -n {namespace}",
        ),
    ),
    Reason.INVALID_POLICY: Sentence(
        "the policy is not valid", (_STATUS, "correct it: kubectl edit bpol {policy} -n {namespace}")
    ),
    Reason.EXCLUDED: Sentence("its namespace is excluded from balancing", (_SPACE, _MOVE)),
    Reason.UNKNOWN: Sentence("Pulsar gives no reason", (_LOG,)),
    Reason.TOO_SMALL: Sentence("the cluster is too small for its load", ("add brokers",)),
    Reason.TOO_LARGE: Sentence(
        "the cluster is larger than its load needs", ("remove a broker: trimtab drain {broker} -n {namespace}",)
    ),
    Reason.INTERNAL_ERROR: Sentence(
        "a request to the API server failed, or Trimtab has a defect; the operator's log says which", (_LOG,)
    ),
}
"""A row for every reason."""
