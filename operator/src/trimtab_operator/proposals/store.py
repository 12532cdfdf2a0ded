"""Stores a policy's proposal, and the progress of an approved one, in the ConfigMap ``trimtab-proposal-<policy>``.

So a restarted operator, or a new leader, continues with exactly the proposal that was shown. A ConfigMap holds a
mebibyte. 10,000 moves, compressed, take half of that.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from trimtab_operator.kube.client import Api
from trimtab_operator.kube.config_map_store import (
    ConfigMapStore,
    PolicyOwner,
    StoredFormat,
    Text,
    UnreadableContentError,
)
from trimtab_operator.kube.naming import policy_part
from trimtab_operator.proposals.model import Proposal
from trimtab_operator.proposals.progress import Execution
from trimtab_operator.resources.policy_status import ProposalState
from trimtab_pipeline.prometheus.response_limits import json_of

_PROPOSAL, _PROGRESS, _STATE = "proposal.json.gz", "progress.json.gz", "state.json"


@dataclass(frozen=True, slots=True)
class Standing:
    """State of a policy's proposals.

    message: a text for people. proposal: the waiting one, None in every other state. execution: how the proposal that
    was approved last is carried out; None if none has been approved yet.
    """

    state: ProposalState = ProposalState.PENDING_PROPOSAL
    message: str = ""
    proposal: Proposal | None = None
    execution: Execution | None = None

    @property
    def kept(self) -> Proposal | None:
        """The waiting proposal, else the one that was approved last."""
        return self.proposal or (self.execution.proposal if self.execution else None)


def proposal_store(api: Api, namespace: str, policy: str, uid: str) -> ConfigMapStore[Standing]:
    """The store of one policy's `Standing`. uid: the policy's; a new policy of the same name starts empty."""
    stored_format = StoredFormat(
        encode=lambda standing, stored: _encoded(standing, stored, uid),
        decode=lambda texts: _decoded(texts, uid),
        remedy="the next proposal replaces it",
        guarded=True,
    )
    return ConfigMapStore(api, namespace, policy_part("proposal", policy), stored_format, PolicyOwner(policy, uid))


def _encoded(standing: Standing, stored: Standing | None, uid: str) -> dict[str, Text]:
    """The texts by key. The proposal is encoded only if it is new, because that takes 0.1 s for 10,000 moves."""
    kept, execution = standing.kept, standing.execution
    state = {"state": standing.state, "message": standing.message, "uid": uid}
    under_way = execution is not None and execution.proposal is kept
    texts: dict[str, Text] = {
        _STATE: json.dumps(state),
        _PROGRESS: execution.to_json() if execution is not None and under_way else "",
    }
    known = stored.kept if stored is not None else None
    if kept is not None and (known is None or known.id != kept.id):
        texts[_PROPOSAL] = kept.to_json
    return texts


def _decoded(texts: Mapping[str, str], uid: str) -> Standing:
    value = json_of(texts[_STATE])
    if value["uid"] != uid:
        return Standing()
    state, message = ProposalState(value["state"]), str(value["message"])
    text, progress = texts.get(_PROPOSAL, ""), texts.get(_PROGRESS, "")
    proposal = Proposal.from_json(text) if text else None
    execution = Execution.from_json(progress, proposal) if proposal is not None and progress else None
    waiting = proposal if state is ProposalState.PROPOSAL_READY else None
    needed = {ProposalState.PROPOSAL_READY: waiting, ProposalState.REBALANCING: execution}
    if needed.get(state, state) is None:
        raise UnreadableContentError(f"its state is {state}, and the proposal or progress of that state is missing")
    return Standing(state, message, waiting, execution)
