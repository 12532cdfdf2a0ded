"""Shows people how a policy is doing: its status, conditions, Events and metrics."""
