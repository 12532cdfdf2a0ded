"""The demo: a scenario on a real control plane and a real Prometheus, balanced by the operator until it is level.

`cluster` starts everything, `snapshot` reads the cluster, `view` shows it, `run` decides when it is level, `summary`
reports the result, and `command` parses the command line.
"""
