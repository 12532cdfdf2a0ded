"""Which of Pulsar's load managers a broker runs, by its running configuration: it is found, never configured."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum


class LoadManager(StrEnum):
    """`OTHER`: neither of those whose behaviour was measured."""

    MODULAR = "ModularLoadManagerImpl"
    EXTENSIBLE = "ExtensibleLoadManagerImpl"
    OTHER = "Other"


def load_manager(runtime: Mapping[str, str]) -> LoadManager:
    """The one that runs with the configuration `runtime`."""
    name = runtime.get("loadManagerClassName", "").rpartition(".")[2]
    return next((found for found in LoadManager if found.value == name), LoadManager.OTHER)
