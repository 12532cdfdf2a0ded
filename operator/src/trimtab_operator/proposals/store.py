"""Keeps a policy's proposal, and how far an approved one has come, in the ConfigMap ``trimtab-proposal-<policy>``.

The API server holds it, so that a restarted operator, or another replica that takes over, goes on with exactly the
proposal that was shown. A ConfigMap holds a mebibyte: 10,000 moves are half of that once compressed.
"""

from __future__ import annotations

import asyncio
import base64
import gzip
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trimtab_operator.kube.client import CONFIG_MAPS, Api, NotFoundError
from trimtab_operator.kube.naming import proposal_name
from trimtab_operator.proposals.model import ForeignProposalError, Proposal
from trimtab_operator.proposals.progress import Execution
from trimtab_operator.resources.common import API_VERSION
from trimtab_operator.resources.policy_status import ProposalState

_PROPOSAL, _PROGRESS, _STATE = "proposal.json.gz", "progress.json.gz", "state.json"


@dataclass(frozen=True, slots=True)
class Standing:
    """Where a policy stands.

    message: for people. proposal: the one that waits, None in every other state. execution: of the proposal that was
    approved last, None before.
    """

    state: ProposalState = ProposalState.PENDING_PROPOSAL
    message: str = ""
    proposal: Proposal | None = None
    execution: Execution | None = None

    @property
    def kept(self) -> Proposal | None:
        """The proposal that waits, else the one that was approved last."""
        return self.proposal or (self.execution.proposal if self.execution else None)


@dataclass(slots=True)
class ProposalStore:
    """Keeps one policy's `Standing`; `uid` is the policy's, so that a new one of its name begins anew."""

    api: Api
    namespace: str
    policy: str
    uid: str
    _written: str = ""

    @property
    def name(self) -> str:
        """Name of the ConfigMap."""
        return proposal_name(self.policy)

    async def load(self) -> Standing:
        """What was stored last. Raises `ForeignProposalError`, `ApiError`."""
        try:
            found = await self.api.get(CONFIG_MAPS, self.namespace, self.name)
        except NotFoundError:
            return Standing()
        return await asyncio.to_thread(self._read, found.get("data") or {}, found.get("binaryData") or {})

    def _read(self, data: Mapping[str, str], binary: Mapping[str, str]) -> Standing:
        try:
            value = json.loads(data[_STATE])
            if value["uid"] != self.uid:
                return Standing()
            state, message = ProposalState(value["state"]), str(value["message"])
            text, progress = (_unpacked(binary.get(key, "")) for key in (_PROPOSAL, _PROGRESS))
        except (KeyError, TypeError, ValueError, OSError, EOFError) as error:
            raise ForeignProposalError(f"{self.name} is not what Trimtab writes ({error!r:.200})") from error
        proposal = Proposal.from_json(text) if text else None
        self._written = proposal.id if proposal else ""
        execution = Execution.from_json(progress, proposal) if proposal is not None and progress else None
        waiting = proposal if state is ProposalState.PROPOSAL_READY else None
        needed = {ProposalState.PROPOSAL_READY: waiting, ProposalState.REBALANCING: execution}
        if needed.get(state, state) is None:
            raise ForeignProposalError(f"{self.name} says {state}, and has nothing to go with it")
        return Standing(state, message, waiting, execution)

    async def save(self, standing: Standing) -> None:
        """Store it; the proposal's body only when it is another one. Raises `ApiError`."""
        try:
            await self.api.patch(CONFIG_MAPS, self.namespace, self.name, await self._body(standing))
        except NotFoundError:
            self._written = ""
            whole = {"apiVersion": "v1", "kind": "ConfigMap", **await self._body(standing)}
            await self.api.create(CONFIG_MAPS, self.namespace, whole)
        self._written = standing.kept.id if standing.kept else ""

    async def _body(self, standing: Standing) -> dict[str, Any]:
        kept, execution = standing.kept, standing.execution
        state = {
            "state": standing.state,
            "message": standing.message,
            "uid": self.uid,
        }
        under_way = execution is not None and execution.proposal is kept
        binary = {_PROGRESS: packed(execution) if execution is not None and under_way else ""}
        if kept is not None and kept.id != self._written:
            binary[_PROPOSAL] = await asyncio.to_thread(packed, kept)  # a tenth of a second for 10,000 moves
        return {
            "metadata": {"name": self.name, "ownerReferences": [self._owner()]},
            "data": {_STATE: json.dumps(state)},
            "binaryData": binary,
        }

    def _owner(self) -> dict[str, str]:
        return {"apiVersion": API_VERSION, "kind": "BalancingPolicy", "name": self.policy, "uid": self.uid}


def packed(value: Proposal | Execution) -> str:
    """As a ConfigMap holds it: compressed JSON in base64. The same value gives the same text."""
    return base64.b64encode(gzip.compress(value.to_json().encode(), compresslevel=6, mtime=0)).decode()


def _unpacked(text: str) -> str:
    return gzip.decompress(base64.b64decode(text)).decode() if text else ""
