"""A desired owner is carried out in every mode, whichever client wrote it. Owners that change otherwise are kept."""

from __future__ import annotations

import json

import pytest

from small_cluster import API, SmallCluster, until

pytestmark = [pytest.mark.apiserver, pytest.mark.prometheus, pytest.mark.spark]


def shown(stage: SmallCluster, name: str) -> tuple[str, str]:
    """The columns DESIRED and REASON of `kubectl get bundles`."""
    table = stage.control_plane.kubectl("-n", "messaging", "get", "bundle", name)
    row = dict(zip(*(line.split() for line in table.splitlines()), strict=False))
    return row["DESIRED"], row["REASON"]


def test_a_person_moves_a_bundle_with_kubectl_while_the_policy_is_in_dry_run(stage: SmallCluster) -> None:
    name = stage.bundles_of("pulsar-broker-0")[0]
    stage.apply_policy(mode="DryRun")
    stage.wait_condition("Ready", "True")

    stage.patch_bundle(name, status=True, owner="pulsar-broker-1")
    # its former broker started within the last ten minutes, so it may have been away
    until("the owner is adopted", lambda: shown(stage, name) == ("pulsar-broker-1", "FailedOver") and stage.settled())

    stage.world.deafen("pulsar-broker-1")
    try:
        patch = '{"spec": {"owner": "pulsar-broker-2"}}'
        stage.control_plane.kubectl("-n", "messaging", "patch", "bundle", name, "--type=merge", "-p", patch)
        until("it counts as a person's", lambda: shown(stage, name) == ("pulsar-broker-2", "Admin"), within=5)
        assert stage.owners()[name] == "pulsar-broker-1", "its broker has not released it yet"
    finally:
        stage.world.undeafen("pulsar-broker-1")

    until(
        "the move is carried out and confirmed", lambda: stage.owners()[name] == "pulsar-broker-2" and stage.settled()
    )
    assert shown(stage, name) == ("pulsar-broker-2", "Admin")
    until("the move is counted", lambda: 'result="Landed"' in stage.operator.page("metrics")[1])


def test_dry_run_proposes_and_moves_nothing(stage: SmallCluster) -> None:
    before = stage.owners()
    stage.apply_policy(mode="DryRun")

    proposal = until("a proposal", lambda: stage.status().get("proposal", {}).get("moves"))
    stage.wait_cycles(1)

    assert all(move["source"] == "pulsar-broker-0" for move in proposal)
    assert stage.owners() == stage.desired_owners() == before
    assert stage.status()["lastCycle"]["heldBack"]["DryRun"] == stage.status()["proposal"]["total"]


@pytest.mark.smoke
def test_auto_moves_what_dry_run_proposed_and_ends_balanced(stage: SmallCluster) -> None:
    stage.apply_policy(mode="Auto")

    stage.wait_condition("Balanced", "False", "Overloaded", within=150)
    until("nothing is left to move", lambda: stage.condition("Balanced")[0] == "True", within=150)

    assert stage.settled()
    moved = [b for name, b in stage.world.bundles().items() if b["spec"]["owner"] != stage.first_owners[name]]
    assert moved
    assert {b["spec"]["assignment"]["reason"] for b in moved} <= {"Overloaded", "Underloaded"}
    assert {b["spec"]["assignment"]["policy"] for b in moved} == {"policy"}
    assert any("moves" in note for note in stage.events("Overloaded"))


def test_an_owner_that_changed_without_a_desired_owner_is_adopted(stage: SmallCluster) -> None:
    name = stage.bundles_of("pulsar-broker-0")[0]
    stage.apply_policy()
    stage.wait_condition("Ready", "True")

    stage.patch_bundle(name, status=True, owner="pulsar-broker-1")

    until("the desired owner follows", lambda: stage.desired_owners()[name] == "pulsar-broker-1")
    until("nothing is left open", stage.settled)
    assert stage.owners()[name] == "pulsar-broker-1"


def test_a_pinned_bundle_is_driven_back(stage: SmallCluster) -> None:
    name = stage.bundles_of("pulsar-broker-0")[0]
    stage.patch_bundle(name, pinned=True)
    until("the pin is confirmed", stage.settled)
    stage.apply_policy()
    stage.wait_condition("Ready", "True")

    stage.patch_bundle(name, status=True, owner="pulsar-broker-1")

    until("it is back where it was pinned", lambda: stage.owners()[name] == "pulsar-broker-0" and stage.settled())


def test_a_new_namespace_is_cut_and_every_bundle_gets_an_owner(stage: SmallCluster) -> None:
    stage.apply_policy(mode="DryRun")
    stage.wait_condition("Ready", "True")
    body = {
        "apiVersion": "trimtab.dev/v1alpha1",
        "kind": "TopicNamespace",
        "metadata": {"name": "fresh"},
        "spec": {"tenant": "t", "name": "fresh", "bundles": 6},
    }
    stage.rest.create(f"{API}/topicnamespaces", body)
    fresh: dict[str, str] = {}

    def owned() -> bool:
        fresh.update({name: owner for name, owner in stage.owners().items() if name.startswith("t-fresh-")})
        return len(fresh) == 6 and all(fresh.values())

    try:
        until("six bundles with an owner each", owned)
        assert len(set(fresh.values())) >= 2, "they are spread"
        namespace = stage.rest.get(f"{API}/topicnamespaces/fresh")
        assert namespace["status"]["bundles"] == 6
    finally:
        stage.rest.delete(f"{API}/topicnamespaces/fresh")
        for name in fresh:
            stage.rest.delete(f"{API}/bundles/{name}")


def test_the_least_a_policy_changes_counts_at_the_next_cycle(stage: SmallCluster) -> None:
    stage.apply_policy(interval="10m")
    stage.wait_condition("Ready", "True")
    assert stage.status()["observedGeneration"] == 1

    stage.edit_policy(paused=True)

    stage.wait_condition("Ready", "False", "Paused", within=8)
    assert stage.status()["observedGeneration"] == 2


def test_memory_and_epoch_survive_a_restart_of_the_operator(stage: SmallCluster) -> None:
    stage.apply_policy()
    stage.wait_condition("Ready", "True")
    path = "/api/v1/namespaces/messaging/configmaps/trimtab-memory-policy"

    def epoch() -> int:
        return int(json.loads(stage.rest.get(path)["data"]["memory.json"])["epoch"])

    before = epoch()

    assert stage.operator.stop() == 0
    stage.operator.start()

    until("the next epoch", lambda: epoch() == before + 1)
    stage.wait_cycles(1)
