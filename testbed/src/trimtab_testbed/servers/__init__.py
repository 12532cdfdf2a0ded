"""Real servers on this machine: kube-apiserver and etcd, Prometheus; and their processes."""
