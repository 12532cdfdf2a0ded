"""What people and the platform declare about brokers and namespaces: traits, isolation, and rules for bundles."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class BrokerTraits:
    """Properties of a broker that its load does not show.

    version:        the broker's software version, e.g. ``4.2.4``; empty if unknown.
    failure_domain: name of the domain (zone, rack) that it fails with; empty if none.
    load_manager:   class name of its load manager; empty if unknown.
    persistent, non_persistent: whether it serves persistent topics, and non-persistent ones.
    weight:         set by a user: the load it should carry, as a multiple of the average of brokers without a weight;
                    NaN if none.
    started:        epoch seconds at which its pod, or the newest of the pod's containers, started; NaN if unknown.
    """

    version: str = ""
    failure_domain: str = ""
    load_manager: str = ""
    persistent: bool = True
    non_persistent: bool = True
    weight: float = float("nan")
    started: float = float("nan")


UNKNOWN_TRAITS = BrokerTraits()
"""The traits of a broker about which nothing is known."""


@dataclass(frozen=True, slots=True)
class Isolation:
    """Which brokers may own a namespace's bundles: regular expressions that must match a broker's whole host name.

    Primary hosts may always own them. Secondary ones may while fewer than `min_available` primary ones are available.
    """

    primary: tuple[str, ...]
    secondary: tuple[str, ...] = ()
    min_available: int = 1


@dataclass(frozen=True, slots=True)
class NamespacePolicy:
    """Rules for a namespace's bundles.

    isolation:           the brokers that may own them; None: any that is not the primary of another namespace.
    anti_affinity_group: namespaces of one group are kept apart, by failure domain if brokers have one; empty if none.
    unload:              whether its bundles may move. last: whether they move only if a plan without them would
                         neither move nor split a bundle.
    spread:              whether its bundles are spread evenly over brokers, by number.
    zone:                failure domain whose brokers get its bundles while they have room; empty if none.
    """

    isolation: Isolation | None = None
    anti_affinity_group: str = ""
    unload: bool = True
    last: bool = False
    spread: bool = False
    zone: str = ""


NO_POLICY = NamespacePolicy()
"""The policy of a namespace that declares none."""
