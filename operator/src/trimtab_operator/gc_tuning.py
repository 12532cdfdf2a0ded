"""Python's garbage collector, set up for a process that holds one large picture and must not pause.

The collector looks at every live container again and again to find cycles. With 60,000 records that is a pause of a
tenth of a second, and there is nothing to find: records refer to nothing that refers back. So it comes seldom, and what
is there once the stores are complete is not looked at any more. An object that is replaced is freed all the same, as
that is by counting references.
"""

from __future__ import annotations

import gc

YOUNG, MIDDLE, OLD = 20_000, 20, 50
"""Containers made, and not freed, before the youngest are looked at (Python: 700); rounds before the older ones are."""


def collect_seldom() -> None:
    """Look for cycles less often, and not among what is loaded by now. Call it before the stores fill."""
    gc.set_threshold(YOUNG, MIDDLE, OLD)
    gc.freeze()


def leave_alone_what_is_there() -> None:
    """Look for cycles no more among what there is. Call it once the stores are complete."""
    gc.freeze()
