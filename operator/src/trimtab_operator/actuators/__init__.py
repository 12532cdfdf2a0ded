"""Actuators make intent real: they write wishes and help them along. Dry run is an actuator too, never an ``if``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from trimtab_operator.actuators.split_steps import Order
from trimtab_operator.cluster.bundles import BundleRecord
from trimtab_strategies.model import Reason, Split


@dataclass(frozen=True, slots=True)
class Written:
    """What became of one write. `reason` is None when it was written, else why it was not (`CONFLICT`, ...)."""

    bundle: str
    reason: Reason | None
    detail: str = ""


class Actuator(Protocol):
    """Writes who is to own a bundle, as decided for one policy."""

    async def wish(self, bundle: BundleRecord, owner: str, reason: Reason) -> Written:
        """Wish that `owner` has `bundle`, provided nobody changed the bundle since it was read."""

    async def free(self, bundle: BundleRecord) -> Written:
        """Say that the owner in the bundle's status is gone, provided nobody changed the bundle since it was read."""

    async def request_split(self, bundle: BundleRecord, split: Split) -> Written:
        """Ask for `bundle` to be divided as planned; a `Divider` does it then."""


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a split has come: done; or undone, so that the parent is as it was; or neither, and what it waits for.

    reason: why it is undone, where there is a word for it.
    """

    done: bool = False
    undone: bool = False
    text: str = ""
    reason: Reason | None = None


class Divider(Protocol):
    """Carries splits out, whoever asked for them."""

    async def advance(self, order: Order, give_up: str = "") -> Progress:
        """Do what can be done of `order` now; asked again, after a crash too, it goes on from where it was.

        give_up: why to go back if that is possible still; empty: not to. Raises `ApiError`.
        """
