"""ACT: the resources, the control loop, the actuators that make intent real, the Kopf handlers and the CLI.

Belongs here: everything that speaks to the Kubernetes API. May not be here: a decision about load (strategies) or a
line of Spark (pipeline, through `trimtab_pipeline.api` only).
"""

__version__ = "0.1.0"
