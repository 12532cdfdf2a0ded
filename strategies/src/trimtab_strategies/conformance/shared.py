"""What the adapters of several algorithms share: parameters from Pulsar's keys, candidates, names."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeVar, cast

import numpy as np

from trimtab_strategies.model import ClusterLoad
from trimtab_strategies.model.load import IntArray
from trimtab_strategies.params import StrategyParams, pulsar_keys

Input = Mapping[str, Any]
Answer = dict[str, Any]
Algorithm = Callable[[Input], Answer]
Params = TypeVar("Params", bound=StrategyParams)


def params(model: type[Params], conf: Mapping[str, Any]) -> Params:
    """A strategy's parameters from Pulsar's configuration keys; keys of other strategies are left aside.

    Our bounds are not applied: recordings try values, such as a threshold of 0, that no policy may have. Like Pulsar,
    the old spelling ``...Bandwith...`` is read where the right one is absent or 1.
    """
    keys = pulsar_keys(model)
    old = {key.replace("Bandwidth", "Bandwith"): key for key in keys if "Bandwidth" in key}
    values = {keys[old[key]]: value for key, value in conf.items() if key in old}
    known = {keys[key]: value for key, value in conf.items() if key in keys}
    values.update({name: value for name, value in known.items() if value != 1 or name not in values})
    return cast("Params", model.model_construct(**values))


def candidates(cluster: ClusterLoad, names: list[str]) -> IntArray:
    """Rows of the named brokers, ascending."""
    return np.array(sorted(cluster.brokers.index[name] for name in names), dtype=np.int64)


def names_of(cluster: ClusterLoad, rows: IntArray) -> list[str]:
    """Names of the brokers `rows`, ascending."""
    return sorted(cluster.brokers.names[row] for row in rows)
