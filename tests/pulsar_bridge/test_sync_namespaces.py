"""Who is which broker, and what Pulsar's isolation policies mean for names of Broker objects."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import records
from trimtab_operator.kube.broker_records import BrokerRecord, broker_record
from trimtab_operator.kube.naming import topic_namespace_name
from trimtab_operator.pulsar.bridge.sync.diff import primary_record
from trimtab_operator.pulsar.bridge.sync.loop import identify
from trimtab_operator.pulsar.bridge.sync.namespaces import isolation_of
from trimtab_operator.pulsar.client.api import is_system
from trimtab_strategies.filters.isolation import IsolationRules
from trimtab_strategies.model import Isolation, NamespacePolicy

ID = "pulsar-broker-0.pulsar-broker.messaging.svc.cluster.local:8080"
SLUG = "pulsar-broker-0.pulsar-broker.messaging.svc.cluster.local-8080"


def addressed(name: str, address: str = ID, **changes: Any) -> BrokerRecord:
    return records.broker(name, pod="", address=address, **changes)


def test_a_broker_that_pulsar_knows_by_its_ip_is_the_broker_of_the_pod_with_that_ip() -> None:
    pods = {"pulsar-broker-0": records.pod("pulsar-broker-0", addresses=("10.0.0.7", "fd00::7"))}
    known = records.by_name(records.broker("pulsar-broker-0"))
    for address in ("10.0.0.7:8080", "[fd00::7]:8080"):
        assert identify([address], known, pods).ids == {"pulsar-broker-0": address}
        [made] = identify([address], {}, pods).create
        assert made["spec"] == {"pod": "pulsar-broker-0"}


def test_the_address_that_a_person_declared_comes_before_the_pods_name() -> None:
    known = records.by_name(addressed("mine"), records.broker("pulsar-broker-0"))

    assert identify([ID], known, {}).ids == {"mine": ID}


def test_a_statefulsets_pod_is_reported_by_the_first_label_of_the_host() -> None:
    known = records.by_name(records.broker("pulsar-broker-0"), addressed(SLUG, discovered=True))

    found = identify([ID], known, {"pulsar-broker-0": records.pod("pulsar-broker-0")})

    assert (found.ids, found.create) == ({"pulsar-broker-0": ID}, []), "what was made for the address is forgotten"


def test_a_pod_without_an_object_gets_the_one_that_discovery_would_make() -> None:
    [made] = identify([ID], {}, {"pulsar-broker-0": records.pod("pulsar-broker-0")}).create

    assert (made["metadata"]["name"], made["spec"]) == ("pulsar-broker-0", {"pod": "pulsar-broker-0"})


def test_a_broker_without_a_pod_gets_an_object_for_its_address() -> None:
    found = identify([ID, "10.0.0.7:8080"], {}, {})

    assert found.ids == {"10.0.0.7-8080": "10.0.0.7:8080", SLUG: ID}
    assert [made["spec"] for made in found.create] == [{"address": "10.0.0.7:8080"}, {"address": ID}]


def test_two_brokers_on_one_host_are_two() -> None:
    other = ID.replace("8080", "8081")
    known = records.by_name(records.broker("pulsar-broker-0"))

    found = identify([ID, other], known, {"pulsar-broker-0": records.pod("pulsar-broker-0")})

    assert found.ids == {"pulsar-broker-0": ID, SLUG.replace("8080", "8081"): other}


def test_a_pods_object_with_another_address_is_not_taken() -> None:
    known = records.by_name(records.broker("pulsar-broker-0", address="elsewhere:8080"))

    assert identify([ID], known, {}).ids == {SLUG: ID}


def test_an_object_that_was_made_for_an_address_counts_as_discovered_until_another_client_edits_it() -> None:
    meta = {"name": "x", "generation": 1, "resourceVersion": "1", "labels": {"trimtab.dev/discovered": "true"}}
    spec = {"address": ID, "schedulable": True, "failureDomain": "", "version": "", "loadManager": ""}

    assert broker_record({"metadata": meta, "spec": spec}).discovered
    assert not broker_record({"metadata": meta, "spec": {**spec, "schedulable": False}}).discovered
    assert not broker_record({"metadata": meta, "spec": {**spec, "pod": "x"}}).discovered


HOSTS = {"pulsar-broker-0": "pulsar-broker-0.pulsar", "pulsar-broker-1": "pulsar-broker-1.pulsar", "a.b": "10.0.0.7"}


def policy(**changes: Any) -> dict[str, Any]:
    return {"namespaces": ["t/.*"], "primary": [], "secondary": [], **changes}


def test_hosts_that_match_become_the_names_of_their_objects() -> None:
    asked = policy(primary=[r"pulsar-broker-\d\.pulsar"], secondary=["10.*", "pulsar-broker-0.*"])

    found = isolation_of("t/n", {"p": asked}, HOSTS)

    assert found == Isolation(("pulsar-broker-0|pulsar-broker-1",), (r"a\.b",), 1), "primary comes first"


def test_the_first_policy_about_a_namespace_counts_and_the_whole_name_must_match() -> None:
    policies = {"a": policy(namespaces=["t/na"], primary=["10.*"]), "b": policy(primary=["pulsar-broker-0.*"])}

    assert isolation_of("t/name", policies, HOSTS) == Isolation(("pulsar-broker-0",))
    assert isolation_of("other/name", policies, HOSTS) is None


@pytest.mark.parametrize(
    "pattern",
    [
        *("gone-.*", "pulsar-broker-0", "pulsar-broker-[01]", "pulsar-broker-0.*:8080", "pulsar-broker-0|a.b", "a.b"),
        *(
            "(?i)PULSAR-BROKER-0",
            "PULSAR-BROKER-0.*",
            "http://pulsar-broker-0.pulsar",
            "[",
            "x)|(.*",
            "|".join([".*x"] * 90),
        ),
    ],
)
def test_patterns_that_no_known_host_matches_are_kept_for_people_to_see_and_match_no_name(pattern: str) -> None:
    found = isolation_of("t/n", {"p": policy(primary=[pattern])}, HOSTS)

    assert found is not None
    assert len(found.primary[0]) <= 253
    rules = IsolationRules(tuple(HOSTS), {"t/n": NamespacePolicy(found)})
    allowed = rules.of("t/n")
    assert allowed is not None
    assert not allowed.allowed(np.ones(3, bool)).any()
    (told,) = rules.problems()
    assert "isolation matches no broker with 'host:" in told.detail


def test_a_secondary_pattern_that_matches_only_primary_hosts_names_no_other() -> None:
    asked = policy(primary=["pulsar-broker-0.*"], secondary=["pulsar-broker-0.pulsar"])
    assert isolation_of("t/n", {"p": asked}, HOSTS) == Isolation(("pulsar-broker-0",))


def test_a_pattern_that_a_backtracking_engine_takes_years_for_is_matched() -> None:
    found = isolation_of("t" * 60 + "/n", {"p": policy(namespaces=["(t+)+/n"], primary=["10.0.0.1"])}, HOSTS)

    assert found is not None


def test_a_pattern_that_is_refused_matches_no_broker() -> None:
    assert isolation_of("tt/n", {"p": policy(namespaces=[r"(t)\1/n"], primary=[".*"])}, HOSTS) is None


def test_many_brokers_are_spread_over_patterns_that_the_api_server_takes() -> None:
    hosts = {f"pulsar-broker-{n}": f"h{n}" for n in range(100)}

    found = isolation_of("t/n", {"p": policy(primary=["h.*"])}, hosts)

    assert found is not None
    assert max(map(len, found.primary)) <= 253
    assert sorted("|".join(found.primary).split("|")) == sorted(hosts)


def test_the_limit_is_read_from_text_and_is_one_where_it_cant_be() -> None:
    def limit(text: str) -> int:
        parameters = {"auto_failover_policy": {"parameters": {"min_limit": text}}}
        found = isolation_of("t/n", {"p": policy(primary=["10.*"], **parameters)}, HOSTS)
        return found.min_available if found else -1

    assert [limit(text) for text in ("3", "0", "many", "99999")] == [3, 0, 1, 1000]


def test_of_several_objects_the_one_with_the_bundles_holds_the_namespace_then_a_persons() -> None:
    mine = records.topic_namespace("z", bundles=0)
    found = records.topic_namespace("a", bundles=0, discovered=True)

    assert primary_record([found, mine]) is mine
    assert primary_record([records.topic_namespace("a", bundles=2, discovered=True), mine]) != mine
    assert primary_record([]) is None


def test_what_is_pulsars_own_is_not_mirrored() -> None:
    assert [is_system(n) for n in ("pulsar/system", "sla-monitor/c/b", "public/default")] == [True, True, False]


def test_a_name_that_another_client_took_gets_a_hash() -> None:
    assert topic_namespace_name("t", "n") == "t-n"
    assert topic_namespace_name("t", "n", hashed=True).startswith("t-n-")
