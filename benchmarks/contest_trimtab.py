"""Trimtab for a run of `side_by_side.py`: API server, Prometheus, the operator under its own Role, and its policy."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from contest_entrants import Entrant
from trimtab_testbed.programs import find
from trimtab_testbed.pulsar.cluster import PulsarCluster
from trimtab_testbed.pulsar.exporter import PodLimits

_IDLE: dict[str, Any] = {"shedder": {"type": "OverloadShedder", "overloadShedder": {"overloadThreshold": 100}}}
"""Sheds nothing: the strategy's memory begins when Pulsar's does, with the story."""


class Balancer(NamedTuple):
    """How to have somebody balance: `prepare` once every bundle has its first owner, `begin` with the story.

    `told` is asked at the end: whether it was really balancing, in words.
    """

    prepare: Callable[[], None]
    begin: Callable[[], None]
    told: Callable[[], str]


@contextmanager
def trimtab(entrant: Entrant, cluster: PulsarCluster, work: Path, cores: float) -> Iterator[Balancer]:
    """The operator beside `cluster`, whose brokers have so many `cores`.

    It looks at the cluster from `prepare` on, when no bundle moves any more: one that does has to stay for a while.
    """
    sys.path.append(str(Path(__file__).parents[1] / "tests" / "support"))
    from real_pulsar_cluster import RealPulsarCluster  # noqa: PLC0415  (shared with the tests, and needed here only)

    work.mkdir(parents=True, exist_ok=True)
    limits = PodLimits(cores=cores)
    with RealPulsarCluster(find.find_kube(), find.find_prometheus(), work, cluster, limits=limits) as stage:

        def prepare() -> None:
            stage.apply_policy(
                interval=entrant.policy["interval"],
                placement=entrant.policy["placement"],
                prometheus={"window": "30s", "maxAge": "60s"},
                limits={"moveTimeout": "60s", "lostAfter": "30s", **entrant.policy["limits"]},
                **_IDLE,
            )

        def begin() -> None:
            idle = dict.fromkeys(key for key in _IDLE["shedder"] if key != "type")
            stage.edit_policy(mode="Auto", shedder={**idle, **entrant.policy["shedder"]})

        def told() -> str:
            if not stage.operator.running:
                raise RuntimeError(f"the operator has ended: {stage.operator.log[-1000:]}")
            return "; ".join(
                ": ".join(stage.condition(kind)) for kind in ("Acting", "Linked", "PulsarBalancerDisabled")
            )

        yield Balancer(prepare, begin, told)
