"""HTTP for Prometheus and probes: metrics, liveness and readiness."""
