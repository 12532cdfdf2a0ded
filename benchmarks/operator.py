"""The operator with 100 brokers and 60,000 bundles, as the largest published test of Pulsar; see docs/benchmarks.md.

Everything but the load is real: kube-apiserver, etcd, and the operator's own event loop. The cluster is made once and
kept in the cache folder. Each part runs in a process of its own. The last one leaves moves behind that nobody lands.
"""  # noqa: A005  named like a module of the standard library: see below

import os
import sys
from importlib.machinery import SourceFileLoader

if __name__ == "operator":
    # Python looks here first when it runs a program of this folder: who asks for the standard library's gets that
    _theirs = os.path.join(os.path.dirname(os.__file__), "operator.py")  # noqa: PTH118, PTH120  pathlib would ask for it
    SourceFileLoader("operator", _theirs).exec_module(sys.modules["operator"])
elif __name__ == "__main__":
    from scale_run import main

    main()
