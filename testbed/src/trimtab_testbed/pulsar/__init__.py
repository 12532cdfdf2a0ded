"""Real Pulsar for tests and benchmarks: its distribution, clusters of real brokers, their metrics and their clients."""
