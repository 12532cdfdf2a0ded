"""Observe: combines the objects of the cluster and the measured load into one `ClusterLoad`."""
