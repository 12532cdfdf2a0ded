"""Simulated parts: brokers, their load, and a Pulsar admin REST API with faults on demand."""
