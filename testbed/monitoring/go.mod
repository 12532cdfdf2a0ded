// Where the CRDs of the Prometheus operator come from: tests ask a real API server whether it takes the chart's
// ServiceMonitor and PrometheusRule. Only the files of this module are read; nothing is built.
module example.invalid/monitoring

go 1.26.0

require github.com/prometheus-operator/prometheus-operator v0.86.1
