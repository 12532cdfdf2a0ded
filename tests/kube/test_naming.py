"""Object names: readable, valid, and one to one."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, strategies as st

from trimtab_operator.kube.naming import (
    LONGEST,
    broker_name_of_address,
    bundle_name,
    parse_pulsar_bundle,
    pulsar_bundle,
    topic_namespace_name,
)

SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
pulsar_names = st.text("abzAZ019-=:._", min_size=1, max_size=120)


def test_a_plain_namespace_reads_as_it_is_spelled() -> None:
    assert topic_namespace_name("public", "default") == "public-default"
    assert bundle_name("public", "default", "0x00000000", "0x40000000") == "public-default-0x00000000-0x40000000"


def test_a_dash_in_the_namespace_needs_no_hash() -> None:
    assert topic_namespace_name("shop", "orders-eu") == "shop-orders-eu"


def test_a_dash_in_the_tenant_is_distinguished_by_a_hash() -> None:
    assert re.fullmatch(r"shop-orders-eu-[0-9a-f]{8}", topic_namespace_name("shop-orders", "eu"))


def test_capitals_and_foreign_characters_are_distinguished_by_a_hash() -> None:
    names = {topic_namespace_name("t", name) for name in ("a_b", "A_b", "a=b", "a:b", "a-b")}
    assert len(names) == 5
    assert all(name.startswith("t-a-b") for name in names)


@given(pulsar_names, pulsar_names)
def test_every_name_is_valid_and_fits(tenant: str, name: str) -> None:
    made = bundle_name(tenant, name, "0x00000000", "0xffffffff")
    assert SUBDOMAIN.fullmatch(made)
    assert len(made) <= LONGEST


@given(st.tuples(pulsar_names, pulsar_names), st.tuples(pulsar_names, pulsar_names))
def test_different_namespaces_have_different_names(one: tuple[str, str], other: tuple[str, str]) -> None:
    assert (topic_namespace_name(*one) == topic_namespace_name(*other)) == (one == other)


@pytest.mark.parametrize(
    ("address", "name"),
    [("10.0.0.7:8080", "10.0.0.7-8080"), ("broker-1.example.com:80", "broker-1.example.com-80")],
)
def test_a_broker_without_a_pod_is_named_after_its_address(address: str, name: str) -> None:
    assert broker_name_of_address(address) == name


def test_an_address_that_dns_cannot_spell_gets_a_hash() -> None:
    assert SUBDOMAIN.fullmatch(broker_name_of_address("[::1]:8080"))
    assert broker_name_of_address("Broker:80") != broker_name_of_address("broker:80")


def test_pulsars_spelling_goes_there_and_back() -> None:
    text = "public/default/0x00000000_0x40000000"
    assert pulsar_bundle(*parse_pulsar_bundle(text)) == text


@pytest.mark.parametrize("text", ["public/default", "public/default/0x0_0x4", "a/b/0x00000000_0x40000000/c", ""])
def test_what_is_no_bundle_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not a bundle: write tenant/namespace/0x00000000_0x40000000"):
        parse_pulsar_bundle(text)
