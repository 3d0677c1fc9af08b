"""HTTP for people and probes: metrics, liveness and readiness, the explain API."""
