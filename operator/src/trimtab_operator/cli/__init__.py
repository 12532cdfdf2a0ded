"""The command line, `trimtab VERB`: one module per verb. Exit codes: 0 fine, 1 a finding, 2 usage or input error.

The module of a verb is imported only for that verb or its help: Spark, Kopf and numpy take a second to load, and
`trimtab --help` should not wait for them.
"""

from trimtab_operator.cli.main import main

__all__ = ["main"]
