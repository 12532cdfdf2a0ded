"""Every recorded algorithm that can be run here: a function from the recorded input to the answer in its shape."""

from __future__ import annotations

from collections.abc import Mapping

from trimtab_strategies.conformance import extensible, hermes, modular, naming, splits
from trimtab_strategies.conformance.shared import Algorithm

ALGORITHMS: Mapping[str, Algorithm] = {
    **modular.ALGORITHMS,
    **extensible.ALGORITHMS,
    **splits.ALGORITHMS,
    **naming.ALGORITHMS,
    **hermes.ALGORITHMS,
}
"""What can be replayed. A recorded algorithm that is not in this table is reported as not implemented."""
