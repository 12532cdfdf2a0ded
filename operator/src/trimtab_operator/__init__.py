"""Acts on a cluster: the resources, the control loop, the actuators, the Kopf handlers and the CLI.

Everything that speaks to the Kubernetes API is in this package. It decides nothing about load (strategies do), and
reaches Spark only through the pipeline's doors, such as `trimtab_pipeline.api`.
"""

__version__ = "0.1.0"
