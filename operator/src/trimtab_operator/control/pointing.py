"""Points whoever reads a condition or an Event to the command that answers *why*. Pure."""

from __future__ import annotations

import numpy as np

from trimtab_strategies.model import CPU, Plan


def where_to_ask(plan: Plan | None, namespace: str) -> str:
    """``; why: trimtab explain broker NAME -n NAMESPACE`` of the broker that matters most; empty where there is none.

    namespace: Kubernetes' one, in which the policy lives.
    That is the one which the first move leaves (or joins, if nobody had the bundle), else the most used one.
    """
    if plan is None or not plan.brokers:
        return ""
    if plan.moves:
        name = plan.moves[0].source or plan.moves[0].destination
    elif np.isfinite(cpu := plan.before[:, CPU]).any():
        name = plan.brokers[int(np.nanargmax(np.where(np.isfinite(cpu), cpu, np.nan)))]
    else:
        name = plan.brokers[0]
    return f"; why: trimtab explain broker {name} -n {namespace}"
