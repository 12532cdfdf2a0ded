"""Makes ``python -m trimtab_operator`` run `trimtab`."""

import sys

from trimtab_operator.cli import main

sys.exit(main())
