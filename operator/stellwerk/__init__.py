"""Stellwerk: a Kubernetes scheduler that decides as kube-scheduler does, faster, and says why."""

__version__ = "0.1.0"
