"""`trimtab` whose comparison of Prometheus with the brokers comes to a word in seconds instead of minutes."""

from __future__ import annotations

import sys

from trimtab_operator.bridge import crosscheck
from trimtab_operator.cli import main
from trimtab_operator.control import crosschecking

if __name__ == "__main__":
    crosscheck.COMPARE_EVERY, crosschecking.LASTING = 1.0, 5.0
    sys.exit(main())
