"""Whether a mask is true somewhere, or everywhere.

numpy's own `any` and `all` go through Python, so on small arrays they take several times as long. A decision calls
these functions about eighty times.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt


def somewhere(mask: npt.NDArray[Any]) -> bool:
    """Whether any value is true, or a number other than 0."""
    return bool(np.count_nonzero(mask))


def everywhere(mask: npt.NDArray[np.bool_]) -> bool:
    """Whether all values are true."""
    return bool(np.count_nonzero(mask) == mask.size)
