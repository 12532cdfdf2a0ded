"""The planner turns the results of a shedder and a placement into a `Plan`.

The package also handles drains, the assignment of unowned bundles, splits, and predictions. It contains no strategy.
"""
