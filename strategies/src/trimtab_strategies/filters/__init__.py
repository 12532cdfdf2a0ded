"""Selection: the brokers that a bundle may go to, before a placement chooses the best of them.

Pulsar's two load managers filter by the same rules, in a different order and with a different fallback. Each is a
pipeline:

    selection = BrokerSelection(Manager.MODULAR, SelectionParams()).on(cluster)
    verdict = selection.candidates(bundle, brokers)         one verdict per broker, with the reason if it is excluded
    choice = selection.choose(bundle, brokers, placement, memory)
    selection.moved(bundle, destination)                    later choices see the bundle on `destination`
"""

from trimtab_strategies.filters.isolation import isolation_problems
from trimtab_strategies.filters.params import Manager, SelectionParams
from trimtab_strategies.filters.pipelines import SYSTEM_NAMESPACE, ActiveSelection, BrokerSelection

__all__ = [
    "SYSTEM_NAMESPACE",
    "ActiveSelection",
    "BrokerSelection",
    "Manager",
    "SelectionParams",
    "isolation_problems",
]
