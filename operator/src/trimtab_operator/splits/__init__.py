"""Bundle splits: validation of a BundleSplit, its steps, and the two ways to carry it out."""
