"""Which network interfaces count: each byte once, or the use of the network is unknown."""

from __future__ import annotations

import re
from collections.abc import Mapping

import numpy as np
import pytest

from pod_series import AT, PODS, counter, gauge, world
from raw_samples import Kept, believed
from trimtab_pipeline.api import PrometheusSettings
from trimtab_pipeline.transform.interfaces import BOND, NIC, VIRTUAL, counted_interfaces
from trimtab_strategies.model import NETWORK_IN, NETWORK_OUT

M = 1e6
COUNTED: dict[str, tuple[Mapping[str, float], list[str] | None]] = {
    "a pod with its own network": ({"eth0": M}, ["eth0"]),
    "an idle pod": ({"eth0": 0.0, "net1": 0.0}, ["eth0", "net1"]),
    "a pod with a second network": ({"eth0": M, "net1": 5 * M}, ["eth0", "net1"]),
    "a pod whose interface has another name": ({"uplink": M}, ["uplink"]),
    "AWS": ({"ens5": 50 * M, "eni4af1c3b2e10": 25 * M, "eni9b01c3b2e11": 25 * M, "lo": 150 * M}, ["ens5"]),
    "AWS with two ENIs": ({"ens5": 50 * M, "ens6": 20 * M, "eni4af1c3b2e10": 25 * M}, ["ens5", "ens6"]),
    "Azure": ({"eth0": 50 * M, "enP12345s1": 49 * M, "azv1b2c3": 30 * M}, ["eth0"]),
    "Azure with MANA": ({"eth0": 50 * M, "enP30832p0s0": 49 * M}, ["eth0"]),
    "two NICs, one named like Azure's": ({"eth0": M, "enP2p1s0": 50 * M}, ["enP2p1s0", "eth0"]),
    "a machine with several PCI domains": ({"enP2p1s0f0": 50 * M, "cali12": 9 * M}, ["enP2p1s0f0"]),
    "GKE": ({"eth0": 50 * M, "gke0a1b2c3": 30 * M, "gke52d5f8": 10 * M, "docker0": M}, ["eth0"]),
    "a bond of two NICs": ({"bond0": 100 * M, "ens1f0": 51 * M, "ens1f1": 49 * M}, ["bond0"]),
    "a team of two NICs": ({"team0": 100 * M, "eno1": 99 * M, "eno2": 1 * M}, ["team0"]),
    "a bond and a NIC outside it": ({"bond0": 100 * M, "eno1": 60 * M, "eno2": 40 * M, "ens9": 80 * M}, None),
    "VLANs": ({"ens5": 50 * M, "ens5.100": 30 * M, "vlan200": 20 * M}, ["ens5"]),
    "a VLAN on a bond": ({"bond0": 50 * M, "bond0.7": 50 * M, "eth0": 25 * M, "eth1": 25 * M}, ["bond0"]),
    "a bridge with the NIC in it": ({"br0": 50 * M, "eno1": 50 * M, "vnet3": 20 * M}, ["eno1"]),
    "Open vSwitch": ({"br-ex": 50 * M, "ovs-system": M, "eno1": 50 * M, "ovn-k8s-mp0": 9 * M}, ["eno1"]),
    "tunnels": ({"eth0": 50 * M, "wg0": 40 * M, "tun0": 9 * M, "ifb0": 50 * M, "cilium_vxlan": 30 * M}, ["eth0"]),
    "several devices with names of their own": ({"lan0": 50 * M, "wan0": 20 * M}, None),
    "a busy device with a name of its own beside a NIC": ({"lan0": 50 * M, "eth0": M}, None),
    "a veth of an unknown kind beside a NIC": ({"xyz12": 5 * M, "eth0": 50 * M}, ["eth0"]),
}


@pytest.mark.parametrize("case", COUNTED)
def test_each_byte_counts_once(case: str) -> None:
    rates, counted = COUNTED[case]
    assert counted_interfaces(rates) == counted


def test_a_declared_device_counts_alone() -> None:
    assert counted_interfaces({"lan0": M, "wan0": M, "eth0": M}, "wan0") == ["wan0"]
    assert counted_interfaces({"eth0": M}, "ens5") == ["eth0"], "the pod has a network of its own"


@pytest.mark.parametrize(
    "name",
    ["eni4af1c3b2e10", "azv1b2c3", "gke0a1b2c3", "cali1", "lxc2a", "veth1", "docker0", "ens5.100", "ifb0", "br0"],
)
def test_a_virtual_device_is_no_nic(name: str) -> None:
    assert re.fullmatch(VIRTUAL, name)
    assert not re.fullmatch(f"{NIC}|{BOND}", name)


@pytest.mark.parametrize(
    "name", ["eth0", "ens5", "eno1", "enp3s0f0np0", "enP12345s1", "enx001122334455", "em1", "p1p1"]
)
def test_a_nic_is_known_by_its_name(name: str) -> None:
    assert re.fullmatch(NIC, name)
    assert not re.fullmatch(VIRTUAL, name)


# -- what is believed --


def hosted(rates: Mapping[str, Mapping[str, float]]) -> Kept:
    """The brokers of `world`, with these bytes/s of each interface by pod."""
    kept = world()
    kept.lines = [line for line in kept.lines if "interface" not in line.labels]
    for pod, interfaces in rates.items():
        for name, rate in interfaces.items():
            for direction in ("receive", "transmit"):
                points = counter(rate, 1e12).tolist()
                labels = {"namespace": "ns", "pod": pod, "interface": name}
                kept.add(f"container_network_{direction}_bytes_total", points, **labels)
        kept.add("kube_pod_info", gauge(*[125 * M] * 20).tolist(), namespace="ns", pod=pod)
    return kept


def network(kept: Kept, device: str = "") -> tuple[list[float], list[str], bool]:
    """Bytes/s in of each broker (0: it does not count), the notes, and whether all are trusted."""
    load = believed(kept, PrometheusSettings("http://x", "ns", network_device=device), PODS, AT)
    np.testing.assert_array_equal(load.brokers.usage[:, NETWORK_IN], load.brokers.usage[:, NETWORK_OUT])
    return (
        load.brokers.usage[:, NETWORK_IN].round().tolist(),
        list(load.quality.notes),
        bool(load.brokers.trusted.all()),
    )


def test_only_the_nic_of_a_host_counts() -> None:
    rates = {
        pod: {"ens5": n * M, "eni4af1c3b2e10": 90 * M, "vlan7": n * M} for pod, n in {"b-0": 60, "b-1": 24}.items()
    }
    assert network(hosted(rates)) == ([60 * M, 24 * M], [], True)


def test_if_one_broker_is_unclear_the_network_counts_for_none_and_that_is_said() -> None:
    kept = hosted({"b-0": {"lan0": 60 * M, "wan0": 30 * M}, "b-1": {"ens5": 24 * M}})
    used, notes, trusted = network(kept)
    assert used == [0.0, 0.0]
    assert trusted
    told = "the use of the network is unknown and does not count; name the device in source.prometheus.networkDevice"
    assert notes == [f"b-0: it is unclear which of the network devices lan0, wan0 count, so {told}"]


def test_a_declared_device_makes_it_clear() -> None:
    kept = hosted({"b-0": {"lan0": 60 * M, "wan0": 30 * M}, "b-1": {"lan0": 24 * M, "eth7": M}})
    assert network(kept, "lan0") == ([60 * M, 24 * M], [], True)
