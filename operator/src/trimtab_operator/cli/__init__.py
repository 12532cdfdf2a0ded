"""The command line, `trimtab VERB`. Exit codes: 0 fine, 1 a finding, 2 wrong usage or input.

A verb's module is imported only for that verb or its help: Spark, Kopf and numpy take a second to load, and
`trimtab --help` should not wait for them.
"""

from trimtab_operator.cli.main import main

__all__ = ["main"]
