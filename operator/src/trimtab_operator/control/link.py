"""`Link`: what the control loop knows of the Pulsar cluster behind the resources, where there is one.

Written by the bridge, read by policies. It is one mutable object: Kopf gives each policy's loop a copy of the context,
and all copies hold the same link.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field

from trimtab_operator.control.crosschecking import Crosscheck
from trimtab_operator.pulsar.balancing import Found
from trimtab_operator.resources.pulsar import PulsarSpec
from trimtab_pipeline.source import NO_CREDENTIALS, Credentials

NOT_ASKED = "the cluster was not asked yet"
"""The problem that there is at first."""


@dataclass(frozen=True, slots=True)
class OneHand:
    """Whether nobody but Trimtab balances the cluster.

    held: Pulsar's own shedding and automatic split are off on every broker, as far as was verified; None not yet known.
    text: what was found, in words, with the remedy.
    """

    held: bool | None = None
    text: str = "the brokers' configuration was not read yet"


@dataclass(slots=True)
class Link:
    """Nothing is linked at first: `spec` is None, and bundles are moved by brokers that watch the objects.

    spec:    the cluster that the policy `policy` names; all others must name the same.
    ids:     by name of a Broker object the id (``host:webPort``) by which Pulsar knows it, of the active ones.
             None until the cluster was seen: nothing is then known about who is alive.
    problem: why the cluster can't be asked at the moment, in words; empty when it can.
    hand:    whether nobody else balances it.
    switched_off: whether Trimtab has switched off what a ConfigMap keeps, to be put back; None not yet known.
    found:   what that ConfigMap keeps, where this process wrote or read it: somebody may delete it before its time.
    elsewhere: whether that was found in another cluster than this one, where it is to be put back first.
    steering: held by who looks at, and switches, Pulsar's own balancing.
    suspects: namespaces (``tenant/name``) of which somebody found that they are not as the objects say: read next.
    urls:    by name of a Broker object where that one is asked for its own statistics; only while a policy wants them.
    credentials: what proves to brokers who asks for those, as of now.
    crosscheck: whether Prometheus shows the brokers that Pulsar has.
    """

    spec: PulsarSpec | None = None
    policy: str = ""
    ids: Mapping[str, str] | None = None
    problem: str = ""
    hand: OneHand = field(default_factory=OneHand)
    switched_off: bool | None = None
    found: Found | None = None
    elsewhere: bool = False
    steering: asyncio.Lock = field(default_factory=asyncio.Lock)
    suspects: set[str] = field(default_factory=set)
    urls: Mapping[str, str] = field(default_factory=dict)
    credentials: Credentials = NO_CREDENTIALS
    crosscheck: Crosscheck = field(default_factory=Crosscheck)

    def lead_to(self, spec: PulsarSpec | None, policy: str) -> None:
        """Name the cluster, or none. Nothing is known of another one than before."""
        if spec != self.spec:
            self.ids, self.hand, self.crosscheck = None, OneHand(), Crosscheck()
            self.elsewhere = False
            self.problem = NOT_ASKED if spec is not None else ""
        self.spec, self.policy = spec, policy

    def keep(self, found: Found | None) -> None:
        """Say what is kept of this cluster, to be put back; None: nothing is."""
        self.switched_off = found is not None and bool(found.overrides)
        self.found, self.elsewhere = found, False

    def withhold(self) -> None:
        """Say no more where brokers are asked, nor by whom."""
        self.urls, self.credentials = {}, NO_CREDENTIALS

    @property
    def linked(self) -> bool:
        """Whether a Pulsar cluster carries the wishes out."""
        return self.spec is not None
