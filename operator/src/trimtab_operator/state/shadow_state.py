"""The state of a policy in mode Shadow between cycles and restarts, in a ConfigMap of its own.

Virtual owners are those that the policy's moves would have set. Only those that differ from the real owners are stored.
The ConfigMap has room for 20,000 of them. If even more differ, none are stored, and the comparison begins anew after a
restart.

The state is stored when a comparison begins, in each cycle that moves something, virtually or really, and every
`STORE_EVERY`. A restart loses the real and the virtual usage since the state was last stored, but no move.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self

from trimtab_operator.kube.client import Api
from trimtab_operator.kube.config_map_store import ConfigMapStore, PolicyOwner, StoredFormat, check_version, reading
from trimtab_operator.kube.naming import policy_part
from trimtab_pipeline.prometheus.response_limits import json_of
from trimtab_strategies.counterfactual.comparison import Comparison, as_data, from_data
from trimtab_strategies.counterfactual.ownership import VirtualOwner

_KEY = "shadow.json.gz"

STORE_EVERY = 600.0
"""Seconds after which the state is stored even if nothing moved."""

Displaced = Mapping[str, VirtualOwner]
"""The virtual owners that are not the real ones, by bundle (Pulsar's spelling)."""


@dataclass(frozen=True, slots=True)
class ShadowState:
    """The state of a shadow.

    of: `fingerprint` of the two policies. acting: name of the acting policy. begun: why the comparison began when it
    did. displaced: None if there were too many to be stored. epoch: that of the leader that stored the state.
    """

    of: str
    acting: str
    begun: str
    comparison: Comparison
    displaced: Displaced | None = field(default_factory=dict)
    epoch: int = 0

    def to_json(self) -> str:
        """The state as JSON, to be stored. Equal states give equal texts."""
        compared = self.comparison
        value = {
            "version": 1,
            "of": self.of,
            "acting": self.acting,
            "begun": self.begun,
            "epoch": self.epoch,
            "since": compared.since,
            "last": compared.last,
            "before": as_data(compared.before),
            "days": [[day, as_data(sums)] for day, sums in compared.days],
            "displaced": None if self.displaced is None else _by_broker(self.displaced),
        }
        return json.dumps(value, sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Read back; raises `UnreadableContentError` when it is not what `to_json` wrote."""
        with reading("shadow"):
            value = json_of(text)
            check_version("shadow", value["version"])
            days = tuple((int(day), from_data(sums)) for day, sums in value["days"])
            compared = Comparison(float(value["since"]), float(value["last"]), days, from_data(value["before"]))
            displaced = None if value["displaced"] is None else _by_bundle(value["displaced"])
            return cls(
                str(value["of"]), str(value["acting"]), str(value["begun"]), compared, displaced, int(value["epoch"])
            )


def _by_broker(displaced: Displaced) -> dict[str, dict[str, float | None]]:
    """By broker, when each of its bundles moved last; None: never."""
    found: dict[str, dict[str, float | None]] = {}
    for bundle, owner in displaced.items():
        found.setdefault(owner.broker, {})[bundle] = round(owner.moved, 3) if math.isfinite(owner.moved) else None
    return found


def _by_bundle(stored: Mapping[str, Mapping[str, float | None]]) -> dict[str, VirtualOwner]:
    return {
        str(bundle): VirtualOwner(str(broker), math.nan if moved is None else float(moved))
        for broker, bundles in stored.items()
        for bundle, moved in bundles.items()
    }


def fingerprint(*specs: Mapping[str, Any]) -> str:
    """A short hash of the specs of policies. A pause does not change it."""
    plain = [{key: value for key, value in spec.items() if key != "paused"} for spec in specs]
    return hashlib.blake2s(json.dumps(plain, sort_keys=True, default=dict).encode(), digest_size=8).hexdigest()


def _events(state: ShadowState) -> tuple[object, ...]:
    """What is stored immediately when it changes: virtual owners, moves of either policy, the comparison's begin."""
    total = state.comparison.total
    return state.of, state.comparison.since, state.displaced, total.acting.moves, total.shadow.moves


def _without_owners(state: ShadowState) -> ShadowState | None:
    return None if state.displaced is None else replace(state, displaced=None)


SHADOW_FORMAT: StoredFormat[ShadowState] = StoredFormat(
    encode=lambda state, _: {_KEY: state.to_json},
    decode=lambda texts: ShadowState.from_json(texts.get(_KEY, "")),
    epoch=lambda state: state.epoch,
    shorten=_without_owners,
)


def shadow_store(api: Api, namespace: str, policy: str, uid: str) -> ConfigMapStore[ShadowState]:
    """The store of one policy's `ShadowState`. uid: the policy's; a new policy of the same name starts empty."""
    return ConfigMapStore(api, namespace, policy_part("shadow", policy), SHADOW_FORMAT, PolicyOwner(policy, uid))


def recently_stored(state: ShadowState, kept: ShadowState | None) -> bool:
    """Whether nothing moved since a recent write. kept: what this process stored last; None: nothing."""
    if kept is None or _events(kept) != _events(state):
        return False
    return state.comparison.last - kept.comparison.last < STORE_EVERY


@dataclass(frozen=True, slots=True)
class ShadowReport:
    """What a cycle of a shadow reports. displaced: number of bundles whose virtual owner is not their real one."""

    acting: str
    begun: str
    comparison: Comparison
    displaced: int
