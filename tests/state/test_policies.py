"""Which policy looks after which brokers and bundles."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from records import broker, bundle, by_name
from trimtab_operator.kube.broker_records import BrokerRecord, PodRecord
from trimtab_operator.state.policies import Claim, Shares, share_out
from trimtab_strategies.model import Isolation, NamespacePolicy


def a_broker(name: str, *, pod: str = "", policy: str = "") -> BrokerRecord:
    return broker(name, pod=pod, policy=policy)


def pods(**pool: str) -> dict[str, PodRecord]:
    return {name: PodRecord(name, {"pool": of}, ready=True, deleted=False, uid=name) for name, of in pool.items()}


FOUR = by_name(*map(a_broker, "abcd"))


def test_the_brokers_that_an_isolation_allows_are_found_once_for_all_its_bundles(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked, matched = NamespacePolicy(Isolation(("c",))), list[str]()
    monkeypatch.setattr("trimtab_operator.state.policies.matches", lambda _, name: matched.append(name) or name == "c")
    shares = share_out([Claim("one", "1", names=["a", "b"]), Claim("two", "2", names=["c", "d"])], FOUR, {})

    assert {shares.caretaker(bundle(owner="", serving=""), asked) for _ in range(100)} == {"two"}
    assert sorted(matched) == ["a", "b", "c", "d"]


def test_policies_over_disjoint_names_both_stand() -> None:
    shares = share_out([Claim("one", "1", names=["a", "b"]), Claim("two", "2", names=["c", "d"])], FOUR, {})

    assert shares.standing == ("one", "two")
    assert shares.policy_of == {"a": "one", "b": "one", "c": "two", "d": "two"}


def test_the_younger_of_two_that_share_a_broker_is_refused_and_both_and_the_broker_are_named() -> None:
    shares = share_out([Claim("new", "2", names=["b", "c"]), Claim("old", "1", names=["a", "b"])], FOUR, {})

    assert shares.standing == ("old",)
    assert shares.refused["new"].older == "old"
    assert shares.refused["new"].brokers == ("b",)
    assert "c" not in shares.policy_of


def test_a_policy_without_selector_overlaps_with_every_other_even_before_there_are_brokers() -> None:
    for first, second in [
        (Claim("one", "1"), Claim("two", "2", names=["x"])),
        (Claim("one", "1", names=["x"]), Claim("two", "2")),
    ]:
        assert share_out([first, second], {}, {}).refused.keys() == {"two"}


def test_a_refused_policy_keeps_no_one_else_from_running() -> None:
    claims = [Claim("one", "1", names=["a"]), Claim("two", "2", names=["a", "b"]), Claim("three", "3", names=["b"])]

    assert share_out(claims, FOUR, {}).standing == ("one", "three")


def test_a_pod_that_gets_another_label_takes_its_broker_to_the_other_policy() -> None:
    found = by_name(a_broker("p-0", pod="p-0"), a_broker("p-1", pod="p-1"))
    claims = [Claim("red", "1", labels={"pool": "red"}), Claim("blue", "2", labels={"pool": "blue"})]

    before = share_out(claims, found, pods(**{"p-0": "red", "p-1": "red"}))
    after = share_out(claims, found, pods(**{"p-0": "red", "p-1": "blue"}))

    assert before.policy_of == {"p-0": "red", "p-1": "red"}
    assert after.policy_of == {"p-0": "red", "p-1": "blue"}


def test_a_broker_whose_pod_is_gone_stays_with_the_policy_that_had_it() -> None:
    found = by_name(a_broker("p-0", pod="p-0"), a_broker("p-1", pod="p-1", policy="blue"))
    claims = [Claim("red", "1", labels={"pool": "red"}), Claim("blue", "2", labels={"pool": "blue"})]

    assert share_out(claims, found, pods(**{"p-0": "red"})).policy_of == {"p-0": "red", "p-1": "blue"}


def test_a_pod_that_no_policy_selects_belongs_to_none() -> None:
    found = by_name(a_broker("p-0", pod="p-0", policy="red"))

    assert share_out([Claim("red", "1", labels={"pool": "red"})], found, pods(**{"p-0": "green"})).policy_of == {}


SHARES = Shares(("one", "two"), {}, {"a": "one", "b": "two"})


def test_a_bundle_is_handled_where_it_is_served() -> None:
    assert SHARES.caretaker(bundle(owner="b")) == "two"
    assert SHARES.caretaker(bundle(owner="b", serving="a", generation=9)) == "one"


def test_a_bundle_without_owner_goes_back_to_the_policy_that_placed_it_last() -> None:
    assert SHARES.caretaker(bundle(owner="gone", policy="two")) == "two"
    assert SHARES.caretaker(bundle(owner="gone", policy="deleted")) == "one"


def test_a_new_bundle_goes_to_the_oldest_policy_that_its_isolation_allows() -> None:
    new = bundle(owner="")

    assert SHARES.caretaker(new) == "one"
    assert SHARES.caretaker(new, NamespacePolicy(isolation=Isolation(("b.*",), (), 1))) == "two"
    assert SHARES.caretaker(new, NamespacePolicy(isolation=Isolation(("(",), ("nobody",), 1))) == "one"


NAMES = st.sets(st.sampled_from("abcdef"), min_size=1) | st.none()


@given(st.lists(NAMES, max_size=5))
def test_no_broker_is_two_policies_and_every_policy_stands_or_is_refused(selections: list[set[str] | None]) -> None:
    claims = [Claim(f"p{i}", str(i), names=names) for i, names in enumerate(selections)]

    shares = share_out(claims, by_name(*map(a_broker, "abcdef")), {})

    assert {*shares.standing, *shares.refused} == {claim.policy for claim in claims}
    for claim in claims:
        mine = {broker for broker, policy in shares.policy_of.items() if policy == claim.policy}
        assert mine == (set(claim.names or "abcdef") if claim.policy in shares.standing else set())
