"""Keeps Broker, TopicNamespace and Bundle objects in step with what a Pulsar cluster reports."""
