"""`LoadSource` of a policy, on Spark or on threads of this process."""
