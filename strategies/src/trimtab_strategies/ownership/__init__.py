"""Ownership: the states of a bundle, which record wins, who has to act, and the steps that lead from owner to owner.

Belongs here: rules on values. May not be here: reading or writing records, clocks, retries; who carries a step out
does that. The states, both transition tables and the conflict rule are those of Pulsar 4.2.4's extensible manager
(`org.apache.pulsar.broker.loadbalance.extensions.channel`), so our records and a broker's mean the same.
"""

from trimtab_strategies.ownership.conflicts import refusal
from trimtab_strategies.ownership.duties import Duty, Lookup, Work, duty, lookup
from trimtab_strategies.ownership.flows import OvertakenError, Step, Table, assign, override, split, transfer, unload
from trimtab_strategies.ownership.records import InvalidRecordError, Record, state_of
from trimtab_strategies.ownership.states import ACTIVE, ALLOWED, IN_FLIGHT, State, Storage

__all__ = [
    "ACTIVE",
    "ALLOWED",
    "IN_FLIGHT",
    "Duty",
    "InvalidRecordError",
    "Lookup",
    "OvertakenError",
    "Record",
    "State",
    "Step",
    "Storage",
    "Table",
    "Work",
    "assign",
    "duty",
    "lookup",
    "override",
    "refusal",
    "split",
    "state_of",
    "transfer",
    "unload",
]
