"""The embedded cluster: a Kubernetes API in memory, its controllers and its hollow nodes."""
