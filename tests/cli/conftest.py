"""What tests of several verbs begin with."""

from __future__ import annotations

import pytest

from plan_clusters import HOT
from policy_scene import PolicyScene
from trimtab_testbed.servers.kube import ControlPlane


@pytest.fixture
def scene(trimtab_crds: ControlPlane, kube_namespace: str, request: pytest.FixtureRequest) -> PolicyScene:
    """The objects of an uneven cluster (or of the one that a test names), without a policy yet."""
    scene = PolicyScene(trimtab_crds, kube_namespace, getattr(request, "param", HOT))
    scene.build()
    return scene
