"""The planner turns the answers of a shedder and a placement into a `Plan`.

It holds drains, the assignment of unowned bundles, splits, and predictions. It holds no strategy.
"""
