"""The values that flow through the loop: `ClusterLoad` goes in, `Plan` comes out, `Reason` explains both."""

from trimtab_strategies.model.load import (
    CPU,
    DIRECT_MEMORY,
    MEMORY,
    NETWORK_IN,
    NETWORK_OUT,
    RATE_IN,
    RATE_OUT,
    RESOURCES,
    THROUGHPUT_IN,
    THROUGHPUT_OUT,
    TRAFFIC,
    Brokers,
    Bundles,
    ClusterLoad,
    DataQuality,
    InvalidLoadError,
)
from trimtab_strategies.model.plan import Decision, HeldBack, Memory, Move, Plan, counted
from trimtab_strategies.model.reason import Reason

__all__ = [
    "CPU",
    "DIRECT_MEMORY",
    "MEMORY",
    "NETWORK_IN",
    "NETWORK_OUT",
    "RATE_IN",
    "RATE_OUT",
    "RESOURCES",
    "THROUGHPUT_IN",
    "THROUGHPUT_OUT",
    "TRAFFIC",
    "Brokers",
    "Bundles",
    "ClusterLoad",
    "DataQuality",
    "Decision",
    "HeldBack",
    "InvalidLoadError",
    "Memory",
    "Move",
    "Plan",
    "Reason",
    "counted",
]
