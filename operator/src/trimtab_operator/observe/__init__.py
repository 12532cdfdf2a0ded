"""Observe: the objects of the cluster and the measured load become one `ClusterLoad`."""
