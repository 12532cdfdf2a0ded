"""`trimtab` with shorter times: it compares Prometheus with the brokers within seconds instead of minutes."""

from __future__ import annotations

import sys

from trimtab_operator.cli import main
from trimtab_operator.pulsar.bridge import cross_check
from trimtab_operator.state import pulsar_link

if __name__ == "__main__":
    cross_check.COMPARE_INTERVAL, pulsar_link.LASTING = 1.0, 5.0
    sys.exit(main())
