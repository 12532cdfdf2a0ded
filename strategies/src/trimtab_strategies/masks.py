"""Whether a mask is true somewhere, or everywhere.

On small arrays numpy's own `any` and `all` take several times as long, as they go through Python. A decision asks about
eighty times.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt


def somewhere(mask: npt.NDArray[Any]) -> bool:
    """Whether a value is true, or a number not 0."""
    return bool(np.count_nonzero(mask))


def everywhere(mask: npt.NDArray[np.bool_]) -> bool:
    """Whether all values are true."""
    return bool(np.count_nonzero(mask) == mask.size)
