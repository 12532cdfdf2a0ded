"""Every recorded algorithm that can be run here: a function from the recorded input to the answer in its shape."""

from __future__ import annotations

from collections.abc import Mapping

from trimtab_strategies.conformance import (
    base,
    extensible,
    hermes,
    modular_placements,
    modular_shedders,
    naming,
    splits,
)
from trimtab_strategies.conformance.shared import Algorithm

ALGORITHMS: Mapping[str, Algorithm] = {
    **base.ALGORITHMS,
    **modular_shedders.ALGORITHMS,
    **modular_placements.ALGORITHMS,
    **extensible.ALGORITHMS,
    **splits.ALGORITHMS,
    **naming.ALGORITHMS,
    **hermes.ALGORITHMS,
}
"""What can be replayed. A recorded algorithm that is not in this table is reported as not implemented."""
