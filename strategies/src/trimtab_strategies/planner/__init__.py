"""The planner: what becomes of a shedder's and a placement's answers before they are a `Plan`.

Belongs here: guards, drains, assignment of unowned bundles, splits, predictions. May not be here: a strategy.
"""
