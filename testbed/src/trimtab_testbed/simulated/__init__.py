"""Simulated parts: brokers, their load and their metrics pages."""
