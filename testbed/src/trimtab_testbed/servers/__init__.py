"""Real servers on this machine: kube-apiserver and etcd, Prometheus, and the processes behind them."""
