"""State of the policies of a messaging cluster between reconciles, in memory and in ConfigMaps."""
