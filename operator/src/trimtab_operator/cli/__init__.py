"""The command line, `trimtab VERB`: one module per verb. Exit codes: 0 fine, 1 a finding, 2 usage or input error.

A verb's module is imported only when its help or the verb itself is asked for: Spark, Kopf and numpy take a second to
load, and `trimtab --help` should not.
"""

from trimtab_operator.cli.main import main

__all__ = ["main"]
