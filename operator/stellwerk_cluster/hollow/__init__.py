"""Nodes without machines: their objects, heartbeats, and a kubelet that only pretends.

Invariant: a hollow kubelet does to the API what a kubelet does, and starts no process.
"""
