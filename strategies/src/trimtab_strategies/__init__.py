"""Decides which broker owns which bundle: a `ClusterLoad` goes in, a `Plan` comes out.

This package holds pure functions over numpy arrays, and the types that they take and return. It has no I/O, no clock
and no random numbers of its own, and imports nothing of Kubernetes, Prometheus or Spark. The time is
``ClusterLoad.now``. Random numbers come from a ``numpy.random.Generator`` that the caller passes in.
"""
