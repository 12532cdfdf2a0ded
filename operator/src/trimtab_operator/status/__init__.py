"""What people are shown of a policy: its status, conditions, Events and metrics."""
