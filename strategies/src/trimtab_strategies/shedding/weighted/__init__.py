"""WeightedBalancer: Hermes' balancer for bundles, with a target weight for each broker."""
