"""Real servers on this machine: kube-apiserver and etcd, Prometheus, Spark; and their processes."""
