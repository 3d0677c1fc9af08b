"""Hollow nodes: a kubelet that runs no containers but lives through the life of every pod."""
