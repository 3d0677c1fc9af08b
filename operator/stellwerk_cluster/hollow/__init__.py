"""Nodes without machines: their objects, heartbeats, and a kubelet that only pretends."""
