"""The demo: a scenario's world, a real control plane, Prometheus and the operator, until the cluster is level.

`stage` sets up, `follow` looks, `settle` judges, `show` and `summary` tell, `runner` joins them, `command` is the verb.
"""
