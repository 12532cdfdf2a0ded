"""What every placement must keep to."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from trimtab_strategies.model import ClusterLoad
from trimtab_strategies.model.load import IntArray
from trimtab_strategies.protocols import Placement, RemembersChoices
from trimtab_strategies.testing.comparing import Unchanged, reordered, restored, upside_down


def chooses_among_the_candidates(placement: Placement, cluster: ClusterLoad) -> None:
    """At least one broker is chosen, each of them is a candidate, and none twice."""
    for candidates in _candidate_sets(cluster):
        chosen = placement.best(cluster, 0, candidates, {}).brokers.tolist()
        assert chosen, "no broker was chosen"
        assert len(chosen) == len(set(chosen)), "a broker is chosen twice"
        assert set(chosen) <= set(candidates.tolist()), "a broker that is no candidate is chosen"


def placing_leaves_its_input_alone(placement: Placement, cluster: ClusterLoad) -> None:
    """Neither the cluster nor the memory is changed by a call, and equal calls give equal answers."""
    for candidates in _candidate_sets(cluster):
        memory = restored(placement.best(cluster, 0, candidates, {}).memory)
        with Unchanged(cluster, memory):
            first, second = (placement.best(cluster, 0, candidates, memory) for _ in range(2))
        assert first.brokers.tolist() == second.brokers.tolist()
        assert first.memory == second.memory


def placement_memory_survives_a_restart(placement: Placement, cluster: ClusterLoad) -> None:
    """The memory is plain JSON, and a placement that reads it back goes on as if nothing had happened."""
    for candidates in _candidate_sets(cluster):
        memory = placement.best(cluster, 0, candidates, {}).memory
        ours, again = (placement.best(cluster, 0, candidates, kept) for kept in (memory, restored(memory)))
        assert ours.brokers.tolist() == again.brokers.tolist()
        assert restored(ours.memory) == restored(again.memory)


def remembering_a_choice_leaves_its_input_alone(placement: Placement, cluster: ClusterLoad) -> None:
    """A placement that is told which broker was taken changes nothing in place, and remembers plain JSON."""
    if not isinstance(placement, RemembersChoices):
        return
    for candidates in _candidate_sets(cluster):
        choice = placement.best(cluster, 0, candidates, {})
        memory = restored(choice.memory)
        with Unchanged(cluster, memory):
            after = placement.chosen(cluster, 0, int(choice.brokers[0]), memory)
        again = placement.best(cluster, 0, candidates, restored(after))
        assert set(again.brokers.tolist()) <= set(candidates.tolist())


def broker_order_does_not_matter_to_placing(placement: Placement, cluster: ClusterLoad) -> None:
    """The rows of the brokers may be in any order."""
    last = len(cluster.brokers) - 1
    other = reordered(cluster, brokers=upside_down(len(cluster.brokers)))
    for candidates in _candidate_sets(cluster):
        chosen = placement.best(cluster, 0, candidates, {})
        again = placement.best(other, 0, np.sort(last - candidates), {})
        assert _names(cluster, chosen.brokers) == _names(other, again.brokers)


def bundle_order_does_not_matter_to_placing(placement: Placement, cluster: ClusterLoad) -> None:
    """The rows of the bundles may be in any order."""
    last = len(cluster.bundles) - 1
    other = reordered(cluster, bundles=upside_down(len(cluster.bundles)))
    for candidates in _candidate_sets(cluster):
        chosen, again = placement.best(cluster, 0, candidates, {}), placement.best(other, last, candidates, {})
        assert _names(cluster, chosen.brokers) == _names(other, again.brokers)


def _names(cluster: ClusterLoad, rows: IntArray) -> set[str]:
    return {cluster.brokers.names[row] for row in rows.tolist()}


def _candidate_sets(cluster: ClusterLoad) -> list[IntArray]:
    """All brokers, and every second one; none on a cluster without brokers or without bundles."""
    everyone = np.arange(len(cluster.brokers))
    return [rows for rows in (everyone, everyone[::2]) if len(rows) and len(cluster.bundles)]


PLACEMENT_CHECKS: tuple[Callable[[Placement, ClusterLoad], None], ...] = (
    chooses_among_the_candidates,
    placing_leaves_its_input_alone,
    placement_memory_survives_a_restart,
    remembering_a_choice_leaves_its_input_alone,
    broker_order_does_not_matter_to_placing,
    bundle_order_does_not_matter_to_placing,
)
"""What every placement must keep to."""
