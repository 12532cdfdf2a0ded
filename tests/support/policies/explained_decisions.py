"""Decisions on two clusters, and the data from which `trimtab explain` answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from strategy_testing.clusters import NOW, cluster
from trimtab_operator.cli.why.answers import Facts
from trimtab_operator.cli.why.broker import BrokerExplanation
from trimtab_operator.cli.why.bundle import BundleExplanation
from trimtab_operator.decision_log.record import DecisionRecord
from trimtab_operator.kube.conditions import timestamp
from trimtab_strategies.model import Reason

LEVEL_PAIR = cluster(bundles=2, a=0.52, b=0.5)
FACTS = Facts(NOW + 300, "messaging", "main", cool_down=1800, last=(NOW, "Overloaded"))
LATER = replace(FACTS, last=(NOW + 240, "Balanced"), usage={"a": 53.4, "b": 49.0})


def of_broker(record: DecisionRecord | Sequence[DecisionRecord], name: str, facts: Facts = FACTS) -> BrokerExplanation:
    return BrokerExplanation(name, facts, [record] if isinstance(record, DecisionRecord) else record)


def of_bundle(record: DecisionRecord, name: str, owner: str, facts: Facts = FACTS) -> BundleExplanation:
    return BundleExplanation(name, owner, facts, [record])


def written_by(manager: str, at: float, *, made: float = NOW - 9000) -> dict[str, Any]:
    """The metadata of a Bundle object, whose `managedFields` name who wrote its owner."""
    entry = {"manager": manager, "time": timestamp(at), "fieldsV1": {"f:spec": {"f:owner": {}}}}
    return {"metadata": {"creationTimestamp": timestamp(made), "managedFields": [entry]}}


def largest(record: DecisionRecord, broker: str, reason: Reason) -> str:
    return next(stay.name for stay in record.stays if stay.broker == broker and stay.reason is reason)
