"""Acts on a cluster: the resources, the control loop, the actuators, the Kopf handlers and the CLI.

Everything that speaks to the Kubernetes API is in this package. It decides nothing about load (strategies do), and
uses Spark only through the public modules of the pipeline, such as `trimtab_pipeline.api`.
"""

__version__ = "0.1.0"
