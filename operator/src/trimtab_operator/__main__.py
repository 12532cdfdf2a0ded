"""``python -m trimtab_operator`` is `trimtab`."""

import sys

from trimtab_operator.cli import main

sys.exit(main())
