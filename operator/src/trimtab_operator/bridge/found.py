"""Keeps what was found of Pulsar's own balancing where it outlives the policy and the operator: in one ConfigMap.

No policy owns it, so it is there for as long as something is to be put back, whatever is deleted first; `trimtab
restore` reads it, too.
"""

from __future__ import annotations

from dataclasses import dataclass

from trimtab_operator.cluster.api import CONFIG_MAPS, Api, NotFoundError
from trimtab_operator.cluster.naming import PULSAR_FOUND
from trimtab_operator.pulsar.balancing import Found

_KEY = "found.json"


@dataclass(frozen=True, slots=True)
class FoundStore:
    """The ConfigMap of one Kubernetes namespace, which holds one Pulsar cluster. All methods raise `ApiError`."""

    api: Api
    namespace: str

    async def load(self) -> Found | None:
        """What is kept; None: nothing is to be put back. Raises `ForeignFindingsError`."""
        try:
            config_map = await self.api.get(CONFIG_MAPS, self.namespace, PULSAR_FOUND)
        except NotFoundError:
            return None
        return Found.from_json((config_map.get("data") or {}).get(_KEY, ""))

    async def save(self, found: Found) -> None:
        """Keep it in the place of what was kept."""
        body = {"data": {_KEY: found.to_json()}}
        try:
            await self.api.patch(CONFIG_MAPS, self.namespace, PULSAR_FOUND, body)
        except NotFoundError:
            meta = {"name": PULSAR_FOUND, "labels": {"app.kubernetes.io/managed-by": "trimtab"}}
            manifest = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, **body}
            await self.api.create(CONFIG_MAPS, self.namespace, manifest)

    async def forget(self) -> None:
        """Everything is as it was found."""
        try:
            await self.api.delete(CONFIG_MAPS, self.namespace, PULSAR_FOUND)
        except NotFoundError:
            return
