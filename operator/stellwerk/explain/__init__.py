"""Whole decisions written down: pure answers computed on a snapshot, without a cluster."""
