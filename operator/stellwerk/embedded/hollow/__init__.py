"""Nodes without machines: their objects, their heartbeats and a kubelet that only pretends to
run pods.
"""
