"""From samples to a snapshot: rates, topics as bundles, averages, trust; each rule is one module."""
