"""The topics of a bundle: its children add up to it, and brokers serve a child only when the parent is gone."""

from __future__ import annotations

import time
from itertools import pairwise

import pytest

from manifests import broker
from small_cluster import until
from trimtab_operator.resources.bundle import PARENT
from trimtab_testbed.servers.kube import ControlPlane
from trimtab_testbed.simulated.cluster import SimulatedCluster, Spellings, landed, object_name
from trimtab_testbed.simulated.load import Catalogue
from trimtab_testbed.simulated.scenarios import scenario

FIRST, SECOND = "pulsar-broker-0", "pulsar-broker-1"


def catalogue() -> Catalogue:
    loads, _ = scenario("uneven-8").stage()
    return Catalogue(loads)


@pytest.mark.parametrize(
    "edges", [("80000000", "90000000", "a0000000"), ("80000000", "83000000", "84000000", "a0000000")]
)
def test_the_parts_of_a_bundle_add_up_to_it(edges: tuple[str, ...]) -> None:
    known = catalogue()
    parts = [known[f"t/n/0x{lower}_0x{upper}"] for lower, upper in pairwise(edges)]
    whole = known["t/n/0x80000000_0xa0000000"]

    assert sum(part.topics for part in parts) == whole.topics
    for column in ("cores", "rate_in", "rate_out", "throughput_in", "throughput_out"):
        assert sum(getattr(part, column) for part in parts) == pytest.approx(getattr(whole, column))
    assert len(known) == 8


def test_a_bundle_of_which_clients_ask_more_carries_more_in_all_its_parts() -> None:
    known, before = catalogue(), catalogue()
    name, part = "t/n/0x80000000_0xa0000000", "t/n/0x80000000_0x90000000"
    assert known[part] == before[part]

    known.scale(name, 3.0)

    for bundle in (name, part):
        assert known[bundle].cores == pytest.approx(3 * before[bundle].cores)
        assert known[bundle].rate_in == pytest.approx(3 * before[bundle].rate_in)
        assert known[bundle].topics == before[bundle].topics
    assert known["t/n/0xa0000000_0xc0000000"] == before["t/n/0xa0000000_0xc0000000"]


def test_a_part_of_a_part_is_the_same_for_every_caller() -> None:
    name = "t/n/0x80000000_0x88000000"
    one, other = catalogue(), catalogue()
    assert one["t/n/0x80000000_0x90000000"].cores > one[name].cores
    assert other[name] == one[name]


@pytest.mark.parametrize("name", ["t/n/0x10000000_0x30000000", "t/other/0x00000000_0x20000000", "nonsense"])
def test_what_is_no_part_of_one_bundle_has_no_load(name: str) -> None:
    assert name not in catalogue()


def test_parts_are_spelt_as_pulsar_does() -> None:
    spellings = Spellings(["t/n/0x00000000_0xffffffff"])
    assert spellings[object_name("t/n/0x00000000_0x10000000")] == "t/n/0x00000000_0x10000000"
    assert spellings.get("other-0x00000000-0x10000000") is None


@pytest.mark.apiserver
def test_a_broker_serves_a_child_only_once_its_parent_is_gone(trimtab_crds: ControlPlane, kube_namespace: str) -> None:
    rest, path = trimtab_crds.rest, f"/apis/trimtab.dev/v1alpha1/namespaces/{kube_namespace}/bundles"
    begun = scenario("uneven-8")
    for name in (FIRST, SECOND):
        rest.create(path.replace("bundles", "brokers"), broker(name))
    with SimulatedCluster(begun, rest=rest, kubeconfig=trimtab_crds.kubeconfig, namespace=kube_namespace) as world:
        world.seed_bundles()
        world.wait_until_owned()
        whole = min(world.serving()[FIRST])
        space, lower, upper = object_name(whole).rsplit("-", 2)
        middle = f"0x{(int(lower, 16) + int(upper, 16)) // 2:08x}"
        children = [(lower, middle), (middle, upper)]
        for low, high in children:
            manifest = {
                "apiVersion": "trimtab.dev/v1alpha1",
                "kind": "Bundle",
                "metadata": {"name": f"{space}-{low}-{high}", "annotations": {PARENT: object_name(whole)}},
                "spec": {"topicNamespace": space, "range": {"lower": low, "upper": high}, "owner": FIRST},
            }
            rest.create(path, manifest)
        names = [f"{space}-{low}-{high}" for low, high in children]
        until("it takes them", lambda: all(world.bundles()[n].get("status", {}).get("owner") for n in names), within=10)
        before = world.cpu()[FIRST]
        assert whole in world.serving()[FIRST]
        parts = {f"{begun.namespaces[0].full_name}/{low}_{high}" for low, high in children}
        assert not parts & world.serving()[FIRST]

        rest.patch(f"{path}/{names[1]}", {"spec": {"owner": SECOND}})
        time.sleep(1.5)  # longer than a broker takes to look again
        assert world.bundles()[names[1]]["status"]["owner"] == FIRST, "another broker would serve its topics as well"
        assert not parts & (world.serving()[FIRST] | world.serving()[SECOND])
        rest.patch(f"{path}/{names[1]}", {"spec": {"owner": FIRST}})
        until("it confirms that it keeps it", lambda: landed(world.bundles()[names[1]]), within=10)
        rest.delete(f"{path}/{object_name(whole)}")

        until(
            "it serves both", lambda: parts <= world.serving()[FIRST] and whole not in world.serving()[FIRST], within=10
        )
        assert world.cpu()[FIRST] == pytest.approx(before, rel=0.1)
