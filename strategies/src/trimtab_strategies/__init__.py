"""Decides which broker owns which bundle: a `ClusterLoad` goes in, a `Plan` comes out.

This package holds pure functions over numpy arrays, and their values. It has no I/O, no clock, no random numbers of its
own, and nothing of Kubernetes, Prometheus or Spark. The time is ``ClusterLoad.now``. Random numbers come from a
``numpy.random.Generator`` that the caller passes in.
"""
