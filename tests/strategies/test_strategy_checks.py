"""Every strategy of the registry keeps to the same rules, on clusters that hypothesis draws."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given, settings

from cluster_strategies import clusters
from trimtab_strategies.model import ClusterLoad
from trimtab_strategies.testing import strategy_checks


@pytest.mark.parametrize("check", [pytest.param(check, id=name) for name, check in strategy_checks()])
@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True)
@given(cluster=clusters())
def test_registered_strategy_passes(check: Callable[[ClusterLoad], None], cluster: ClusterLoad) -> None:
    check(cluster)
