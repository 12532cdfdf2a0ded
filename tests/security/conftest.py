"""Plays a story on a policy's loop, real API server included."""

from __future__ import annotations

from functools import partial

import pytest

from policy_scene import Play, played
from trimtab_testbed.control_plane import ControlPlane


@pytest.fixture
def play(trimtab_crds: ControlPlane, kube_namespace: str) -> Play:
    """See `Play`."""
    return partial(played, trimtab_crds, kube_namespace)
