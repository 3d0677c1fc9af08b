"""Calls out of the process: the Kubernetes API, extenders, events and the leader's Lease."""
