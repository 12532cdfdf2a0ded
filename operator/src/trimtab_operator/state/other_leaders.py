"""Leaders with another Lease that write in the same Kubernetes namespace: who leads, and who stands down. Pure.

Operators with the same Lease elect one leader. Operators with different Leases don't, but all their leaders write the
condition `Led` of each policy. So that condition says who else leads (`Term`). Two such leaders would overwrite each
other's decisions with ever higher epochs. So these rules hold:

| who | does |
|---|---|
| a leader that begins, while another one is active | stands down, and says so in `CompetingBalancer` |
| a leader that sees a `Term` of a higher rank, or a higher epoch in a Bundle | is deposed: its term ends |
| a leader that sees a `Term` of a lower rank | writes `Led` again |
| a leader that begins just after one was deposed | waits for `SETTLE`, in which an active leader writes `Led` again |

The rank is the epoch, and for equal epochs the Lease's name. Of any two leaders one is deposed, and it does not begin
again while the other one is active.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from trimtab_operator.kube.conditions import condition_of, epoch, timestamp
from trimtab_operator.kube.leader_election import LAST_EPOCH
from trimtab_operator.kube.records import BundleRecord
from trimtab_operator.resources.conditions import PolicyCondition
from trimtab_strategies.model import Reason
from trimtab_strategies.params import seconds

Policy = Mapping[str, Any]

CYCLES, AT_LEAST = 3, 90.0
"""A leader is active for this number of the policy's intervals after its last cycle, and for at least so many seconds.

An operator that starts needs time until its first cycle, and reports only once a minute that a policy can't run."""

SETTLE = 10.0
"""Seconds in which an active leader writes its `Term` again, after another one has written that it was deposed."""

CLAIM_EVERY = 60.0
"""Seconds between two reports by an operator that stands down."""

_TERM = re.compile(r"(?P<leader>.+?) leads, epoch (?P<epoch>\d{1,10}), with the Lease (?P<lease>[^\s;]+)(;.*)?")


@dataclass(frozen=True, slots=True)
class Term:
    """The term of a leader, as the condition `Led` tells it. lease: ``namespace/name``, empty without an election."""

    leader: str
    epoch: int
    lease: str = ""

    def __str__(self) -> str:
        return f"{self.leader} leads, epoch {self.epoch}" + (f", with the Lease {self.lease}" if self.lease else "")

    def outranks(self, other: Term) -> bool:
        """Whether this leader's decisions count, and not those of `other`."""
        return (self.epoch, self.lease) > (other.epoch, other.lease)


def term_of(policy: Policy, lease: str) -> Term | None:
    """Who leads with another Lease than `lease`, as the policy's status tells; None if it names no leader."""
    status, _, message, _ = condition_of(_conditions(policy), PolicyCondition.LED)
    found = _TERM.fullmatch(message) if status == "True" and lease else None
    if found is None or found["lease"] == lease:
        return None
    return Term(found["leader"], int(found["epoch"]), found["lease"])


def _conditions(policy: Policy) -> Iterable[Mapping[str, Any]]:
    found: Iterable[Mapping[str, Any]] = (policy.get("status") or {}).get("conditions") or ()
    return found


def last_cycle(policy: Policy) -> float:
    """When the last cycle of a policy began, in epoch seconds; NaN if it had none."""
    return epoch(((policy.get("status") or {}).get("lastCycle") or {}).get("time"))


def attended(policy: Policy, now: float) -> bool:
    """Whether an operator runs the policy's cycles. now: epoch seconds."""
    patience = max(AT_LEAST, CYCLES * seconds(policy["spec"].get("interval") or "60s"))
    return now - last_cycle(policy) < patience  # False for NaN


def active(policies: Iterable[Policy], lease: str, now: float) -> Term | None:
    """The highest leader with another Lease than `lease` that runs one of `policies`; None if there is none."""
    found = [term for policy in policies if attended(policy, now) and (term := term_of(policy, lease)) is not None]
    return max(found, key=lambda term: (term.epoch, term.lease), default=None)


def deposed_at(policy: Policy) -> float:
    """When a leader wrote that it was deposed, in epoch seconds; 0 if `Led` says something else."""
    led = (c for c in _conditions(policy) if c["type"] == PolicyCondition.LED and c["reason"] == Reason.DEPOSED)
    return next((epoch(condition["lastTransitionTime"]) for condition in led), 0.0)


def settling(policies: Iterable[Policy], now: float) -> bool:
    """Whether a leader was deposed so lately that an active one may not have written its `Term` again."""
    return any(0 <= now - deposed_at(policy) < SETTLE for policy in policies)


def former(policies: Iterable[Policy], lease: str, epoch_found: int = 0) -> str:
    """Who led with another Lease before, as far as it is known; empty if no other led.

    epoch_found: an epoch that was found here, and that the Lease had not counted; 0 for none.
    """
    found = [(last_cycle(policy), term) for policy in policies if (term := term_of(policy, lease)) is not None]
    if found:
        at, term = max(found, key=lambda item: (math.isfinite(item[0]), item[0]))
        when = f", most recently at {timestamp(at)}" if math.isfinite(at) else ""
        return f"{term.leader} led here before, with the Lease {term.lease}{when}"
    if not epoch_found:
        return ""
    found_here = f"epoch {epoch_found} was found here, and the Lease had counted less"
    return f"{found_here}: another leader wrote it, Bundles were restored, or the Lease was deleted"


def overtaken(bundles: Iterable[BundleRecord], told: Iterable[Term], ours: Term) -> str:
    """Why our term has ended: another leader counts, and not we. Empty while we do. told: the leaders of policies."""
    if not ours.lease:
        return ""
    if (higher := next((term for term in told if term.outranks(ours)), None)) is not None:
        return f"{higher}, and our epoch is {ours.epoch}"
    found = next((bundle for bundle in bundles if ours.epoch < bundle.assigned_epoch < LAST_EPOCH), None)
    if found is None:
        return ""
    carries = f"Bundle {found.name} carries epoch {found.assigned_epoch}, and ours is {ours.epoch}"
    return f"{carries}: another leader wrote it, or Bundles were restored"
