"""Reconciliation of Broker, Bundle and TopicNamespace objects, in every mode. None of it is balancing."""
