"""Where a plan may move the bundles of a namespace: isolation, a selection, and namespaces left out."""

from __future__ import annotations

from dataclasses import replace

from planned_moves import FOUR_BROKERS, PAIR, held, moves, pair_asking_for, plan
from strategy_testing.clusters import cluster, with_bundles
from trimtab_strategies import registry
from trimtab_strategies.model import ClusterLoad, Isolation, NamespacePolicy, Reason


def with_policy(drawn: ClusterLoad, space: str, policy: NamespacePolicy) -> ClusterLoad:
    return replace(drawn, policies={space: policy})


def test_bundle_of_an_isolated_namespace_leaves_only_for_its_own_brokers() -> None:
    drawn = cluster(a=0.9, b=0.1, c=0.2, bundles=10)

    made = plan(with_policy(drawn, "public/a", NamespacePolicy(isolation=Isolation(("a", "c")))))

    assert {move.destination for move in made.moves} == {"c"}


def test_bundle_that_only_its_owner_may_have_stays_and_says_why() -> None:
    drawn = cluster(a=0.9, b=0.1, c=0.2, bundles=10)

    made = plan(with_policy(drawn, "public/a", NamespacePolicy(isolation=Isolation(("a",)))))

    assert made.empty
    assert held(made) == {Reason.ISOLATION: "a"}


def test_destination_that_isolation_forbids_is_not_taken_even_if_the_shedder_names_it() -> None:
    isolated = with_policy(FOUR_BROKERS, "public/a", NamespacePolicy(isolation=Isolation(("a", "d"))))

    assert moves(plan(isolated, pair_asking_for(0, [0], 1))) == [("a/0x00000000_0x80000000", "a", "d")]
    assert held(plan(isolated, pair_asking_for(0, [1], 1, returned=[2]))) == {Reason.ISOLATION: "a"}


def test_bundle_that_a_selection_leaves_only_its_owner_says_why_and_others_are_offered_instead() -> None:
    #      public/a on a b b c c b: a has the fewest; public/b on a a: the others have none
    drawn = cluster(bundles={"a": [1] * 6, "b": [1] * 2}, a=0.8, b=0.1, c=0.1)
    spread = with_bundles(drawn, owner={1: 1, 2: 1, 3: 2, 4: 2, 5: 1, 6: 0, 7: 0})

    made = plan(spread, replace(PAIR, selection=registry.selection("Modular", {})))

    assert {move.bundle.rpartition("/")[0] for move in made.moves} == {"public/b"}
    assert held(made)[Reason.UNEVEN] == "a"


def test_namespace_that_is_left_out_of_balancing_stays() -> None:
    drawn = cluster(a=0.9, b=0.1, c=0.2, bundles=10)

    made = plan(with_policy(drawn, "public/a", NamespacePolicy(unload=False)))

    assert made.empty
    assert held(made)[Reason.EXCLUDED] == ""
