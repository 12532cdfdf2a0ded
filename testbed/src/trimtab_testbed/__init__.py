"""Everything outside the operator, on one machine, with real parts where possible.

Belongs here: starting and stopping a Kubernetes control plane, Prometheus and Pulsar; simulated brokers with real
`/metrics` pages; scenarios as data; the demo. May not be here: decisions about load, or anything that the operator
needs in production.
"""
