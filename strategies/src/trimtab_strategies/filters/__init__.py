"""Selection: which brokers a bundle may go to at all, before a placement says which of them is best.

Pulsar's two managers filter by the same rules, in another order and with another last resort; each is a pipeline here:

    selecting = Selection(Manager.MODULAR, SelectionParams()).on(cluster)
    verdict = selecting.candidates(bundle, brokers)         one verdict per broker, with the reason of each that is out
    choice = selecting.choose(bundle, brokers, placement, memory)
    selecting.moved(bundle, destination)                    what comes later counts it there
"""

from trimtab_strategies.filters.isolation import InvalidIsolationError, check_isolation, isolation_problems
from trimtab_strategies.filters.params import Manager, SelectionParams
from trimtab_strategies.filters.pipelines import SYSTEM_NAMESPACE, BrokerSelection, Selecting

__all__ = [
    "SYSTEM_NAMESPACE",
    "BrokerSelection",
    "InvalidIsolationError",
    "Manager",
    "Selecting",
    "SelectionParams",
    "check_isolation",
    "isolation_problems",
]
