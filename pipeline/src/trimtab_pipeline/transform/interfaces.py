"""Which network interfaces of a pod count, so that each byte counts once.

A pod with a network of its own has one interface, or one for each network. A pod in the network of its host
(``hostNetwork``) shows all interfaces of the host: NICs, bonds of NICs, VLANs and bridges on top of them, tunnels, and
the host's ends of other pods' interfaces. What leaves the host passes a NIC, so only NICs count, or the bonds that
replace them. If names and traffic do not tell which ones, that is unclear, and the use of the network is unknown.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

NIC = (
    "eth[0-9]+|en[a-hj-zP][0-9A-Za-z]*|em[0-9]+|p[0-9]+p[0-9]+[0-9A-Za-z]*|net[0-9]+|ib[0-9a-z]+|hsn[0-9]+|wl[0-9a-z]+"
)
"""Regular expression for NICs by the usual names of Linux, and for the interfaces of a pod (``eth0``, ``net1``)."""
BOND = "(bond|team)[0-9A-Za-z_-]*"
"""Regular expression for bonds of NICs: the NICs count the same bytes."""
VIRTUAL = (
    "lo|veth.*|eni[0-9a-f]+|azv.*|gke.*|cali.*|cilium.*|lxc.*|nk[0-9].*|antrea.*|ovn-.*|ovs-.*|weave.*|datapath|flannel.*"
    "|docker.*|cni.*|cbr[0-9]+|podman.*|lxdbr.*|br|br[0-9]+|br[-_].*|vmbr.*|virbr.*|vnet[0-9]+|kube-.*|nodelocaldns"
    "|vxlan.*|genev.*|gre.*|erspan.*|tunl.*|ip6.*|ip_vti.*|ipip.*|sit[0-9]+|tun[0-9]*|tap.*|wg.*|tailscale.*|ifb.*"
    "|dummy.*|macvtap.*|macvlan.*|ipvlan.*|vlan.*|.*[.@:].*"
)
"""Regular expression for interfaces whose traffic stays on the host, or also passes another interface."""
_VIRTUAL_FUNCTION = "enP.*"
"""Azure's accelerated networking: the traffic of ``eth0`` passes this device, and both count it."""
_SYNTHETIC = "eth[0-9]+"
_ALIKE = 1.1  # ratio: bonds count as much as their NICs, but not at the same moment


def counted_interfaces(rates: Mapping[str, float], device: str = "") -> list[str] | None:
    """The interfaces that count; None if that is unclear. rates: bytes/s by interface. device: a declared one."""
    if device in rates:
        return [device]
    busy = {name: rate for name, rate in rates.items() if rate > 0 and not re.fullmatch(VIRTUAL, name)}
    if len(busy) <= 1:
        return list(busy or rates)
    nics = _without_virtual_functions({name: rate for name, rate in busy.items() if re.fullmatch(NIC, name)})
    bonds = {name: rate for name, rate in busy.items() if re.fullmatch(BOND, name)}
    others = sum(rate for name, rate in busy.items() if not re.fullmatch(f"{NIC}|{BOND}", name))
    chosen, rest = (bonds, sum(nics.values())) if bonds else (nics, 0.0)
    clear = rest <= _ALIKE * sum(chosen.values()) and others <= sum(chosen.values())
    return sorted(chosen) if clear else None


def _without_virtual_functions(nics: Mapping[str, float]) -> dict[str, float]:
    synthetic = sum(rate for name, rate in nics.items() if re.fullmatch(_SYNTHETIC, name))
    functions = {name for name in nics if re.fullmatch(_VIRTUAL_FUNCTION, name)}
    twice = _ALIKE * synthetic >= sum(nics[name] for name in functions)
    return {name: rate for name, rate in nics.items() if name not in functions or not twice}
