"""The operator: a Kubernetes scheduler that decides as kube-scheduler does, and says why."""

__version__ = "0.1.0"
