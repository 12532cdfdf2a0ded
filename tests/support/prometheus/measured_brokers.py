"""The brokers of a topology with their trust, computed from measured values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from trimtab_pipeline.api import PrometheusSettings, Topology
from trimtab_pipeline.columns import BROKER_STATE, RESOURCES, TIMES, TRAFFIC
from trimtab_pipeline.transform.brokers import broker_loads
from trimtab_pipeline.transform.relations import BUNDLE_LOAD, SIGNALS, Cycle
from trimtab_pipeline.transform.reports import Report, ShardReports
from trimtab_pipeline.transform.snapshot import snapshot, targets
from trimtab_pipeline.transform.trust import doubted, judged
from trimtab_strategies.model import ClusterLoad

Row = Mapping[str, float | None]


def judged_brokers(
    rows: Mapping[str, Row],
    world: Topology,
    settings: PrometheusSettings,
    at: float,
    reports: Sequence[Report] = (),
    last: pa.Table | None = None,
) -> pa.Table:
    """`BROKER_LOAD` of the brokers in `world`. rows: columns of `BROKER_STATE` by pod. Shard k has the kth pod."""
    signals = pa.Table.from_pylist([one for pod, row in rows.items() for one in _signals(pod, row)], SIGNALS)
    cycle = Cycle.of("p", settings, at)
    known = BROKER_STATE.empty_table() if last is None else last
    wanted = targets(world, [world.pods], known, at - cycle.horizon)
    failed = [world.pods[report["shard"]] for report in reports if not report["ok"]]
    silent = pc.is_in(wanted["pod"], value_set=pa.array(failed, pa.string()))
    loads = [
        broker_loads(signals, wanted.filter(pc.invert(silent)), cycle),
        broker_loads(signals, wanted.filter(silent), cycle, answered=False),
    ]
    return judged(doubted(pa.concat_tables(loads), cycle))


def observed(
    rows: Mapping[str, Row],
    world: Topology,
    settings: PrometheusSettings,
    at: float,
    bundles: pa.Table | None = None,
    reports: Sequence[Report] = (),
) -> ClusterLoad:
    """The snapshot of these brokers and bundles (`BUNDLE_STATE`)."""
    measured = BUNDLE_LOAD.empty_table() if bundles is None else load_of(bundles)
    brokers = judged_brokers(rows, world, settings, at, reports)
    told = ShardReports(tuple(reports), tuple((pod,) for pod in world.pods))
    return snapshot(brokers, measured, world, settings, at, reports=told)


def load_of(bundles: pa.Table) -> pa.Table:
    """`BUNDLE_STATE` as `BUNDLE_LOAD`."""
    return pa.table(bundles.columns, schema=BUNDLE_LOAD)


def _signals(pod: str, row: Row) -> list[dict[str, object]]:
    named = {"pod": pod}
    signals = []
    for signal in (*RESOURCES, *TRAFFIC, *TIMES, "ahead"):
        more = {what: row.get(f"{signal}_{what}") for what in ("time", "interval", "cover")}
        checks = {name: row.get(name) for name in ("samples", "resets", "copies")} if signal == "cpu" else {}
        signals.append({**named, "signal": signal, "value": row.get(signal), **more, **checks})
    return signals


def usual(**more: object) -> Report:
    """The report of shard 0 with default values, except for the given fields."""
    return {"shard": 0, "ok": True, "error": "", "dropped": {}, "warnings": [], **more}
