"""Observers: metrics, the audit, the debugger, the decision log."""
