"""What looks on: metrics, the audit, the debugger, the decision log."""
