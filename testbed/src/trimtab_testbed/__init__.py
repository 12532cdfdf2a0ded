"""WORLD: everything outside the operator, on one machine, and real wherever it can be.

Belongs here: starting and stopping a Kubernetes control plane and Prometheus, brokers that are simulated but speak
real `/metrics` and real Kubernetes, scenarios as data, and the demo that joins them. May not be here: a decision about
load, or anything the operator needs in production.
"""
