"""Everything that the operator works with, on one machine, with real parts where possible.

The package starts and stops a Kubernetes control plane and Prometheus. It has simulated brokers with real `/metrics`
pages, scenarios as data, and the demo. It decides nothing about load, and the operator does not need it in production.
"""
