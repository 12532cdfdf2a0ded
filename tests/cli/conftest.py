"""What tests of several verbs begin with."""

from __future__ import annotations

import pytest

from plan_clusters import HOT
from policy_environment import PolicyEnvironment
from trimtab_testbed.servers.kube import ControlPlane


@pytest.fixture
def env(trimtab_crds: ControlPlane, kube_namespace: str, request: pytest.FixtureRequest) -> PolicyEnvironment:
    """The objects of an uneven cluster (or of the one that a test names), without a policy yet."""
    env = PolicyEnvironment(trimtab_crds, kube_namespace, getattr(request, "param", HOT))
    env.build()
    return env
