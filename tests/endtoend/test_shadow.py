"""A shadow beside a policy that balances, under a real operator: the audit log says what was written for which."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from manifests import policy
from small_cluster import API, NAMESPACE, POLICY, SmallCluster, until

pytestmark = [pytest.mark.apiserver, pytest.mark.prometheus]

SHADOW = "beside"

PATIENCE = 150.0
"""Seconds for each step; on a machine left alone it takes a few."""
OWN = {
    "patch balancingpolicies/status beside",
    "patch balancingpolicies beside",  # Kopf's finalizer, on the object itself
    "create configmaps trimtab-memory-beside",
    "patch configmaps trimtab-memory-beside",
    "create configmaps trimtab-shadow-beside",
    "patch configmaps trimtab-shadow-beside",
}
"""All that may be written because of the shadow, but Events about it."""


@pytest.fixture
def shadowed(stage: SmallCluster) -> Iterator[SmallCluster]:
    """A policy that is paused, and a shadow of the same spec beside it, which runs."""
    stage.apply_policy(mode="Auto", paused=True)
    spec = (stage.policy() or {})["spec"]
    shadow = policy(SHADOW, **{**spec, "mode": "Shadow", "paused": False})
    stage.rest.create(f"{API}/balancingpolicies", shadow)
    yield stage
    stage.rest.delete(f"{API}/balancingpolicies/{SHADOW}")
    until("the shadow is gone", lambda: SHADOW not in names(stage))


def names(stage: SmallCluster) -> set[str]:
    """The policies that exist."""
    return {item["metadata"]["name"] for item in stage.rest.get(f"{API}/balancingpolicies")["items"]}


def shadow_status(stage: SmallCluster) -> dict[str, Any]:
    """The status of the shadow."""
    found: dict[str, Any] = stage.rest.get(f"{API}/balancingpolicies/{SHADOW}").get("status") or {}
    return found


def comparison(stage: SmallCluster) -> dict[str, Any]:
    """`status.shadow`; figures of 0 before the first cycle."""
    return shadow_status(stage).get("shadow") or {"shadow": {"moves": 0}, "acting": {"moves": 0}, "displaced": 0}


def written(stage: SmallCluster, since: int) -> list[str]:
    """Writes of the operator, without Events and the Lease: verb, resource and name."""
    found = []
    for event in stage.control_plane.audit_events()[since:]:
        about = event.get("objectRef", {})
        operator = event["user"]["username"].startswith("system:serviceaccount:")
        if not operator or event["verb"] in {"get", "list", "watch"} or event["stage"] != "ResponseComplete":
            continue
        resource = "/".join(filter(None, (about.get("resource", ""), about.get("subresource", ""))))
        if resource not in {"events", "leases"}:
            name = about.get("name") or (event.get("responseObject") or {}).get("metadata", {}).get("name", "")
            found.append(f"{event['verb']} {resource} {name}".strip())
    return found


def test_it_moves_nothing_counts_what_moves_and_survives_a_restart(shadowed: SmallCluster) -> None:
    stage, since = shadowed, len(shadowed.control_plane.audit_events())
    first = stage.desired_owners()
    until("the shadow has moved virtual bundles", lambda: comparison(stage)["shadow"]["moves"] > 0, within=PATIENCE)
    until("it has seen them land", lambda: comparison(stage)["displaced"] > 0, within=PATIENCE)
    assert stage.desired_owners() == first, "the policy that acts is paused, and the shadow moves nothing"
    assert comparison(stage)["acting"]["moves"] == 0

    stage.edit_policy(paused=False)
    until("the acting policy has moved bundles", lambda: stage.desired_owners() != first, within=PATIENCE)
    until("the shadow has counted them", lambda: comparison(stage)["acting"]["moves"] > 0, within=PATIENCE)
    until("all have landed", stage.settled, within=PATIENCE)
    before = comparison(stage)
    assert before["begun"] == "the shadow is new", "neither a pause nor its end is an edit"
    moved = [bundle for name, bundle in stage.world.bundles().items() if bundle["spec"]["owner"] != first[name]]
    assert {bundle["spec"]["assignment"]["policy"] for bundle in moved} == {POLICY}
    table = stage.control_plane.kubectl("-n", NAMESPACE, "get", "bpol")
    assert "SHADOW : ACTING" in table
    assert f"{before['shadow']['moves']} : " in table

    stage.operator.kill()
    stage.operator.start()
    last = shadow_status(stage)["lastCycle"]["time"]
    until("cycles go on", lambda: shadow_status(stage)["lastCycle"]["time"] > last, within=60)

    after = comparison(stage)
    assert (after["since"], after["begun"]) == (before["since"], before["begun"])
    assert after["acting"]["moves"] >= 1
    log = written(stage, since)
    of_shadow = {line for line in log if SHADOW in line}
    assert of_shadow <= OWN
    assert "patch balancingpolicies/status beside" in of_shadow
    assert sum(line.startswith("patch bundles ") for line in log) >= len(moved)
    assert not [line for line in log if "bundlesplits" in line]
