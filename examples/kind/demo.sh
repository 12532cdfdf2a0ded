#!/usr/bin/env bash
# From nothing to a balanced cluster in kind. Needs docker, kind, kubectl and helm; see examples/kind/README.md.
#   examples/kind/demo.sh [ARCHIVE]   an image archive, as `docker save` writes it; without one, Docker builds the image
set -euo pipefail
cd "$(dirname "$0")/../.."

readonly cluster=trimtab namespace=messaging here=examples/kind image=localhost/trimtab:0.1.0

# Report missing programs before anything is created.
for tool in docker kind kubectl helm; do
  command -v "$tool" >/dev/null || { echo "demo: $tool is missing" >&2; exit 2; }
done

# 1. The image. An archive is used as it is.
if [ $# -eq 0 ]; then
  docker build --tag "$image" .
fi

# 2. The cluster: a control plane and three workers, the third twice as strong.
kind create cluster --config kind-config.yaml --wait 120s
readonly context="kind-$cluster"
kube() { kubectl --context "$context" --namespace "$namespace" "$@"; }

# 3. Every node gets the image: there is no registry to pull it from.
if [ $# -eq 0 ]; then
  kind load docker-image "$image" --name "$cluster"
else
  kind load image-archive "$1" --name "$cluster"
fi

# 4. The operator, with the five kinds. It waits for policies, so nothing moves yet.
helm install trimtab charts/trimtab --kube-context "$context" --namespace "$namespace" --create-namespace \
  --values "$here/values.yaml" --wait --timeout 5m

# 5. Five simulated brokers with 48 bundles of skewed load, and a Prometheus that reads them.
kube create configmap broker-program --from-file="$here/broker.py"
kube apply --filename "$here/brokers.yaml" --filename "$here/prometheus.yaml"
kube rollout status statefulset/pulsar-broker --timeout 3m
kube rollout status deployment/prometheus --timeout 3m

# 6. From here on Trimtab gives each bundle an owner, and balances the brokers.
kube apply --filename "$here/policy.yaml"
kube wait bpol/balance --for=condition=DataTrusted --timeout 2m

# 7. Show the objects for three minutes. The cluster runs until you delete it.
for _ in $(seq 18); do
  kube get bpol,bkr
  sleep 10
done
echo "It goes on: kubectl --context $context -n $namespace get bpol,bkr -w"
echo "Delete it with: kind delete cluster --name $cluster"
