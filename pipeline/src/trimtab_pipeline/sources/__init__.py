"""The `LoadSource` of each policy, on Spark or on threads of this process."""
