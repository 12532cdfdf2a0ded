"""Synchronizes Broker, TopicNamespace and Bundle objects with what a Pulsar cluster reports."""
