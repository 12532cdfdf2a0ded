"""Translates the runtime configuration of Pulsar's brokers into an equivalent BalancingPolicy. Pure functions.

The descriptions of parameters name their Pulsar keys (`params.pulsar_keys`), so a new strategy in the registry needs no
change here. Values at their default are left out.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, get_origin

from pydantic import ValidationError
from pydantic.alias_generators import to_camel

from trimtab_operator.cli.common import CommandError
from trimtab_operator.pulsar.client.api import LoadManager, load_manager
from trimtab_operator.pulsar.client.dynamic_config import ENABLED, SHEDDING, SPLITTING, is_true
from trimtab_operator.resources.policy import BalancingPolicySpec, Limits
from trimtab_operator.resources.strategy_unions import member
from trimtab_strategies.params import StrategyParams, pulsar_keys, quantity
from trimtab_strategies.registry import PLACEMENTS, SELECTIONS, SHEDDERS, SPLITTERS, Row

_STRATEGY, _PLACEMENT = "loadBalancerLoadSheddingStrategy", "loadBalancerLoadPlacementStrategy"
_INTERVAL, _GRACE = "loadBalancerSheddingIntervalMinutes", "loadBalancerSheddingGracePeriodMinutes"
_NIC = "loadBalancerOverrideBrokerNicSpeedGbps"
_FASTEST = 1e6
"""Gbit/s above which a figure can't be a network's speed."""
_MISSPELT = {
    "loadBalancerBandwidthInResourceWeight": "loadBalancerBandwithInResourceWeight",
    "loadBalancerBandwidthOutResourceWeight": "loadBalancerBandwithOutResourceWeight",
}
"""Key -> its older spelling. Pulsar uses the value of the older key while the newer one is at its default of 1."""

_DEFAULTS = {
    LoadManager.MODULAR: ("ThresholdShedder", "LeastLongTermMessageRate", "BundleSplitterTask", "Modular"),
    LoadManager.EXTENSIBLE: (
        "TransferShedder",
        "ExtensibleLeastResourceUsageWithWeight",
        "DefaultNamespaceBundleSplitStrategy",
        "Extensible",
    ),
}
"""Shedder and placement that a load manager falls back to, then its split rule and selection."""
_RUNS = {
    LoadManager.MODULAR: ({"ThresholdShedder", "OverloadShedder", "UniformLoadShedder", "AvgShedder"}, ".impl."),
    LoadManager.EXTENSIBLE: ({"TransferShedder"}, ".extensions."),
}
"""The shedders that a load manager can run, and the package of its placements."""
_FALLS_BACK = "Pulsar 4 runs SimpleLoadManagerImpl then, which has no equivalent"
"""What a modular load manager does if it can't load its strategies; only brokers' logs say so (4.0.8, 4.2.4)."""
_NOT_PARAMETERS = frozenset({"load_manager"})
"""Parameters of a selection that are left out: a cluster runs only one load manager."""

_NO_EQUIVALENT: Mapping[str, tuple[str, str]] = {
    "loadBalancerPlacementStrategy": ("leastLoadedServer", "only Pulsar's simple load manager reads it"),
    "loadBalancerReportUpdateThresholdPercentage": ("10", "load comes from Prometheus, at its scrape interval"),
    "loadBalancerReportUpdateMinIntervalMillis": ("5000", "load comes from Prometheus, at its scrape interval"),
    "loadBalancerReportUpdateMaxIntervalMinutes": ("15", "load comes from Prometheus, at its scrape interval"),
    "loadBalancerHostUsageCheckIntervalMinutes": ("1", "load comes from Prometheus, at its scrape interval"),
    "loadBalancerResourceQuotaUpdateIntervalMinutes": ("15", "there are no resource quotas"),
    "loadBalancerBrokerUnderloadedThresholdPercentage": ("50", "no supported strategy reads it"),
    "loadBalancerBrokerComfortLoadLevelPercentage": ("65", "no supported strategy reads it"),
    "loadBalancerSplitIntervalMinutes": ("1", "splits are decided in each cycle (spec.interval)"),
    "namespaceBundleUnloadingTimeoutMs": ("60000", "limits.moveTimeout is how long a move may take"),
    "loadBalancerMultiPhaseBundleUnload": ("true", "it is how brokers unload, and stays in effect"),
}
"""Keys of Pulsar's balancing without an equivalent field: their default, and why."""

_MINIMA: Mapping[str, Mapping[str, tuple[str, str]]] = {
    "ThresholdShedder": {"min_throughput": ("bytes/s", "10Ki")},
    "UniformLoadShedder": {"min_rate": ("messages/s", "10"), "min_throughput": ("bytes/s", "10Ki")},
    "AvgShedder": {"min_rate": ("messages/s", "10"), "min_throughput": ("bytes/s", "10Ki")},
}
"""Minima below which a shedder moves nothing, by parameter: the unit, and an example for a small cluster."""

_INTERVAL_OF_TRIM = BalancingPolicySpec.model_fields["interval"].default
_COOL_DOWN_OF_TRIM = Limits.model_fields["cool_down"].default
TRIM_NOTES = (
    "this is Trim, Trimtab's default strategy, with Pulsar's other settings",
    (
        f"interval and limits.coolDown are left out: {_INTERVAL} and {_GRACE} are the pace of Pulsar's shedding, and "
        f"Trim uses the defaults, {_INTERVAL_OF_TRIM} and {_COOL_DOWN_OF_TRIM}"
    ),
)
"""Notes at the head of a policy with Trim."""


@dataclass(slots=True)
class Migration:
    """A translation.

    spec: of the new policy. shedder: the type that Pulsar runs. notes: what has no equivalent, is doubtful, or must be
    filled in.
    """

    spec: dict[str, Any]
    shedder: str
    notes: list[str] = field(default_factory=list)


@dataclass(slots=True)
class _ConfigReader:
    """Reads one configuration, and notes what it can't translate."""

    runtime: Mapping[str, str]
    manager: LoadManager
    notes: list[str] = field(default_factory=list)

    def chosen(self, key: str, table: Mapping[str, Row[Any]], fallback: str) -> str:
        """The strategy that `key` names, or that the load manager falls back to."""
        named = self.runtime.get(key, "")
        simple = named.rpartition(".")[2]
        shedders, package = _RUNS[self.manager]
        rows = [name for name, row in table.items() if row.original and row.original.rpartition(".")[2] == simple]
        if table is SHEDDERS:
            fits = [name for name in rows if name in shedders]
        else:
            fits = [name for name in rows if package in table[name].original]
        if fits:
            return fits[0]
        ours = "can't be run by" if rows else "is not a strategy of Pulsar, or not of"
        instead = "runs instead" if self.manager is LoadManager.EXTENSIBLE else "is used instead"
        self.notes.append(f"{key} = {named or '(nothing)'} {ours} {self.manager}: {fallback} {instead}")
        if rows and self.manager is LoadManager.MODULAR:
            self.notes[-1] += f"; {_FALLS_BACK}, and Pulsar 3 OverloadShedder"
        return fallback

    def params(self, params: type[StrategyParams]) -> dict[str, Any]:
        """The parameters with other values than their default, by their name in a policy."""
        found = dict[str, Any]()
        for key, ours in pulsar_keys(params).items():
            name = ours.name
            if name in _NOT_PARAMETERS or (text := self._text(key)) is None:
                continue
            info = params.model_fields[name]
            value = ours.value(_value(text, listed=get_origin(info.annotation) is tuple))
            try:
                checked = getattr(params.model_validate({name: value}), name)
            except ValidationError as error:
                why = error.errors()[0]["msg"]
                self.notes.append(f"{key} = {text} can't be used ({why}): {to_camel(name)} is left at its default")
                continue
            if checked != info.default:
                found[to_camel(name)] = list(checked) if isinstance(checked, tuple) else _plain(checked)
        return found

    def _text(self, key: str) -> str | None:
        text = self.runtime.get(key)
        old = self.runtime.get(_MISSPELT.get(key, ""))
        if old is not None and (text is None or _value(text) == 1) and _value(old) != 1:
            self.notes.append(f"{_MISSPELT[key]} = {old} is used for {key}, which is at its default")
            return old
        return text

    def union(self, name: str, table: Mapping[str, Row[Any]]) -> dict[str, Any]:
        """One of a policy's strategies: its type, and its parameters that are not at their default."""
        tuned = self.params(table[name].params)
        return {"type": name, **({member(name): tuned} if tuned else {})}

    def minutes(self, key: str, default: str) -> str:
        """A duration in whole minutes, as a policy writes it."""
        text = self.runtime.get(key, "")
        if not re.fullmatch(r"[0-9]+", text) or len(text) > 6:  # noqa: PLR2004  a policy takes up to 15 digits
            self.notes.append(f"{key} = {text or '(nothing)'} is not a number of minutes: {default} is used")
            return default
        if int(text) == 0:
            self.notes.append(f"{key} = 0 becomes 1s, as a policy has no durations of zero")
            return "1s"
        return f"{int(text)}m"


def migrate(runtime: Mapping[str, str], *, admin_url: str, prometheus: str, trim: bool = False) -> Migration:
    """The policy for a cluster that runs with `runtime`. prometheus: URL of the server that scrapes it.

    trim: whether Trim balances instead of Pulsar's shedder and placement. Raises `CommandError` for values that no
    policy can have.
    """
    manager = load_manager(runtime)
    reader = _ConfigReader(runtime, manager if manager in _DEFAULTS else LoadManager.MODULAR)
    if manager not in _DEFAULTS:
        named = runtime.get("loadManagerClassName") or "(nothing)"
        reader.notes.append(f"loadManagerClassName = {named} is not a known load manager: read as if modular")
    _, _, splitter, selection = _DEFAULTS[reader.manager]
    source: dict[str, Any] = {"url": prometheus, **_nic_speed(reader)}
    interval = {} if trim else {"interval": reader.minutes(_INTERVAL, "1m")}
    strategies = _strategies(replace(reader, notes=[]) if trim else reader)  # Trim needs no notes on them
    spec: dict[str, Any] = {
        "mode": "DryRun",
        **interval,
        "pulsar": {"adminUrl": admin_url},
        "source": {"prometheus": source},
        **({} if trim else strategies),
        "selection": reader.union(selection, SELECTIONS),
        **_split(reader, splitter),
        **({} if trim else {"limits": {"coolDown": reader.minutes(_GRACE, "30m")}}),
    }
    _check_spec(spec)
    own = [] if trim else [*_no_pair(spec), *_minima(spec["shedder"])]
    return Migration(
        spec,
        strategies["shedder"]["type"],
        [*_off(runtime), *reader.notes, *own, *_without_equivalent(runtime)],
    )


def _strategies(reader: _ConfigReader) -> dict[str, Any]:
    """The shedder and the placement that Pulsar runs."""
    shedder, placement, _, _ = _DEFAULTS[reader.manager]
    return {
        "shedder": reader.union(reader.chosen(_STRATEGY, SHEDDERS, shedder), SHEDDERS),
        "placement": reader.union(reader.chosen(_PLACEMENT, PLACEMENTS, placement), PLACEMENTS),
    }


def _check_spec(spec: Mapping[str, Any]) -> None:
    """Raise `CommandError` for a policy that the API server would refuse."""
    try:
        BalancingPolicySpec.model_validate(spec)
    except ValidationError as error:
        first = error.errors()[0]
        path = ".".join(map(str, first["loc"]))
        raise CommandError(f"no policy can have spec.{path} = {first['input']!r}: {first['msg']}") from error


def _off(runtime: Mapping[str, str]) -> list[str]:
    off = [key for key in (ENABLED, SHEDDING) if not is_true(runtime.get(key, "true"))]
    return (
        [f"{off[0]} is false: Pulsar sheds nothing now, so this policy would do more than Pulsar does"] if off else []
    )


def _minima(shedder: Mapping[str, Any]) -> list[str]:
    """Notes on minima that a small cluster never reaches, if they are at Pulsar's default or above."""
    name = shedder["type"]
    tuned, fields = shedder.get(member(name), {}), SHEDDERS[name].params.model_fields
    notes = []
    for parameter, (unit, small) in _MINIMA.get(name, {}).items():
        default, path = fields[parameter].default, f"{member(name)}.{to_camel(parameter)}"
        value = tuned.get(to_camel(parameter), default)
        if quantity(str(value)) >= quantity(str(default)):
            notes.append(
                f"spec.shedder.{path} is {value} {unit}: nothing moves while less than that would leave a broker."
                f" In a small cluster, set what `trimtab plan` says would act, or less, for example {small}"
            )
    return notes


def _no_pair(spec: Mapping[str, Any]) -> list[str]:
    if spec["placement"]["type"] != "AvgShedder" or spec["shedder"]["type"] == "AvgShedder":
        return []
    return [f"{_PLACEMENT} = AvgShedder, but only the shedder AvgShedder works with it: {_FALLS_BACK}"]


def _split(reader: _ConfigReader, splitter: str) -> dict[str, Any]:
    if not is_true(reader.runtime.get(SPLITTING, "true")):
        reader.notes.append(f"{SPLITTING} is false: the policy has no split rule (spec.split)")
        return {}
    return {"split": reader.union(splitter, SPLITTERS)}


def _nic_speed(reader: _ConfigReader) -> dict[str, Any]:
    text = reader.runtime.get(_NIC, "")
    if text in {"", "null", "Optional.empty"}:
        return {}
    number = _value(text.removeprefix("Optional[").removesuffix("]"))
    if not isinstance(number, int | float) or not 0 < number <= _FASTEST:
        reader.notes.append(f"{_NIC} = {text} is not a speed in Gbit/s: nicSpeed is left at its default")
        return {}
    return {"nicSpeed": f"{number:.12g}G"}


def _without_equivalent(runtime: Mapping[str, str]) -> list[str]:
    return [
        f"{key} = {runtime[key]} has no equivalent: {why}"
        for key, (default, why) in _NO_EQUIVALENT.items()
        if key in runtime and _value(runtime[key]) != _value(default)
    ]


def differing(runtimes: Mapping[str, Mapping[str, str]]) -> list[str]:
    """Notes on keys of balancing in which brokers differ. runtimes: configuration by broker."""
    keys = sorted({key for runtime in runtimes.values() for key in runtime if _concerns(key)})
    notes = []
    for key in keys:
        by_value: dict[str, list[str]] = {}
        for broker, runtime in sorted(runtimes.items()):
            by_value.setdefault(runtime.get(key, "(nothing)"), []).append(broker)
        if len(by_value) > 1:
            values = "; ".join(f"{value} at {', '.join(brokers)}" for value, brokers in by_value.items())
            notes.append(f"brokers differ in {key}: {values}")
    return notes


def _concerns(key: str) -> bool:
    """Whether a key concerns balancing."""
    tables: tuple[Mapping[str, Row[Any]], ...] = (SHEDDERS, PLACEMENTS, SPLITTERS, SELECTIONS)
    return (
        key.startswith(("loadBalance", "loadManagerClass"))
        or key in _NO_EQUIVALENT
        or any(key in pulsar_keys(row.params) for table in tables for row in table.values())
    )


def _value(text: str, *, listed: bool = False) -> Any:
    """The value of a text as Pulsar writes it: list, boolean, number, or text."""
    if listed:
        return [word for word in re.split(r"[,\s]+", text.strip("[]")) if word]
    if text.lower() in {"true", "false"}:
        return text.lower() == "true"
    try:
        number = float(text)
    except ValueError:
        return text
    return int(number) if number.is_integer() else number


def _plain(value: Any) -> Any:
    """Whole numbers as int, enumerations as text."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return str(value) if isinstance(value, str) else value
