"""THINK: load in, plan out.

Belongs here: what decides which broker owns which bundle, as pure functions over numpy arrays, and the values they
speak in. May not be here: I/O, a clock, randomness of our own, anything of Kubernetes, Prometheus or Spark. Time is
``ClusterLoad.now`` and chance is a ``numpy.random.Generator`` that the caller passes in.
"""
