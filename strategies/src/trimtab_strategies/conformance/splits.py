"""Recorded rules of splitting (``split.*`` and the strategies that say when), run here."""

from __future__ import annotations

from collections.abc import Mapping

from trimtab_strategies.conformance.shared import Algorithm

ALGORITHMS: Mapping[str, Algorithm] = {}
