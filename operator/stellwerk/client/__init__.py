"""Calls out of the process: the Kubernetes API, extenders and events."""
