"""Recorded rules of Hermes' balancers (``hermes.*``), run here."""

from __future__ import annotations

from collections.abc import Mapping

from trimtab_strategies.conformance.shared import Algorithm

ALGORITHMS: Mapping[str, Algorithm] = {}
