"""What works with an open client of the linked Pulsar cluster: a row each, made anew whenever the client is."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping

from trimtab_operator.bridge.carrier import Carrier
from trimtab_operator.bridge.costs import Costs
from trimtab_operator.bridge.crosscheck import Statistics
from trimtab_operator.bridge.mirror import Mirror
from trimtab_operator.bridge.wheel import Wheel
from trimtab_operator.control.context import Context
from trimtab_operator.pulsar.admin import Admin


def parts(context: Context, admin: Admin) -> Mapping[str, Callable[[], Awaitable[None]]]:
    """By name what runs for ever, and bears what `admin` and the API server refuse."""
    carrier, costs = Carrier(context, admin), Costs(context, admin)
    carrier.subscribe(costs.landed)
    return {
        "mirror": Mirror(context, admin).run,
        "carrier": carrier.run,
        "wheel": Wheel(context, admin).run,
        "costs": costs.run,
        "statistics": Statistics(context, admin).run,
    }
