"""Weights: Hermes' way of balancing, where each consumer has a target weight and carries tasks that add up to it.

Belongs here: the rules of Hermes' balancers over its own nouns (consumers, subscriptions, tasks, profiles, load
reports), each on its own and usable without a cluster. May not be here: bundles and brokers; the shedder that applies
these rules to them is `trimtab_strategies.shedding.weighted`.

    balance(work, rules)             one balance by weight: placement, move-out, swaps
    run(state, cycle, rules)         the same with everything that is carried from cycle to cycle
    targets.update(...)              the target weights alone: plain average, or the proportional controller
    selective(work)                  one balance by counts
"""

from trimtab_strategies.weights.cycle import Cycle, Outcome, State, run
from trimtab_strategies.weights.diff import Diff, diff
from trimtab_strategies.weights.orders import Iteration
from trimtab_strategies.weights.profiles import NO_PROFILES, Profiles, rebuilt, stamped
from trimtab_strategies.weights.selective import selective
from trimtab_strategies.weights.targets import Law, Score, TargetRule, Targets
from trimtab_strategies.weights.weighted import Balance, Rules, balance
from trimtab_strategies.weights.work import NEVER, Constraints, InvalidWorkError, NodeLoad, Profile, Work

__all__ = [
    "NEVER",
    "NO_PROFILES",
    "Balance",
    "Constraints",
    "Cycle",
    "Diff",
    "InvalidWorkError",
    "Iteration",
    "Law",
    "NodeLoad",
    "Outcome",
    "Profile",
    "Profiles",
    "Rules",
    "Score",
    "State",
    "TargetRule",
    "Targets",
    "Work",
    "balance",
    "diff",
    "rebuilt",
    "run",
    "selective",
    "stamped",
]
