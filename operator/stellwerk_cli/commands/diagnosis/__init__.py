"""The checks of `stellwerk doctor`, and the support bundle that it writes."""
