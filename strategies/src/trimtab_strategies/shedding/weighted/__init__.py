"""WeightedBalancer: Hermes' balancer, applied to bundles, with a target weight for each broker."""
