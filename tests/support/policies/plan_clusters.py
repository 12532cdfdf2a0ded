"""Two clusters for plans: one in which a broker must give bundles away, and a level one."""

from __future__ import annotations

from trimtab_strategies.testing import cluster

HOT = cluster(bundles={"a": [1] * 8, "b": [1]}, a=0.8, b=0.2, c=0.2)
LEVEL = cluster(bundles=2, a=0.5, b=0.5)
